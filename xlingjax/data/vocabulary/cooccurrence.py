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
    import scipy.sparse
    import scipy.sparse.linalg

    ids, lengths = vocabulary.encode_lines(list(lines))
    sentence, shape = (
        np.repeat(np.arange(len(lengths)), lengths),
        (
            vocabulary.size,
            vocabulary.size,
        ),
    )
    near = scipy.sparse.csr_matrix(shape)
    for step in range(1, WINDOW + 1):
        inside = np.flatnonzero(sentence[step:] == sentence[:-step])
        pairs = ids[inside], ids[inside + step]
        near += scipy.sparse.csr_matrix((np.ones(len(inside)), pairs), shape)
    near = (near + near.T).tocoo()
    of_each = np.asarray(near.sum(axis=1)).ravel()
    shared = np.log(near.data * of_each.sum() / (of_each[near.row] * of_each[near.col]))
    keep = shared > 0
    company = scipy.sparse.csr_matrix((shared[keep], (near.row[keep], near.col[keep])), shape)
    width = min(WIDTH, int((of_each > 0).sum()) - 1)
    if width < 1 or not keep.any():
        return np.zeros((vocabulary.size, 1), np.float32)
    u, s, _ = scipy.sparse.linalg.svds(company, k=width, random_state=0)
    vectors = (u * np.sqrt(s)).astype(np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)


def most_alike(
    vectors: np.ndarray, new: Sequence[int], known: np.ndarray
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """{new row: (the rows of `known` most like it, weights)} by cosine, which is the weight before
    they sum to 1; rows that are like none are left out."""
    found = {}
    table = vectors[known]
    for row in new:
        cosine = table @ vectors[row]
        best = np.argsort(-cosine, kind="stable")[:NEIGHBOURS]
        best = best[cosine[best] > 0]
        if best.size:
            found[row] = known[best], cosine[best] / cosine[best].sum()
    return found
