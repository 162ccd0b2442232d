"""Rows of pairs to classify: translations, and sentences beside one that does not translate them.

Wrong partners at random are new in every batch and under every seed. A block is planned once, with
a partner for each row; the reader puts another in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from xlingjax.data.rows.left_out import LeftOut
from xlingjax.data.rows.partners import TRIES, Translations
from xlingjax.data.rows.plan import Rows, opened_sides, plan_rows
from xlingjax.data.store.tokenise import Records, Tokens


def paraphrase_rows(
    records: Records,
    length: int,
    *,
    max_pieces: int = 100,
    reset_positions: bool = True,
    negatives: int = 1,
) -> Rows:
    """Rows of one pair each, half of them translations (label 1) and half not (label 0): `</s> x
    </s> </s> y </s>`. Row 2e and row 2e + 1 have one x, the first of them with a wrong y.

    Each x is set beside `negatives` different y of other pairs, and as often beside its own. No
    wrong y stands anywhere in the records as a translation of x. These are the partners for which a
    reader draws others, different ones too, see `partners.redrawn`. Pairs with an empty side, a
    side of more than `max_pieces`, or more than `length` tokens in all are left out, and so are
    those without a wrong y.
    """
    starts, sizes, whole, readable = opened_sides(records, max_pieces)
    # With the two that open them.
    tokens = sizes[:, :2].sum(axis=1)
    once = np.flatnonzero(readable & (tokens <= length))
    lines = np.tile(once, negatives)
    starts = starts[lines]
    sizes = sizes[lines]
    shares = np.repeat(np.arange(negatives, dtype=np.int32), once.size)
    texts = np.column_stack([_equal_lines(records.sides)[lines], shares])
    uniform = np.random.default_rng(0).random((lines.size, TRIES))
    y = Translations(texts, sizes).drawn(np.arange(lines.size), uniform, length)
    x = np.flatnonzero(y >= 0)
    y = y[x]
    read = np.zeros_like(whole)
    read[lines[x]] = True
    rows = _rows(
        _wrong_and_right(starts, x, starts[y, 1]),
        _wrong_and_right(sizes, x, sizes[y, 1]),
        int(read.sum()),
        2 * negatives,
        reset_positions,
        LeftOut.of(whole, read, tokens - 2),
    )
    return replace(rows, texts=texts[x])


def mined_rows(
    records: Records,
    length: int,
    *,
    max_pieces: int = 100,
    reset_positions: bool = True,
) -> Rows:
    """As `paraphrase_rows`, of records with three sides: the third is the wrong y, in every epoch.

    Where it says what the translation says, the pair is left out.
    """
    starts, sizes, whole, readable = opened_sides(records, max_pieces)
    # With the two that open them.
    tokens = sizes[:, :2].sum(axis=1)
    keep = np.flatnonzero(readable)
    texts = _equal_lines(records.sides)
    differs = keep[texts[keep, 2] != texts[keep, 1]]
    starts = _wrong_and_right(starts, differs, starts[differs, 2])
    sizes = _wrong_and_right(sizes, differs, sizes[differs, 2])
    fits = (sizes.sum(axis=2) <= length).all(axis=1)
    # What says the same as the translation is no matter of length.
    read = readable.copy()
    read[differs[~fits]] = False
    left_out = LeftOut.of(whole, read, tokens - 2)
    return _rows(starts[fits], sizes[fits], keep.size, 2, reset_positions, left_out)


def _equal_lines(sides: Sequence[Tokens]) -> np.ndarray:
    """int32 [lines, sides]: equal numbers for equal lines, in the order in which they come."""
    lines = np.concatenate([side.numbers() for side in sides])
    _, first, equal = np.unique(lines, return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(first)).astype(np.int32)
    return place[equal].reshape(len(sides), -1).T


def _wrong_and_right(of_sides: np.ndarray, x: np.ndarray, of_wrong: np.ndarray) -> np.ndarray:
    """[E, (wrong, right), (x, y)] of values [lines, sides], for lines x [E] and what holds of their
    wrong partners [E]."""
    right = of_sides[x, :2]
    wrong = np.stack([right[:, 0], of_wrong], axis=1)
    return np.stack([wrong, right], axis=1)


def _rows(
    starts: np.ndarray,
    sizes: np.ndarray,
    sentences: int,
    passes: int,
    reset_positions: bool,
    left_out: LeftOut,
) -> Rows:
    """Rows of starts and sizes [E, (wrong, right), (x, y)]."""
    starts = starts.reshape(-1, 2)
    sizes = sizes.reshape(-1, 2)
    positions = np.zeros_like(sizes)
    if not reset_positions:
        positions[:, 1] = sizes[:, 0]
    rows = plan_rows(
        np.arange(len(starts)),
        sentences,
        passes,
        left_out=left_out,
        starts=starts,
        lengths=sizes,
        positions=positions,
        sides=np.arange(2),
        languages=np.arange(2),
        opens=np.array([True, False]),
    )
    return replace(rows, labels=np.tile([0, 1], len(starts) // 2))
