"""Planned rows, looked up block by block."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from xlingjax.data.features import TOKEN_FIELDS
from xlingjax.data.rows.draws import PARTNERS, Draws
from xlingjax.data.rows.paraphrases import TRIES, redrawn
from xlingjax.data.rows.plan import Rows
from xlingjax.data.rows.planned import BlockRows, TextRows, compact


class RowReader:
    """Looks rows up: row numbers [B] -> token fields [B, L], int32, and labels int32 [B] and
    example_weights float32 [B] where the plans have labels. A negative row number gives a padded
    row.

    Rows are numbered through all texts, and in each through its blocks. languages: of each text the
    ids of its languages. Blocks are opened with the first row that is read of them.
    """

    def __init__(
        self,
        texts: Sequence[TextRows],
        languages: Sequence[Sequence[int]],
        length: int,
        *,
        pad_id: int,
        bos_id: int,
    ):
        blocks = []
        for text, table in zip(texts, languages, strict=True):
            for number in range(text.counts.size):
                block = _Block(
                    functools.partial(text.block, number),
                    functools.partial(text.ids, number),
                    table,
                )
                blocks.append(block)
        counts = np.concatenate([text.counts for text in texts])
        labelled = any(text.labelled for text in texts)
        self._take(blocks, counts, labelled, length, pad_id, bos_id)

    @classmethod
    def of_arrays(
        cls,
        ids: np.ndarray,
        rows: Rows,
        languages: Sequence[int],
        length: int,
        *,
        pad_id: int,
        bos_id: int,
    ) -> RowReader:
        """Of one plan over one array of ids, both in memory."""
        reader = cls.__new__(cls)
        block = _Block(lambda: compact(rows, [1], length), lambda side: ids, languages)
        labelled = rows.labels is not None
        reader._take([block], np.array([rows.count]), labelled, length, pad_id, bos_id)
        return reader

    def _take(
        self,
        blocks: Sequence[_Block],
        counts: np.ndarray,
        labelled: bool,
        length: int,
        pad_id: int,
        bos_id: int,
    ) -> None:
        self._blocks = blocks
        self._ends = np.cumsum(counts)
        self.length = length
        self._pad_id = pad_id
        self._bos_id = bos_id
        self.names = TOKEN_FIELDS
        if labelled:
            self.names = (*TOKEN_FIELDS, "labels", "example_weights")

    def __call__(
        self,
        rows: np.ndarray,
        draws: Draws | None = None,
        places: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """draws: of the wrong partners of rows that have such (`data.paraphrases`), of which those
        at `places` [B] are these rows' (default: all in order); None: those that they were planned
        with."""
        if places is None:
            places = np.arange(rows.size)
        real = np.flatnonzero(rows >= 0)
        block_of_row = np.searchsorted(self._ends, rows[real], side="right")
        fields = self._empty(rows.size)
        # Block by block, and then written at once.
        order = np.argsort(block_of_row, kind="stable")
        which = real[order]
        parts = []
        begin = 0
        numbers, counts = np.unique(block_of_row, return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            first = 0
            if number:
                first = self._ends[number - 1]
            of_block = which[begin : begin + count]
            block = self._blocks[number]
            parts.append(block.read(rows[of_block] - first, places[of_block], draws, self.length))
            begin += count
        if parts:
            self._fill(fields, which, _joined(parts))
        return fields

    def _empty(self, count: int) -> dict[str, np.ndarray]:
        fields = {}
        for name in TOKEN_FIELDS:
            fields[name] = np.zeros((count, self.length), np.int32)
        fields["input_ids"].fill(self._pad_id)
        if "labels" in self.names:
            # An empty row has a label like any other, and a weight of 0.
            fields["labels"] = np.zeros(count, np.int32)
            fields["example_weights"] = np.zeros(count, np.float32)
        return fields

    def _fill(self, fields: dict[str, np.ndarray], which: np.ndarray, read: _Read) -> None:
        """Writes rows that were read to rows `which` of the fields."""
        if read.labels is not None:
            fields["labels"][which] = read.labels
            fields["example_weights"][which] = 1.0
        slices = read.slices
        counts = read.counts
        lengths = slices["lengths"].astype(np.int64)
        tokens_before = np.concatenate([[0], np.cumsum(lengths)])
        # Slices stand one behind the other in their row.
        ends_of_rows = np.cumsum(counts)
        row_begins = np.repeat(tokens_before[ends_of_rows - counts], counts)
        columns = tokens_before[:-1] - row_begins
        places = np.repeat(which, counts) * self.length + columns
        flat = _ranges(places, lengths)
        within = np.arange(lengths.sum()) - np.repeat(tokens_before[:-1], lengths)
        opens = (slices["opens"] > 0) & (lengths > 0)
        read.ids[tokens_before[:-1][opens]] = self._bos_id
        fields["input_ids"].reshape(-1)[flat] = read.ids
        of_slice = {
            "position_ids": slices["positions"],
            "language_ids": read.languages,
            "pack_ids": slices["packs"],
            "sides": slices["sides"],
        }
        for name, values in of_slice.items():
            of_token = np.repeat(values.astype(np.int32), lengths)
            if name == "position_ids":
                of_token += within.astype(np.int32)
            fields[name].reshape(-1)[flat] = of_token


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start + 1 ... of every start, one behind the other, int64 [sum of lengths]."""
    ends = np.cumsum(lengths)
    if not ends.size:
        return np.zeros(0, np.int64)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1])


