"""Vectors of pieces by latent semantic indexing: against a dense decomposition, and on a cipher."""

import itertools

import numpy as np
import pytest

from xlingjax.data.vocabulary.lsi import piece_vectors

WORDS = ("alpha", "bravo", "delta", "kilo", "lima", "oscar", "quebec", "tango")


class Words:
    """A vocabulary of whole words: the eight, their translations in capitals, and one that no text
    has."""

    size = 17

    def encode_lines(self, lines):
        ids, lengths = [], []
        for line in lines:
            found = [self.id(word) for word in line.split()]
            ids += found
            lengths.append(len(found))
        return np.array(ids, np.int32), np.array(lengths, np.int32)

    def id(self, word):
        return WORDS.index(word.lower()) + 8 * word.isupper()


def write(folder, sentences):
    for code, lines in (
        ("en", sentences),
        ("xx", [" ".join(reversed(line.upper().split())) for line in sentences]),
    ):
        (folder / f"en-xx.{code}").write_text("".join(f"{line}\n" for line in lines))
    return [str(folder / "*")]


def test_a_word_and_its_translation_are_alike(tmp_path):
    sentences = [" ".join(three) for three in itertools.combinations(WORDS, 3)]
    vectors, pairs = piece_vectors(Words(), write(tmp_path, sentences), 8)
    assert pairs == 56 and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors[:16], axis=1), 1, rtol=1e-5)
    assert not vectors[16].any()
    cosines = vectors[:8] @ vectors[8:16].T
    # They stand in the same pairs always, and so are one direction.
    np.testing.assert_allclose(np.diagonal(cosines), 1, atol=1e-4)
    assert np.abs(cosines - np.diag(np.diagonal(cosines))).max() < 0.9


def test_the_space_is_that_of_a_dense_decomposition(tmp_path):
    sentences = ["alpha bravo", "alpha alpha kilo", "delta lima kilo tango", "tango", "oscar alpha"]
    vectors, _ = piece_vectors(Words(), write(tmp_path, sentences), 3)
    documents = np.zeros((5, 17))
    for row, line in enumerate(sentences):
        for word in line.split():
            documents[row, [WORDS.index(word), WORDS.index(word) + 8]] += 1
    there = (documents > 0).sum(axis=0)
    weighted = np.where(documents > 0, 1 + np.log(np.maximum(documents, 1)), 0)
    weighted *= np.log(6 / (1 + there)) + 1
    weighted /= np.linalg.norm(weighted, axis=1, keepdims=True)
    right = np.linalg.svd(weighted)[2][:3].T
    right = right[there > 0]
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    ours = vectors[there > 0]
    # Up to a rotation, which cosines do not see.
    np.testing.assert_allclose(ours @ ours.T, right @ right.T, atol=1e-4)


@pytest.mark.parametrize("sentences", [[], ["alpha"]])
def test_too_few_pairs_say_nothing(tmp_path, sentences):
    vectors, pairs = piece_vectors(Words(), write(tmp_path, sentences), 4)
    assert pairs == len(sentences) and not vectors.any()


def test_more_dimensions_than_pairs_are_left_0(tmp_path):
    vectors, _ = piece_vectors(Words(), write(tmp_path, ["alpha kilo", "bravo", "tango lima"]), 6)
    assert vectors[0].any() and not vectors[:, 2:].any()
