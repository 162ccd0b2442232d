"""Vectors of pieces from translations alone: cross-lingual latent semantic indexing (Littman,
Dumais and Landauer 1998), with which a model's token table may begin.

A pair of translations is one document of both sides' pieces; pieces that stand in the same pairs,
of one language or of two, get like vectors.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from xlingjax.data.store.entries import Writer, get, name_of
from xlingjax.data.store.tokenise import BlockText
from xlingjax.data.vocabulary.sentencepiece import Vocabulary

# Part of every name: vectors that are made in another way leave the old files alone.
FORMAT = 2
LIMIT = 100_000  # pairs that are read; of more as many at random


def piece_vectors(
    vocabulary: Vocabulary, texts: Iterable[BlockText], width: int
) -> tuple[np.ndarray, int]:
    """(float32 [size, width], number of pairs): rows of length 1, or 0 for pieces that no pair has.
    They are kept beside the tokens, and made once of a text.

    Documents are log-scaled counts times inverse document frequency, of length 1; a row is the
    piece's part of the first `width` right singular vectors, each of the same weight. texts: those
    of one language are passed over.
    """
    # Several objectives read the same pairs.
    of_pairs = [*{text.key: text for text in texts if text.sides > 1}.values()]
    if not of_pairs:
        return np.zeros((vocabulary.size, width), np.float32), 0
    # In this order: the pairs of more than `LIMIT` are drawn from all of them.
    keys = [text.key for text in of_pairs]

    def make(writer: Writer) -> None:
        vectors, count = _decomposed(vocabulary, of_pairs, width)
        writer.array("vectors", vectors)
        writer.facts = {"pairs": count}

    entry = get("lsi", name_of(FORMAT, keys, vocabulary.sha256, width, LIMIT), make)
    return entry.array("vectors"), entry.facts["pairs"]


def _decomposed(
    vocabulary: Vocabulary, texts: list[BlockText], width: int
) -> tuple[np.ndarray, int]:
    # Here, since only a run that begins so needs them.
    import scipy.sparse
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.preprocessing import normalize

    ids, document = _documents(texts, vocabulary.eos_id)
    # Numbered without those that have no piece.
    _, document = np.unique(document, return_inverse=True)
    count = int(document.max(initial=-1)) + 1
    vectors = np.zeros((vocabulary.size, width), np.float32)
    # A decomposition has fewer dimensions than it has documents, and no more than terms.
    rank = min(width, count - 1, np.unique(ids).size)
    if rank < 1:
        return vectors, count
    # Pieces that a document has twice are added up.
    counts = scipy.sparse.csr_matrix((np.ones(len(ids)), (document, ids)), (count, vocabulary.size))
    weighted = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    found = TruncatedSVD(rank, random_state=0).fit(weighted).components_.T
    found[np.bincount(counts.indices, minlength=vocabulary.size) == 0] = 0
    vectors[:, :rank] = normalize(found)
    return vectors, count


def _documents(texts: list[BlockText], end: int) -> tuple[np.ndarray, np.ndarray]:
    """(ids, number of the pair of each), of pairs with two sides that are not empty."""
    # The end of a document stands behind the lines of a block, an empty line.
    total = 0
    for text in texts:
        total += sum(block.lines + block.ends for block in text.blocks)
    kept = np.ones(total, bool)
    if total > LIMIT:
        kept[np.random.default_rng(0).permutation(total)[LIMIT:]] = False
    first = 0
    ids = [np.zeros(0, np.int64)]
    documents = [np.zeros(0, np.int64)]
    for records in itertools.chain.from_iterable(text.each() for text in texts):
        # Behind the two sides of a pair stands its negative.
        sides = records.sides[:2]
        lengths = np.stack([side.lengths for side in sides])
        lines = lengths.shape[1]
        full = (lengths > 0).all(axis=0)
        numbers = first + np.arange(lines)
        full[full] &= kept[numbers[full]]
        for side in sides:
            chosen = side.keep(full)
            of_line = np.repeat(numbers[full], chosen.lengths)
            pieces = chosen.ids != end
            ids.append(chosen.ids[pieces].astype(np.int64))
            documents.append(of_line[pieces])
        first += lines
    return np.concatenate(ids), np.concatenate(documents)