@dataclasses.dataclass(frozen=True)
class _Read:
    """Rows that were read. counts: [rows], the slices of each. slices: as `BlockRows.slices`.
    languages: [slices], ids. ids: int32 [tokens], those of the slices one behind the other. labels:
    [rows]."""

    counts: np.ndarray
    slices: np.ndarray
    languages: np.ndarray
    ids: np.ndarray
    labels: np.ndarray | None


def _joined(parts: Sequence[_Read]) -> _Read:
    if len(parts) == 1:
        return parts[0]
    values = {}
    for field in dataclasses.fields(_Read):
        arrays = [getattr(part, field.name) for part in parts]
        values[field.name] = None
        if arrays[0] is not None:
            values[field.name] = np.concatenate(arrays)
    return _Read(**values)


class _Block:
    """What the reader needs of a block: its plan, the ids of its sides, its language ids."""

    def __init__(
        self,
        plan: Callable[[], BlockRows],
        ids: Callable[[int], np.ndarray],
        languages: Sequence[int],
    ):
        self._plan = plan
        self._ids = ids
        self._languages = np.asarray(languages, np.int32)

    def read(self, rows: np.ndarray, places: np.ndarray, draws: Draws | None, length: int) -> _Read:
        """Some of its rows, of at most `length` tokens. places: where they stand in the batch that
        the draws of wrong partners are for; draws None: as they were planned."""
        plan = self._plan()
        first = plan.splits[rows]
        counts = plan.splits[rows + 1] - first
        slices = plan.slices[_ranges(first, counts)]
        if plan.texts is not None and draws is not None:
            uniform = draws.uniform(PARTNERS, TRIES)[places]
            slices = redrawn(slices, rows, plan.slices, plan.translations, uniform, length)
        labels = None
        if plan.labels is not None:
            labels = plan.labels[rows]
        return _Read(
            counts, slices, self._languages[slices["languages"]], self._ids_of(slices), labels
        )

    def _ids_of(self, slices: np.ndarray) -> np.ndarray:
        """[tokens]: the ids of the slices one behind the other."""
        lengths = slices["lengths"].astype(np.int64)
        starts = slices["start"].astype(np.int64)
        sides = slices["text"]
        if not sides.size:
            return np.empty(0, np.int32)
        if (sides == sides[0]).all():
            ids = self._ids(int(sides[0]))
            return ids[_ranges(starts, lengths)].astype(np.int32)
        tokens_before = np.cumsum(lengths) - lengths
        found = np.empty(lengths.sum(), np.int32)
        for side in np.unique(sides).tolist():
            here = sides == side
            target = _ranges(tokens_before[here], lengths[here])
            ids = self._ids(side)
            found[target] = ids[_ranges(starts[here], lengths[here])]
        return found
