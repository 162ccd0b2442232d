"""Vectors of pieces by latent semantic indexing of n-grams: against a dense decomposition, and on a
cipher."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from xlingjax.data import lsi
from xlingjax.data.lsi import piece_vectors
from xlingjax.data.store.tokenise import Records, Tokens
from xlingjax.errors import UserError

# Every text here is called "pairs", and what is made of one is kept by its name.
pytestmark = pytest.mark.usefixtures("own_cache")
WORDS = ("alpha", "bravo", "delta", "kilo", "lima", "oscar", "quebec", "tango")
PIECES = (*WORDS, *(word[::-1] for word in WORDS), "alphas", "</s>")


class Words:
    """A vocabulary of whole words: the eight, their translations, which are spelled backwards, a
    form of the first that no text has, and the end of a line."""

    size = 18
    eos_id = 17
    sha256 = "0" * 64

    @staticmethod
    def pieces(ids):
        return [PIECES[i] for i in ids]


def tokens(lines):
    ids, lengths = [], []
    for line in lines:
        found = [PIECES.index(word) for word in line.split()]
        if found:
            found.append(Words.eos_id)
        ids += found
        lengths.append(len(found))
    return Tokens(np.array(ids, np.uint16), np.array(lengths, np.int32))


def text(sentences, key="pairs", per_block=20):
    """Sentences and their translations, as the token cache gives them, a document a block."""
    blocks, each = [], []
    for start in range(0, len(sentences), per_block):
        part = sentences[start : start + per_block]
        other = [line[::-1] for line in part]
        each.append(Records(("en", "xx"), (tokens([*part, ""]), tokens([*other, ""]))))
        blocks.append(SimpleNamespace(lines=len(part), ends=True))
    return SimpleNamespace(
        key=key, sides=2, lines=len(sentences), blocks=blocks, each=lambda: iter(each)
    )


def cosines_of(vectors):
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return unit @ unit.T


def test_a_word_its_translation_and_its_forms_are_alike():
    sentences = [" ".join(three) for three in itertools.combinations(WORDS, 3)]
    vectors, pairs = piece_vectors(Words, [text(sentences)], 8)
    assert pairs == 56 and vectors.dtype == np.float32
    cosines = cosines_of(vectors)
    # They stand in the same pairs always, and so are one direction.
    np.testing.assert_allclose(np.diagonal(cosines[:8, 8:16]), 1, atol=1e-4)
    assert np.abs(cosines[:8, 8:16] - np.diag(np.diagonal(cosines[:8, 8:16]))).max() < 0.9
    # One that no text has is known by its n-grams; the end of a line by nothing.
    assert cosines[16, 0] > 0.9999 and not vectors[17].any()
    assert np.linalg.norm(vectors[:17], axis=1).mean() == pytest.approx(1, rel=1e-5)


def test_the_space_is_that_of_a_dense_decomposition():
    sentences = ["alpha bravo", "alpha alpha kilo", "delta lima kilo tango", "tango", "oscar alpha"]
    vectors, _ = piece_vectors(Words, [text(sentences)], 3)
    grams = [
        [f"={word}", *(word[i : i + n] for n in (3, 4, 5, 6) for i in range(len(word) - n + 1))]
        for word in PIECES
    ]
    known = sorted({gram for found in grams for gram in found})
    spread = np.array([[found.count(gram) for gram in known] for found in grams])
    documents = np.zeros((5, 18))
    for row, line in enumerate(sentences):
        for word in line.split():
            documents[row, [PIECES.index(word), PIECES.index(word[::-1])]] += 1
    documents = np.where(documents > 0, 1 + np.log(np.maximum(documents, 1)), 0)
    rarity = np.log(6 / (1 + (documents @ spread > 0).sum(axis=0))) + 1
    weighted = documents @ (spread * rarity)
    weighted /= np.linalg.norm(weighted, axis=1, keepdims=True)
    rows = (spread * rarity) @ np.linalg.svd(weighted)[2][:3].T
    lengths = np.linalg.norm(rows, axis=1)
    there = lengths > 1e-9
    rows[there] /= np.sqrt(lengths[there, None])
    rows /= np.sqrt(lengths[there]).mean()
    # Up to a rotation, which products do not see.
    np.testing.assert_allclose(vectors @ vectors.T, rows @ rows.T, atol=1e-4)


def test_a_chinese_character_is_an_n_gram():
    grams = lsi._grams(["▁湖水", "水", "lake"]).toarray()
    # What both have is the one character.
    assert (grams[0] > 0).sum() == 7 and (grams[:2] > 0).all(axis=0).sum() == 1
    assert (grams[2] > 0).sum() == 4


@pytest.mark.parametrize("sentences", [[], ["alpha"]])
def test_too_few_pairs_say_nothing(sentences):
    vectors, pairs = piece_vectors(Words, [text(sentences)], 4)
    assert pairs == len(sentences) and not vectors.any()


def test_text_that_several_objectives_read_counts_once_and_that_of_one_language_not():
    pairs = text(["alpha kilo", "bravo", "", "tango lima"])
    alone = SimpleNamespace(key="alone", sides=1)
    once, count = piece_vectors(Words, [pairs], 2)
    again, as_many = piece_vectors(Words, [alone, pairs, pairs], 2)
    assert count == as_many == 3
    np.testing.assert_array_equal(once, again)


def test_they_are_made_once_of_a_text(tmp_path, monkeypatch):
    sentences = ["alpha bravo", "alpha kilo", "delta lima kilo tango"]
    made, count = piece_vectors(Words, [text(sentences)], 2)
    with monkeypatch.context() as patched:
        patched.setattr(lsi, "_decomposed", None)
        again, as_many = piece_vectors(Words, [text(sentences)], 2)
        # Of another text nothing is kept.
        with pytest.raises(TypeError):
            piece_vectors(Words, [text(sentences, "others")], 2)
    np.testing.assert_array_equal(again, made)
    assert as_many == count == 3
    (path,) = tmp_path.rglob("vectors.npy")
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    # A damaged entry is removed and said, and made again by the next start.
    with pytest.raises(UserError, match="is damaged .its content is not what was written"):
        piece_vectors(Words, [text(sentences)], 2)
    mended, _ = piece_vectors(Words, [text(sentences)], 2)
    np.testing.assert_array_equal(mended, made)
