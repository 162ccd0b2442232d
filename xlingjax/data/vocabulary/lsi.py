"""Vectors of pieces from translations alone: cross-lingual latent semantic indexing (Littman,
Dumais and Landauer 1998), with which a model's token table may begin.

A pair of translations is one document of both sides' pieces; pieces that stand in the same pairs,
of one language or of two, get like vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlingjax.data.sources import find_pairs
from xlingjax.data.vocabulary.sentencepiece import Vocabulary

LIMIT = 100_000
"""Pairs that are read; of more as many at random."""


def piece_vectors(
    vocabulary: Vocabulary,
    patterns: Sequence[str],
    width: int,
) -> tuple[np.ndarray, int]:
    """(float32 [size, width], number of pairs): rows of length 1, or 0 for pieces that no pair has.

    Documents are log-scaled counts times inverse document frequency, of length 1; a row is the
    piece's part of the first `width` right singular vectors, each of the same weight.
    """
    # Here, since only a run that begins so needs them.
    import scipy.sparse
    from sklearn.decomposition import TruncatedSVD

    lines = [
        " ".join(sides)
        for pair in find_pairs(patterns)
        for sides in pair.lines()
        if all(sides)
    ]
    if len(lines) > LIMIT:
        chosen = np.random.default_rng(0).permutation(len(lines))[:LIMIT]
        lines = [lines[i] for i in chosen]
    vectors = np.zeros((vocabulary.size, width), np.float32)
    # A decomposition has fewer dimensions than it has documents.
    rank = min(width, len(lines) - 1)
    if rank < 1:
        return vectors, len(lines)
    ids, lengths = vocabulary.encode_lines(lines)
    line_of_piece = np.repeat(np.arange(len(lines)), lengths)
    shape = (len(lines), vocabulary.size)
    # Pieces that a line has twice are added up.
    counts = scipy.sparse.csr_matrix(
        (np.ones(len(ids)), (line_of_piece, ids)),
        shape,
    )
    documents = np.bincount(counts.indices, minlength=vocabulary.size)
    rarity = np.log((1 + len(lines)) / (1 + documents)) + 1
    counts.data = (1 + np.log(counts.data)) * rarity[counts.indices]
    norms = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
    counts = scipy.sparse.diags(1 / np.maximum(norms, 1e-9)) @ counts
    found = TruncatedSVD(rank, random_state=0).fit(counts).components_.T
    found[documents == 0] = 0
    norms = np.linalg.norm(found, axis=1, keepdims=True)
    vectors[:, :rank] = found / np.maximum(norms, 1e-9)
    return vectors, len(lines)
