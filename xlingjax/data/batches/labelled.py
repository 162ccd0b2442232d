"""Shuffled batches of labelled rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.batches.loader import ENDLESS, BatchSource, NumberedSource
from xlingjax.data.features import FIELDS, Batch
from xlingjax.data.row_lengths import padded_length
from xlingjax.data.rows.draws import seed_of

WINDOW = 50  # of batches whose rows are sorted by length, as many as in `group_by_length`
PREFETCH = 2


@dataclass(frozen=True)
class NamedPart:
    """A part in a source. name: by which its rows are drawn; rows: a `preprocessors.parts.Rows`;
    language_ids: of the texts of its rows."""

    name: str
    rows: Any
    language_ids: tuple[int, ...]


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
    alone reads what translate-train-all reads without the other languages.

    by_length: rows of `WINDOW` batches (of a small set fewer) are sorted by length, cut into
    batches, and these shuffled; a batch is padded to one of `row_lengths(length)`.
    """
    batches = _Batches(parts, batch_size, length, seed, by_length)
    first = batches.take(np.zeros(1, np.int64))
    return NumberedSource(
        batches,
        shapes={name: (batch_size, *values.shape[1:]) for name, values in first.items()},
        languages=languages,
        identity=identity
        | {
            "examples": batches.count,
            "batch_size": batch_size,
            "seed": seed,
            "order": "by length" if by_length else "by part",
        },
        prefetch=PREFETCH,
    )


class _Batches:
    def __init__(
        self, parts: Sequence[NamedPart], batch: int, length: int, seed: int, by_length: bool
    ):
        self._parts = parts
        self._begins = np.cumsum([0, *(len(part.rows) for part in parts)])
        self.count = int(self._begins[-1])
        self._batch = batch
        self._length = length
        self._seed = seed
        # Of a small set, too, batches are of other rows in each epoch.
        self._window = min(max(self.count // (4 * batch), 1), WINDOW)
        self._sizes: np.ndarray | None = None
        if by_length:
            self._sizes = np.concatenate([part.rows.sizes for part in parts])
        self._epoch: tuple[int, np.ndarray] = (-1, self._begins)

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, step: int) -> Batch:
        if self._sizes is None:
            return self.take(self._drawn(step * self._batch, (step + 1) * self._batch))
        window, place = divmod(step, self._window)
        size = self._window * self._batch
        rows = self._drawn(window * size, (window + 1) * size)
        by_length = np.argsort(self._sizes[rows], kind="stable")
        turn = np.random.default_rng((self._seed, window)).permutation(self._window)[place]
        rows = rows[by_length[turn * self._batch : (turn + 1) * self._batch]]
        return self._cut(self.take(rows))

    def take(self, chosen: np.ndarray) -> Batch:
        """Arrays [n, ...] of the rows of these numbers."""
        part_of = np.searchsorted(self._begins, chosen, side="right") - 1
        made: Batch = {}
        for number in np.unique(part_of):
            where = np.flatnonzero(part_of == number)
            part = self._parts[number]
            found = part.rows.take(chosen[where] - self._begins[number], part.language_ids)
            for name, values in found.items():
                if name not in made:
                    shape = (len(chosen), *values.shape[1:])
                    made[name] = np.empty(shape, FIELDS[name].dtype)
                made[name][where] = values
        return made

    def _cut(self, rows: Batch) -> Batch:
        """The rows without the padding that all of their texts have."""
        columns = rows["pack_ids"].reshape(-1, self._length)
        padded = padded_length(int(np.count_nonzero(columns, axis=1).max()), self._length)
        count = len(rows["pack_ids"])
        cut = {}
        for name, values in rows.items():
            if values.ndim > 1:
                values = values.reshape(-1, self._length)[:, :padded].reshape(count, -1)
            elif name.endswith("_positions"):
                # A column of the second text moves with its begin.
                text, column = np.divmod(values, self._length)
                values = text * padded + column
            cut[name] = values
        return cut

    def _drawn(self, begin: int, end: int) -> np.ndarray:
        """Of all rows of all epochs, those from `begin` to `end`."""
        found = []
        while begin < end:
            epoch, offset = divmod(begin, self.count)
            taken = min(end - begin, self.count - offset)
            found.append(self._of_epoch(epoch)[offset : offset + taken])
            begin += taken
        return np.concatenate(found)

    def _of_epoch(self, epoch: int) -> np.ndarray:
        # One epoch at a time: no batch reaches back.
        known, order = self._epoch
        if known != epoch:
            numbers = []
            for part in self._parts:
                # A number a row, no permutation: parts can be added without reordering others.
                rng = np.random.default_rng((self._seed, epoch, seed_of(part.name)))
                numbers.append(rng.random(len(part.rows)))
            order = np.argsort(np.concatenate(numbers), kind="stable")
            self._epoch = (epoch, order)
        return order
