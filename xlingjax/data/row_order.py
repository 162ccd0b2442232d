"""In which order an epoch reads the rows of a text: a function of (seed, text, epoch, place), in
NumPy.

Rows of a few blocks are in a random order among themselves. Of a text of more blocks, the blocks
are put in a random order, and a few at a time give their rows in one: what is read at a time is
then a few files, and not all of them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np

BLOCKS_TOGETHER = 4
"""Blocks whose rows are mixed."""

_ROUND = 0x1E3779B97F4A7C15
"""Between the keys of two rounds: far apart, so that no round repeats another shifted."""
_FIRST = np.int64(-7046029254386353131)
_SECOND = np.int64(-4417276706812531889)
"""Odd, so that a product loses no bit; written as signed numbers, since these are int64."""


def _scramble(x: np.ndarray, key: np.ndarray) -> np.ndarray:
    """A hash of int64 [B] (multiplication wraps around; the shifts carry the high bits down)."""
    x = (x + key) * _FIRST
    x = (x ^ (x >> 32)) * _SECOND
    return x ^ (x >> 29)


def permute(
    index: np.ndarray,
    size: np.ndarray,
    key: np.ndarray,
) -> np.ndarray:
    """A random-looking permutation of 0 .. size-1 for every key, without a table. All int64 [B];
    index < size.

    A four-round Feistel network on the next even number of bits, applied until the result falls
    below `size`.
    """
    half = np.ones_like(size)
    while (few := (np.int64(1) << (2 * half)) < size).any():
        half += few
    # Two halves of equal width, so the network permutes at most four times `size` numbers.
    low_bits = (np.int64(1) << half) - 1
    keys = []
    for number in range(4):
        keys.append(key + np.int64(_wrapped(number * _ROUND)))

    def network(x: np.ndarray) -> np.ndarray:
        left = x >> half
        right = x & low_bits
        for of_round in keys:
            changed = left ^ (_scramble(right, of_round) & low_bits)
            left = right
            right = changed
        return (left << half) | right

    result = network(index)
    # What falls outside goes through again until it falls inside: that keeps it a permutation.
    while (outside := result >= size).any():
        result = np.where(outside, network(result), result)
    return result


def _wrapped(number: int) -> int:
    """A whole number as int64 has it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass(frozen=True)
class RowOrder:
    """The order of the rows of several texts.

    counts: of each text, int64 [blocks], the rows of each block. seed: of the first key. shuffle:
    False reads rows as they stand.
    """

    counts: tuple[np.ndarray, ...]
    seed: int
    shuffle: bool
    sizes: np.ndarray = field(init=False)
    first_row: np.ndarray = field(init=False)

    def __post_init__(self):
        sizes = np.array([int(of_text.sum()) for of_text in self.counts])
        # The class is frozen, and these follow from what it was given.
        object.__setattr__(self, "sizes", sizes.astype(np.int64))
        first_row = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        object.__setattr__(self, "first_row", first_row)

    def rows(self, text: np.ndarray, place: np.ndarray) -> np.ndarray:
        """int64 [B]: the number, among the rows of all texts, of the `place`-th row that is drawn
        of each `text`."""
        size = self.sizes[text]
        index = place % size
        if not self.shuffle:
            return self.first_row[text] + index
        epoch = place // size
        key = self._key(text, epoch)
        many = self._of_many_blocks[text]
        shuffled = np.empty_like(index)
        few = ~many
        if few.any():
            shuffled[few] = permute(index[few], size[few], key[few])
        if many.any():
            # A text and an epoch at a time: each has its own order of blocks.
            for one in np.unique(np.stack([text, epoch])[:, many], axis=1).T:
                same = many & (text == one[0]) & (epoch == one[1])
                shuffled[same] = self._in_blocks(*one.tolist(), index[same])
        return self.first_row[text] + shuffled

    @functools.cached_property
    def _of_many_blocks(self) -> np.ndarray:
        blocks = np.array([of_text.size for of_text in self.counts])
        return blocks > BLOCKS_TOGETHER

    def _key(self, text: np.ndarray, epoch: np.ndarray) -> np.ndarray:
        """A key per text and epoch. The factors keep keys of neighbouring texts and epochs apart;
        they stay as they are, or runs that go on would read their rows in another order."""
        of_text = np.int64(_wrapped(self.seed * 7919)) + text
        return of_text * np.int64(1_000_003) + epoch

    def _in_blocks(
        self,
        text: int,
        epoch: int,
        index: np.ndarray,
    ) -> np.ndarray:
        """The rows of one text of many blocks, in one epoch."""
        blocks, ends, key = self._blocks(text, epoch)
        groups = ends[BLOCKS_TOGETHER - 1 :: BLOCKS_TOGETHER]
        group = np.searchsorted(groups, index, side="right")
        begins = np.concatenate([[0], groups])[group]
        size = np.concatenate([groups, ends[-1:]])[group] - begins
        within = permute(index - begins, size, key + 1 + group)
        # In the order of this epoch; then where the block stands in the text.
        place = begins + within
        slot = np.searchsorted(ends, place, side="right")
        before = np.concatenate([[0], ends])[slot]
        first = np.cumsum(self.counts[text]) - self.counts[text]
        return first[blocks[slot]] + place - before

    @functools.lru_cache(maxsize=256)  # noqa: B019 - a source keeps one for as long as it lives
    def _blocks(self, text: int, epoch: int) -> tuple:
        """(the blocks of a text in the order of an epoch, where each ends there, the key)."""
        count = self.counts[text].size
        numbers = np.arange(count)
        key = self._key(np.array([text]), np.array([epoch]))
        blocks = permute(
            numbers,
            np.full(count, count, np.int64),
            np.repeat(key, count),
        )
        return blocks, np.cumsum(self.counts[text][blocks]), key[0]

    def __hash__(self) -> int:
        return id(self)
