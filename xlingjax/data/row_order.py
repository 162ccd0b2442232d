"""In which order an epoch reads the rows of a text: a function of (seed, text, lane, epoch, place),
in NumPy.

Rows of a few blocks are in a random order among themselves. Of a text of more blocks, the blocks
are put in a random order, and a few at a time give their rows in one: what is read at a time is
then a few files, and not all of them.

Text of many blocks is read in lanes: its rows are cut in equal ranges, and each range feeds the
same part of every batch. A host that makes one part of the rows then opens one part of the files.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import numpy as np

BLOCKS_TOGETHER = 4
"""Blocks whose rows are mixed."""
LANES = 8
"""Most lanes: of a text of so many blocks or more. A number of its own, since the stream of a run
must not depend on how many hosts read it."""

_ROUND = 0x1E3779B97F4A7C15
"""Between the keys of two rounds: far apart, so that no round repeats another shifted."""
_LANE = 0x5851F42D4C957F2D
"""Between the keys of two lanes, likewise."""
_FIRST = np.int64(-7046029254386353131)
_SECOND = np.int64(-4417276706812531889)
"""Odd, so that a product loses no bit; written as signed numbers, since these are int64."""


def _scramble(x: np.ndarray, key: np.ndarray) -> np.ndarray:
    """A hash of int64 [B] (multiplication wraps around; the shifts carry the high bits down)."""
    x = (x + key) * _FIRST
    x = (x ^ (x >> 32)) * _SECOND
    return x ^ (x >> 29)


def permute(index: np.ndarray, size: np.ndarray, key: np.ndarray) -> np.ndarray:
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
        keys.append(key + np.int64(wrapped(number * _ROUND)))

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


def epoch_key(seed: int, number: np.ndarray, epoch: np.ndarray) -> np.ndarray:
    """A key per text (or block, by its number) and epoch, all int64 [B]. The factors keep keys of
    neighbours apart; they stay as they are, or runs that go on would read their rows in another
    order."""
    of_text = np.int64(wrapped(seed * 7919)) + number
    return of_text * np.int64(1_000_003) + epoch


def wrapped(number: int) -> int:
    """A whole number as int64 has it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass(frozen=True)
