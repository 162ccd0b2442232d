"""Which rows stand in which batch: a function of (seed, step), computed for a whole batch at once.

Grain's own `shuffle`, `mix` and `batch` say the same row by row, which takes longer than all that
is then done with a batch.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xlingjax.data.batches.loader import ENDLESS

BLOCKS_TOGETHER = 4
"""Blocks whose rows are mixed: what is read at a time is a few files of a text, not all of them."""
_UNIT = 1 << 40
"""Shares are counted in so many parts of one."""


class RowOrder:
    """The order in which a text gives its rows, epoch after epoch: the blocks of rows in a random
    order, the rows of `BLOCKS_TOGETHER` at a time in one.

    counts: rows of each block. shuffle: False reads rows as they stand.
    """

    def __init__(self, counts: Sequence[int], seed: int, shuffle: bool = True):
        self._counts = np.asarray(counts, np.int64)
        self._ends = np.cumsum(self._counts)
        self.size = int(self._ends[-1])
        self._seed = seed
        self._shuffle = shuffle
        # Caches of its own: an order lives as long as its source.
        self._blocks = functools.lru_cache(2)(self._blocks_of_epoch)
        self._window = functools.lru_cache(2)(self._rows_of_window)

    def rows(self, begin: int, end: int) -> np.ndarray:
        """int64 [end - begin]: the numbers in the text of the rows that it gives from place `begin`
        to `end`, counted through all epochs."""
        if not self._shuffle:
            return np.arange(begin, end) % self.size
        parts = []
        while begin < end:
            epoch, place = divmod(begin, self.size)
            _, window_ends = self._blocks(epoch)
            number = bisect.bisect_right(window_ends, place)
            first = window_ends[number - 1] if number else 0
            rows = self._window(epoch, number)[place - first : place - first + end - begin]
            parts.append(rows)
            begin += rows.size
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts)

    def _blocks_of_epoch(self, epoch: int) -> tuple[np.ndarray, list[int]]:
        """(the blocks in the order of an epoch, the places at which its windows end)."""
        order = np.random.default_rng((self._seed, epoch)).permutation(self._counts.size)
        ends = np.cumsum(self._counts[order])
        return order, [*ends[BLOCKS_TOGETHER - 1 : -1 : BLOCKS_TOGETHER].tolist(), int(ends[-1])]

    def _rows_of_window(self, epoch: int, number: int) -> np.ndarray:
        """int64: the rows of one window, in the order in which they are given."""
        order, _ = self._blocks(epoch)
        blocks = order[number * BLOCKS_TOGETHER : (number + 1) * BLOCKS_TOGETHER]
        rows = np.concatenate(
            [np.arange(self._ends[b] - self._counts[b], self._ends[b]) for b in blocks]
        )
        np.random.default_rng((self._seed, epoch, number)).shuffle(rows)
        return rows


class Mix:
    """Draws from several texts by their shares, in turns that hold the shares as exactly as whole
    numbers can: after any number of draws each text has had its share, to within a few."""

    def __init__(self, shares: Sequence[float]):
        # Of the draws that the texts before leave, each text takes its part. In whole numbers, so
        # that the same draws fall on a text wherever counting begins.
        parts = [round(share * _UNIT) for share in shares]
        left = sum(parts)
        self._taken = []
        for part in parts:
            self._taken.append((left - part, left))
            left -= part

    def before(self, draws: int) -> list[int]:
        """How many of the first `draws` draws fall on each text."""
        counts = []
        for rest, left in self._taken:
            passed = draws * rest // left if left else draws
            counts.append(draws - passed)
            draws = passed
        return counts


@dataclass(frozen=True)
class BatchOrder:
    """The rows of every batch, as a source that Grain reads by step.

    orders: of each text. same_language: a batch is of one text; else each text has its share of the
    rows of every batch. Rows are numbered through all texts.
    """

    orders: tuple[RowOrder, ...]
    mix: Mix
    batch: int
    same_language: bool

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, step: int) -> np.ndarray:
        """int64 [batch]."""
        draws, rows_of_draw = self.batch, 1
        if self.same_language:
            draws, rows_of_draw = 1, self.batch
        before = self.mix.before(step * draws)
        after = self.mix.before((step + 1) * draws)
        rows = []
        first_row = 0
        for order, begin, end in zip(self.orders, before, after, strict=True):
            if begin < end:
                rows.append(first_row + order.rows(begin * rows_of_draw, end * rows_of_draw))
            first_row += order.size
        return np.concatenate(rows)


class FiniteOrder:
    """The rows of a source that ends: each text `epochs` times, in order of the texts, the last
    batch filled up with -1; of one text to a batch, that of each text."""

    def __init__(
        self,
        sizes: Sequence[int],
        batch: int,
        same_language: bool,
        epochs: int,
        seed: int,
        shuffle: bool,
    ):
        """sizes: rows of each text."""
        firsts = np.cumsum([0, *sizes])
        spans = [(0, int(firsts[-1]))]
        if same_language:
            spans = list(zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True))
        batches = []
        for epoch in range(epochs):
            for first, last in spans:
                rows = np.arange(first, last)
                if shuffle:
                    np.random.default_rng((seed, epoch, first)).shuffle(rows)
                rows = np.pad(rows, (0, -rows.size % batch), constant_values=-1)
                batches.append(rows.reshape(-1, batch))
        self._batches = np.concatenate(batches)

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, step: int) -> np.ndarray:
        return self._batches[step]
