"""Sources of shuffled batches of stored rows, padded to the task's length or to their own."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.batches.loader import BatchSource
from xlingjax.data.batches.source import NumberedSource, Repeated
from xlingjax.data.features import FIELDS
from xlingjax.data.row_lengths import padded_length
from xlingjax.data.row_store import StoredPart, storing
from xlingjax.data.store.entries import cache_root
from xlingjax.runtime.checked_file import Damaged, read_index, write_index

_ENDLESS = 2**62  # batches
WINDOW = 50
"""Batches whose rows are sorted by length at a time, as many as transformers' `group_by_length`
takes."""
_HASHED_ROWS = 1 << 16
"""Rows that are padded at a time to be hashed."""


@dataclass(frozen=True)
class NamedPart:
    """A part in a source."""

    name: str
    """By which its rows are drawn."""
    part: StoredPart
    language_ids: tuple[int, ...]
    """Of the texts of its rows."""


def shuffled_batches(
    parts: Sequence[NamedPart],
    batch_size: int,
    length: int,
    *,
    languages: Sequence[str],
    seed: int,
    identity: dict[str, Any],
    by_length: bool = False,
) -> BatchSource:
    """An endless source over the rows of all `parts`: every epoch is a fresh permutation of all
    rows, and batches run on over its end.

    Epoch e orders rows by a number drawn for each from (seed, e, the name of its part, its place
    there), so that the rows of a part come in one order whatever other parts there are: English
    alone reads what translate-train-all reads without the other languages. The position is one
    number, so that a restored source goes on exactly.

    by_length: within an epoch, rows of `WINDOW` batches (of a small set fewer) are sorted by
    length, cut into batches, and these shuffled; a batch is padded to one of `row_lengths(length)`.
    A batch that holds the end of an epoch is as it is drawn.
    """
    rows = _Rows(parts, length)
    order = _Order(parts, batch_size, seed)
    if by_length:
        order = _ByLength(parts, batch_size, seed, rows.longest)

    def read(index: int) -> dict[str, np.ndarray]:
        chosen = order.batch(index)
        padded = length
        if by_length:
            padded = padded_length(int(rows.longest[chosen].max()), length)
        return rows.take(chosen, padded)

    identity = identity | {
        "examples": len(rows),
        "sha256": _hash_of(parts, rows, by_length),
        "batch_size": batch_size,
        "seed": seed,
        "order": "by length" if by_length else "by part",
    }
    return NumberedSource(
        Repeated(read, _ENDLESS, None),
        languages=languages,
        identity=identity,
        shapes=rows.shapes(batch_size),
    )


class _Rows:
    """The rows of all parts, numbered one after the other."""

    def __init__(self, parts: Sequence[NamedPart], length: int):
        self._parts = parts
        self._length = length
        counts = [len(part.part.rows) for part in parts]
        self._begins = np.cumsum([0, *counts])
        self.longest = np.concatenate([one.part.rows.longest for one in parts])

    def __len__(self) -> int:
        return int(self._begins[-1])

    def take(self, chosen: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Arrays [n, ...] of the rows of these numbers, texts padded to `length`."""
        part_of = np.searchsorted(self._begins, chosen, side="right") - 1
        made: dict[str, np.ndarray] = {}
        for number in np.unique(part_of):
            where = np.flatnonzero(part_of == number)
            one = self._parts[number]
            found = one.part.rows.take(
                chosen[where] - self._begins[number], length, one.language_ids
            )
            for name, values in found.items():
                if name not in made:
                    shape = (len(chosen), *values.shape[1:])
                    made[name] = np.empty(shape, values.dtype)
                made[name][where] = values
        return made

    def shapes(self, batch_size: int) -> dict[str, tuple[int, ...]]:
        """Of a batch of the greatest length."""
        first = self.take(np.zeros(1, np.int64), self._length)
        return {name: (batch_size, *values.shape[1:]) for name, values in first.items()}

    def padded_hash(self) -> str:
        """`batch_hash` of all rows, which need not be in memory for it."""
        digest = hashlib.sha256()
        for name, shape in sorted(self.shapes(len(self)).items()):
            digest.update(f"{name} {FIELDS[name].dtype.str} {shape}\n".encode())
            for begin in range(0, len(self), _HASHED_ROWS):
                end = min(begin + _HASHED_ROWS, len(self))
                found = self.take(np.arange(begin, end), self._length)
                digest.update(found[name].tobytes())
        return digest.hexdigest()