class RowOrder:
    """The order of the rows of several texts.

    counts: of each text, int64 [blocks], the rows of each block. seed: of the first key. shuffle:
    False reads rows as they stand. batch: rows of a batch, of which each lane has an equal part.
    """

    counts: tuple[np.ndarray, ...]
    seed: int
    shuffle: bool
    batch: int = 1
    sizes: np.ndarray = field(init=False)
    first_row: np.ndarray = field(init=False)

    def __post_init__(self):
        sizes = np.array([int(of_text.sum()) for of_text in self.counts])
        # The class is frozen, and these follow from what it was given.
        object.__setattr__(self, "sizes", sizes.astype(np.int64))
        first_row = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        object.__setattr__(self, "first_row", first_row)

    @functools.cached_property
    def in_lanes(self) -> np.ndarray:
        """bool [texts]: those that are read in lanes."""
        blocks = np.array([of_text.size for of_text in self.counts])
        # A lane without a row would have none to give.
        enough = (blocks >= LANES) & (self.sizes >= LANES)
        return enough & self.shuffle

    @functools.cached_property
    def lanes(self) -> int:
        """How many the texts that are read in lanes have; 1 where there is none."""
        if not self.in_lanes.any():
            return 1
        return math.gcd(self.batch, LANES)

    def rows(self, text: np.ndarray, lane: np.ndarray, place: np.ndarray) -> np.ndarray:
        """int64 [B]: the number, among the rows of all texts, of the `place`-th row that is drawn
        of each `text`; of a text in lanes, the `place`-th of its `lane`."""
        size = self.sizes[text]
        if not self.shuffle:
            return self.first_row[text] + place % size
        size = self._lane_size(text, lane)
        lane = np.where(self.in_lanes[text], lane, 0)
        index = place % size
        epoch = place // size
        key = epoch_key(self.seed, text, epoch)
        many = self._of_many_blocks[text]
        shuffled = np.empty_like(index)
        few = ~many
        if few.any():
            shuffled[few] = permute(index[few], size[few], key[few])
        if many.any():
            shuffled[many] = self._in_blocks(text[many], lane[many], epoch[many], index[many])
        return self.first_row[text] + shuffled

    def epochs(self, text: np.ndarray, lane: np.ndarray, place: np.ndarray) -> np.ndarray:
        """int64 [B]: the epochs of their texts that the rows of `rows` are drawn in."""
        return place // self._lane_size(text, lane)

    def _lane_size(self, text: np.ndarray, lane: np.ndarray) -> np.ndarray:
        """int64 [B]: the rows of a lane; of a text that is not read in lanes, all."""
        lane = np.where(self.in_lanes[text], lane, 0)
        return self._lane_ends(text, lane + 1) - self._lane_ends(text, lane)

    @functools.cached_property
    def _of_many_blocks(self) -> np.ndarray:
        blocks = np.array([of_text.size for of_text in self.counts])
        return blocks > BLOCKS_TOGETHER

    def _lane_ends(self, text: np.ndarray, lane: np.ndarray) -> np.ndarray:
        """int64 [B]: the rows of a text that stand before a lane."""
        lanes = np.where(self.in_lanes[text], self.lanes, 1)
        # In equal parts, down to a row: every row is read as often as any other.
        return self.sizes[text] * lane // lanes

    def _in_blocks(
        self, text: np.ndarray, lane: np.ndarray, epoch: np.ndarray, index: np.ndarray
    ) -> np.ndarray:
        """The rows of texts of many blocks: the `index`-th of a lane in an epoch."""
        # A text, lane and epoch at a time: each has its own order of blocks.
        number = (epoch * len(self.counts) + text) * self.lanes + lane
        members = []
        for one in np.unique(number):
            same = np.flatnonzero(number == one)
            first = same[0]
            order = self._blocks(int(text[first]), int(lane[first]), int(epoch[first]))
            members.append((same, order))
        begin = np.empty_like(index)
        size = np.empty_like(index)
        key = np.empty_like(index)
        for same, order in members:
            group = order.group(index[same])
            begin[same] = order.begins[group]
            size[same] = order.sizes[group]
            key[same] = order.key + 1 + group
        # All at once: it takes as long for a few as for many.
        place = begin + permute(index - begin, size, key)
        rows = np.empty_like(index)
        for same, order in members:
            rows[same] = order.rows(place[same])
        return rows

    @functools.lru_cache(maxsize=1024)  # noqa: B019 - a source keeps one for as long as it lives
    def _blocks(self, text: int, lane: int, epoch: int) -> _BlockOrder:
        last = np.cumsum(self.counts[text])
        first = last - self.counts[text]
        together = BLOCKS_TOGETHER
        whole = np.ones(first.size, bool)
        if self.in_lanes[text]:
            # Lanes are mixed with each other in every batch.
            together = max(1, BLOCKS_TOGETHER // self.lanes)
            # A lane begins and ends within a block.
            begin, end = self._lane_ends(np.array([text, text]), np.array([lane, lane + 1]))
            first = np.clip(first, begin, end)
            last = np.clip(last, begin, end)
            whole = first < last
        first = first[whole]
        count = first.size
        key = epoch_key(self.seed, np.array([text]), np.array([epoch]))
        key += np.int64(wrapped(lane * _LANE))
        order = permute(np.arange(count), np.full(count, count, np.int64), np.repeat(key, count))
        first = first[order]
        ends = np.cumsum(last[whole][order] - first)
        return _BlockOrder(first, ends, together, key[0])

    def __hash__(self) -> int:
        return id(self)


class _BlockOrder:
    """The blocks of a lane in the order of an epoch.

    first: int64 [blocks], their first rows in the text. ends: where each ends in the epoch.
    together: how many are mixed. key: of the epoch.
    """

    def __init__(self, first: np.ndarray, ends: np.ndarray, together: int, key: np.int64):
        self.key = key
        self._ends = ends
        self._shift = first - np.concatenate([[0], ends[:-1]])
        # The last group may be of fewer blocks.
        self._group_ends = np.append(ends[together - 1 : -1 : together], ends[-1])
        self.begins = np.concatenate([[0], self._group_ends[:-1]])
        self.sizes = self._group_ends - self.begins

    def group(self, index: np.ndarray) -> np.ndarray:
        """The number of the blocks that are mixed where `index` stands in the epoch."""
        return np.searchsorted(self._group_ends, index, side="right")

    def rows(self, place: np.ndarray) -> np.ndarray:
        """The rows of the text that stand at `place` in the epoch before blocks are mixed."""
        return self._shift[np.searchsorted(self._ends, place, side="right")] + place
