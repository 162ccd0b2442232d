"""Which pieces keep the same company in a text: vectors of pieces from counts alone.

Positive pointwise mutual information of pieces that stand near each other, and its truncated
singular value decomposition (Levy, Goldberg and Dagan 2015, §3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from xlingjax.data.vocabulary.sentencepiece import Vocabulary

WINDOW = 4
"""Pieces to either side in the sentence that count as near."""
WIDTH = 100
NEIGHBOURS = 10
LINES = 50_000


def piece_vectors(vocabulary: Vocabulary, lines: Iterable[str]) -> np.ndarray:
    """float32 [size, at most WIDTH]: of length 1, or 0 for what does not occur near anything."""
    # Here, since it takes long and only surgery by company needs it.
    import scipy.sparse
    import scipy.sparse.linalg

    ids, lengths = vocabulary.encode_lines(list(lines))
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    shape = (vocabulary.size, vocabulary.size)
    counts = scipy.sparse.csr_matrix(shape)
    for distance in range(1, WINDOW + 1):
        # The first of each two pieces at this distance that stand in one sentence.
        first = np.flatnonzero(sentence[distance:] == sentence[:-distance])
        pairs = (ids[first], ids[first + distance])
        counts += scipy.sparse.csr_matrix((np.ones(len(first)), pairs), shape)
    # Each pair was counted in one order, and company is mutual.
    counts = (counts + counts.T).tocoo()
    total_of_piece = np.asarray(counts.sum(axis=1)).ravel()
    expected = total_of_piece[counts.row] * total_of_piece[counts.col]
    information = np.log(counts.data * total_of_piece.sum() / expected)
    # Of pieces that are together less than by chance, too few counts tell how much less.
    keep = information > 0
    # `svds` wants fewer values than the matrix has rows.
    width = min(WIDTH, int((total_of_piece > 0).sum()) - 1)
    if width < 1 or not keep.any():
        return np.zeros((vocabulary.size, 1), np.float32)
    places = (counts.row[keep], counts.col[keep])
    matrix = scipy.sparse.csr_matrix((information[keep], places), shape)
    # `random_state`: the solver starts from a random vector.
    u, s, _ = scipy.sparse.linalg.svds(matrix, k=width, random_state=0)
    # The root of the values, and not the values: better for
    # similarity (Levy et al.: eigenvalue weighting 0.5).
    vectors = (u * np.sqrt(s)).astype(np.float32)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    # So that a product of two is their cosine; a row of zeros stays one.
    return vectors / np.maximum(norms, 1e-6)


def most_alike(
    vectors: np.ndarray, new: Sequence[int], known: np.ndarray
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """{new row: (the rows of `known` most like it, weights)} by cosine, which is the weight before
    they sum to 1; rows that are like none are left out."""
    neighbours = {}
    table = vectors[known]
    for row in new:
        cosine = table @ vectors[row]
        best = np.argsort(-cosine, kind="stable")[:NEIGHBOURS]
        best = best[cosine[best] > 0]
        if best.size:
            weights = cosine[best] / cosine[best].sum()
            neighbours[row] = (known[best], weights)
    return neighbours