class _Order:
    """Which rows stand in which batch."""

    def __init__(self, parts: Sequence[NamedPart], batch_size: int, seed: int):
        self._batch_size = batch_size
        self._seed = seed
        self._drawn = []
        for one in parts:
            # NumPy is seeded by numbers: the bytes of the name.
            self._drawn.append((list(one.name.encode()), len(one.part.rows)))
        self._rows = sum(count for _, count in self._drawn)
        self._epoch = -1
        self._order = np.zeros(0, np.int64)

    def batch(self, index: int) -> np.ndarray:
        """int64[batch_size]: the numbers of its rows."""
        begin = index * self._batch_size
        return self._drawn_rows(begin, begin + self._batch_size)

    def _drawn_rows(self, begin: int, end: int) -> np.ndarray:
        """Of all rows of all epochs, those from `begin` to `end`."""
        found = []
        while begin < end:
            epoch, offset = divmod(begin, self._rows)
            taken = min(end - begin, self._rows - offset)
            found.append(self._of_epoch(epoch)[offset : offset + taken])
            begin += taken
        return np.concatenate(found)

    def _of_epoch(self, epoch: int) -> np.ndarray:
        # One epoch at a time: no batch reaches back.
        if epoch != self._epoch:
            numbers = []
            for name, count in self._drawn:
                rng = np.random.default_rng((self._seed, epoch, *name))
                # A number for each row, and not a permutation: parts can be added without changing
                # the order within one.
                numbers.append(rng.random(count))
            self._order = np.argsort(np.concatenate(numbers), kind="stable")
            self._epoch = epoch
        return self._order


class _ByLength(_Order):
    """The same, rows of one length together."""

    def __init__(self, parts: Sequence[NamedPart], batch_size: int, seed: int, longest: np.ndarray):
        super().__init__(parts, batch_size, seed)
        self._longest = longest
        # Of a small set, too, batches are of other rows in each epoch.
        self._window = min(max(self._rows // (4 * batch_size), 1), WINDOW)

    def batch(self, index: int) -> np.ndarray:
        size = self._batch_size
        epoch = index * size // self._rows
        # The batches that lie within the epoch.
        first = -(-epoch * self._rows // size)
        end = (epoch + 1) * self._rows // size
        if index >= end:
            return super().batch(index)
        window, place = divmod(index - first, self._window)
        begin = first + window * self._window
        count = min(self._window, end - begin)
        rows = self._drawn_rows(begin * size, (begin + count) * size)
        by_length = np.argsort(self._longest[rows], kind="stable")
        # A name's bytes, which the rows are drawn by, are below 256.
        rng = np.random.default_rng((self._seed, epoch, 256 + window))
        turn = rng.permutation(count)[place]
        return rows[by_length[turn * size : (turn + 1) * size]]


def _hash_of(parts: Sequence[NamedPart], rows: _Rows, by_length: bool) -> str:
    """sha256 (hex) of all rows."""
    of_parts = [(one.part.digest, one.language_ids) for one in parts]
    digest = hashlib.sha256(repr(of_parts).encode()).hexdigest()
    if by_length:
        return digest
    # Of the padded rows, as it always was: a run that was begun so goes on.
    path = cache_root() / "task_rows" / f"{digest[:32]}.padded.json"
    # Not there, or damaged: a run that went by it would be another run.
    with contextlib.suppress(FileNotFoundError, Damaged):
        return str(read_index(path)["sha256"])
    made = rows.padded_hash()
    # Many rows padded are many times their tokens: it is remembered.
    with storing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_index(path, {"sha256": made})
    return made
