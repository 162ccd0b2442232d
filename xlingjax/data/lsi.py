"""Vectors of pieces from translations alone: cross-lingual latent semantic indexing (Littman,
Dumais and Landauer 1998) of character n-grams, with which a model's token table may begin.

A pair of translations is one document of the n-grams in both sides' pieces. N-grams that stand in
the same pairs, of one language or of two, get like vectors, and a piece the sum of its n-grams': so
rare forms of a word are near the frequent ones. The mean of a text's rows is then its vector.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from xlingjax.data.store.entries import Writer, get, name_of
from xlingjax.data.store.tokenise import BlockText
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.runtime.progress import doing

# Part of every name: vectors that are made in another way leave the old files alone.
FORMAT = 3
LIMIT = 100_000  # pairs that are read; of more as many at random
GRAMS = range(3, 7)  # characters of an n-gram; the whole piece is one, too
WIDE = range(1, 4)  # of Chinese, Japanese and Korean, whose characters say as much as syllables
AT_ONCE = 10_000  # pairs whose n-grams are in memory


def piece_vectors(
    vocabulary: Vocabulary, texts: Iterable[BlockText], width: int
) -> tuple[np.ndarray, int]:
    """(float32 [size, width], number of pairs): rows of length 1 on average, or 0 for pieces of
    which no pair has an n-gram. They are kept beside the tokens, and made once of a text.

    Documents are log-scaled counts of pieces, spread over the n-grams, times inverse document
    frequency, of length 1; an n-gram has its part of the first `width` right singular vectors, each
    of the same weight. A row is divided by the root of its length, since long pieces have many
    n-grams. texts: those of one language are passed over.
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
    # Here, since only a run that begins so needs it.
    import scipy.sparse

    doing("latent semantic indexing of the pairs, where the table begins")

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
    shape = count, vocabulary.size
    counts_CV = scipy.sparse.csr_array((np.ones(len(ids), np.float32), (document, ids)), shape)
    counts_CV.data = 1 + np.log(counts_CV.data)
    grams_VG = _grams(vocabulary.pieces(range(vocabulary.size)))
    parts = [counts_CV[first : first + AT_ONCE] for first in range(0, count, AT_ONCE)]
    having_G = sum(np.diff((part @ grams_VG).tocsc().indptr) for part in parts)
    rarity_G = np.log((1 + count) / (1 + having_G)) + 1
    # Of one pair alone an n-gram tells nothing of others; in little text it is all there is.
    rarity_G[having_G < (2 if count > 500 else 1)] = 0
    grams_VG = (grams_VG @ scipy.sparse.diags_array(rarity_G)).tocsr().astype(np.float32)
    squares = [(part @ grams_VG).power(2).sum(axis=1) for part in parts]
    norms_C = np.sqrt(np.concatenate(squares))
    counts_CV = (scipy.sparse.diags_array(1 / np.maximum(norms_C, 1e-9)) @ counts_CV).tocsr()
    right_GD = _right_vectors(counts_CV.astype(np.float32), grams_VG, rank)
    rows_VD = grams_VG @ right_GD
    lengths_V1 = np.linalg.norm(rows_VD, axis=1, keepdims=True)
    rows_VD /= np.sqrt(np.maximum(lengths_V1, 1e-9))
    vectors[:, :rank] = rows_VD / np.sqrt(lengths_V1[lengths_V1 > 0]).mean()
    return vectors, count


def _grams(pieces: Sequence[str]) -> Any:
    """Sparse [pieces, n-grams]: how often each stands in a piece, in small letters."""
    import scipy.sparse

    columns: dict[str, int] = {}
    rows, places, counts = [], [], []
    for row, piece in enumerate(pieces):
        piece = piece.lower()
        wide = any(unicodedata.east_asian_width(one) in "WF" for one in piece)
        sizes = WIDE if wide else GRAMS
        found = [piece[i : i + n] for n in sizes for i in range(len(piece) - n + 1)]
        # Apart from an n-gram of the same characters, which longer pieces have.
        for gram, count in Counter([*found, f"={piece}"]).items():
            rows.append(row)
            places.append(columns.setdefault(gram, len(columns)))
            counts.append(count)
    shape = len(pieces), len(columns)
    return scipy.sparse.csr_array((np.float32(counts), (rows, places)), shape)


def _right_vectors(counts_CV: Any, grams_VG: Any, rank: int) -> np.ndarray:
    """float32 [G, rank]: the first right singular vectors of counts @ grams, a product that is not
    made, by random projections and two passes of subspace iteration (Halko et al. 2011, §4.4)."""
    from scipy.linalg import lu, qr

    def times(x_GR: np.ndarray) -> np.ndarray:
        return counts_CV @ (grams_VG @ x_GR)

    def transposed_times(y_CR: np.ndarray) -> np.ndarray:
        return grams_VG.T @ (counts_CV.T @ y_CR)

    width = min(rank + 10, counts_CV.shape[0], grams_VG.shape[1])
    x_GR = np.random.default_rng(0).normal(size=(grams_VG.shape[1], width)).astype(np.float32)
    for _ in range(2):
        y_CR, _ = lu(times(x_GR), permute_l=True)
        x_GR, _ = lu(transposed_times(y_CR), permute_l=True)
    basis_CR, _ = qr(times(x_GR), mode="economic")
    _, _, right_RG = np.linalg.svd(transposed_times(basis_CR).T, full_matrices=False)
    return right_RG[:rank].T


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
