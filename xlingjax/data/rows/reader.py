"""The rows of a text: planned block by block, kept beside its tokens, and looked up.

Planning a block takes seconds, so a plan is written once per text, preprocessor, length and code of
the planners. What a run needs before its first batch, how many rows each block has, stands in an
index; the plans themselves are read with the first row of theirs.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import inspect
import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from xlingjax.data.features import TOKEN_FIELDS
from xlingjax.data.rows.draws import PARTNERS, Draws
from xlingjax.data.rows.paraphrases import TRIES, Translations, redrawn
from xlingjax.data.rows.plan import SLICES, LeftOut, Preprocessor, Rows
from xlingjax.data.store.entries import Entry, Writer, cache_root, get, name_of
from xlingjax.data.store.tokenise import BlockText, Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

# Part of every name: another form of plan leaves the old files alone.
FORMAT = 5
FEW_LINES = 4096
"""Text of fewer lines is planned at every start: that is faster than looking for its plan."""
OPEN_BYTES = 1 << 30
OPEN_FILES = 256
"""Of plans and ids that all sources of a process have open at a time. They are maps of files, each
of which holds a file open; what is closed is still in the system's cache, and read again from
there."""


@dataclasses.dataclass(frozen=True)
class BlockRows:
    """The rows of one block: row r has slices splits[r] .. splits[r+1]-1, left to right.

    slices: a structured array [S]: `text`, the side of the text that a slice lies in; `start`, its
    first token there behind a first `</s>`; and `rows.SLICES`. labels, texts: as of `Rows`.
    """

    splits: np.ndarray
    slices: np.ndarray
    labels: np.ndarray | None = None
    texts: np.ndarray | None = None

    @property
    def count(self) -> int:
        return self.splits.size - 1

    def arrays(self) -> dict[str, np.ndarray]:
        """Those that it has, by name."""
        return {
            name: array for name, array in self.__dict__.items() if isinstance(array, np.ndarray)
        }

    @property
    def nbytes(self) -> int:
        # With what `translations` makes of the texts.
        of_texts = 0 if self.texts is None else 2 * self.texts.nbytes
        return self.splits.nbytes + self.slices.nbytes + of_texts

    @functools.cached_property
    def translations(self) -> Translations:
        """Of rows whose wrong partners are drawn: row 2e + 1 is translation e."""
        assert self.texts is not None
        # Two slices a row.
        sizes = self.slices["lengths"].reshape(-1, 4)[:, 2:]
        return Translations(self.texts, sizes)


@dataclasses.dataclass(frozen=True)
class TextRows:
    """The rows of a text. counts: int64 [blocks], rows of each block. sizes: sentences, and the
    tokens and rows that they fill when each is read once, of all of it; left_out: likewise."""

    text: BlockText
    plan: RowPlan
    counts: np.ndarray
    sizes: dict[str, float]
    left_out: LeftOut
    arrays: tuple[str, ...]
    """Of `BlockRows`, those that its blocks have."""
    blocks: Entry | Sequence[BlockRows]
    """In the store, or in memory."""

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    @property
    def labelled(self) -> bool:
        return "labels" in self.arrays

    def block(self, number: int) -> BlockRows:
        """The rows of one block."""
        if not isinstance(self.blocks, Entry):
            return self.blocks[number]
        array = self.blocks.array
        return OPENED.get(
            (self.blocks.folder, number),
            lambda: BlockRows(**{name: array(f"{number:05}.{name}") for name in self.arrays}),
        )

    def ids(self, number: int, side: int) -> np.ndarray:
        """As `BlockText.ids`."""
        shard = self.text.blocks[number].shards[side]
        return OPENED.get((cache_root(), shard), functools.partial(self.text.ids, number, side))


@dataclasses.dataclass(frozen=True)
class RowPlan:
    """How rows of `length` tokens are planned over text."""

    preprocessor: Preprocessor
    length: int
    vocabulary: Vocabulary

    def open(self, text: BlockText) -> TextRows:
        """The rows of a text, planned now or found in the store."""
        blocks: Any
        if text.lines < FEW_LINES:
            blocks = []
            facts = self._planned(text, lambda number, rows: blocks.append(rows))
        else:
            blocks = get("rows", self._name(text), functools.partial(self._make, text))
            facts = blocks.facts
        return TextRows(
            text,
            self,
            np.array(facts["counts"], np.int64),
            facts["sizes"],
            LeftOut(*facts["left_out"]),
            tuple(facts["arrays"]),
            blocks,
        )

    def _make(self, text: BlockText, writer: Writer) -> None:
        def write(number: int, rows: BlockRows) -> None:
            for name, array in rows.arrays().items():
                writer.array(f"{number:05}.{name}", array)

        writer.facts = self._planned(text, write)

    def _name(self, text: BlockText) -> str:
        return name_of(
            FORMAT,
            text.key,
            # Which direction is read goes by the names of the languages.
            text.languages,
            self.preprocessor.name,
            options(self.preprocessor),
            self.length,
            self.vocabulary.sha256,
            np.__version__,
            code_hash(type(self.preprocessor)),
        )

    def _planned(self, text: BlockText, take: Callable[[int, BlockRows], None]) -> dict[str, Any]:
        """Plans the rows of each block, which `take` gets; what is known of all of them."""
        counts = []
        totals = np.zeros(3, np.int64)
        passes = 1
        left_out = LeftOut()
        arrays: list[str] = []
        for number in range(len(text.blocks)):
            rows, plan = self.of_block(text, number)
            take(number, rows)
            counts.append(rows.count)
            tokens = int(plan.lengths.sum(dtype=np.int64))
            totals += [plan.sentences, tokens, plan.count]
            left_out += plan.left_out
            # One number for all blocks: it goes by the options.
            passes = plan.passes
            arrays = [*rows.arrays()]
        sentences, tokens, of_text = totals.tolist()
        sizes = {"sentences": sentences, "tokens": tokens / passes, "rows": of_text / passes}
        return {
            "counts": counts,
            "sizes": sizes,
            "left_out": dataclasses.astuple(left_out),
            "arrays": arrays,
        }

    def of_block(self, text: BlockText, number: int) -> tuple[BlockRows, Rows]:
        records = text.of_block(number)
        bases = side_bases(records)
        rows = self.preprocessor.rows(records, bases, self.length, self.vocabulary)
        return compact(rows, bases, self.preprocessor.columns(self.length)), rows


def side_bases(records: Records) -> list[int]:
    """Where each side begins in an array of all ids, of each side behind a `</s>` of its own: the
    slice that begins a token early is `</s> x </s>` for the first sentence of each side."""
    bases = []
    begin = 1
    for side in records.sides:
        bases.append(begin)
        begin += side.ids.size + 1
    return bases


def compact(rows: Rows, bases: Sequence[int], columns: int) -> BlockRows:
    """A plan over the sides that begin at `bases`, in as few bytes as its numbers need."""
    numbers: Any = np.uint16 if columns < 1 << 16 else np.uint32
    kinds = {
        "text": np.uint8,
        "start": np.uint32,
        "lengths": numbers,
        "positions": numbers,
        "packs": numbers,
        "sides": np.uint8,
        "languages": np.uint8,
        "opens": np.uint8,
    }
    slices = np.empty(rows.starts.size, list(kinds.items()))
    # One before its base lies the `</s>` of the side.
    firsts = np.array(bases) - 1
    text = np.searchsorted(firsts, rows.starts, side="right") - 1
    slices["text"] = text
    slices["start"] = rows.starts - firsts[text]
    for name in SLICES:
        slices[name] = getattr(rows, name)
    splits = rows.splits.astype(np.int64)
    return BlockRows(splits, slices, rows.labels, rows.texts)


def options(preprocessor: Preprocessor) -> dict[str, Any]:
    """A preprocessor's options as they come back from a checkpoint's JSON: tuples are lists
    there."""
    # A dataclass, as all of them are.
    given = dataclasses.asdict(cast(Any, preprocessor))
    return json.loads(json.dumps(given))


@functools.cache
def code_hash(preprocessor: type) -> str:
    """Of the files that rows are planned by: a plan of other code must not be found, of a paper of
    the user's least of all."""
    planners = ("reader", "plan", "documents", "paraphrases", "targets")
    modules = {f"xlingjax.data.rows.{name}" for name in planners}
    modules |= {one.__module__ for one in preprocessor.__mro__}
    digest = hashlib.sha256()
    for name in sorted(modules):
        module = sys.modules.get(name)
        try:
            source = inspect.getsource(cast(Any, module))
        # Of the standard library, or typed in a notebook: then its name is all there is.
        except (OSError, TypeError):
            source = repr(module)
        digest.update(source.encode())
    return digest.hexdigest()


class Opened:
    """What is open of blocks, the last used: at most `OPEN_BYTES` and `OPEN_FILES`. A key is that
    of a file, which is never written anew."""

    def __init__(self):
        self._bytes = 0
        self._open: collections.OrderedDict[Any, Any] = collections.OrderedDict()
        # Batches are made by several threads.
        self._lock = threading.Lock()

    def get(self, key: Any, make: Any) -> Any:
        with self._lock:
            if key in self._open:
                self._open.move_to_end(key)
                return self._open[key]
        made = make()
        with self._lock:
            if key not in self._open:
                self._open[key] = made
                self._bytes += made.nbytes
            # The one just made stays, however large.
            while len(self._open) > 1 and (
                self._bytes > OPEN_BYTES or len(self._open) > OPEN_FILES
            ):
                _, oldest = self._open.popitem(last=False)
                self._bytes -= oldest.nbytes
        return made


OPENED = Opened()
"""Of this process: objectives of a run read the same text."""


def require_rows(plans: Mapping[str, TextRows]) -> None:
    """Raises UserError for a text that fits no row."""
    for name, plan in plans.items():
        if not plan.count:
            raise UserError(
                f"no {name} text fits rows of {plan.plan.length} tokens"
                f"{plan.plan.preprocessor.lacks}; raise the length or the limit of pieces"
            )


# ---- looking rows up -----------------------------------------------------------------------------


class RowsInMemory:
    """One plan over one array of ids."""

    def __init__(self, ids: np.ndarray, rows: Rows, length: int):
        self._ids = ids
        self._block = compact(rows, [1], length)
        self.counts = np.array([rows.count])
        self.labelled = rows.labels is not None

    def block(self, number: int) -> BlockRows:
        return self._block

    def ids(self, number: int, side: int) -> np.ndarray:
        return self._ids


class RowReader:
    """Looks rows up: row numbers [B] -> token fields [B, L], int32, and labels int32 [B] and
    example_weights float32 [B] where the plans have labels. A negative row number gives a padded
    row.

    Rows are numbered through all texts, and in each through its blocks. languages: of each text the
    ids of its languages. Blocks are opened with the first row that is read of them.
    """

    def __init__(
        self,
        texts: Sequence[TextRows | RowsInMemory],
        languages: Sequence[Sequence[int]],
        length: int,
        *,
        pad_id: int,
        bos_id: int,
    ):
        # (text, number of the block in it, its language ids) of each block.
        self._blocks = [
            (text, number, np.asarray(table, np.int32))
            for text, table in zip(texts, languages, strict=True)
            for number in range(text.counts.size)
        ]
        self._ends = np.cumsum(np.concatenate([text.counts for text in texts]))
        self.length = length
        self._pad_id = pad_id
        self._bos_id = bos_id
        self.names = TOKEN_FIELDS
        if any(text.labelled for text in texts):
            self.names = (*TOKEN_FIELDS, "labels", "example_weights")

    @classmethod
    def of_arrays(
        cls, ids: np.ndarray, rows: Rows, languages: Sequence[int], length: int, **special: int
    ) -> RowReader:
        """Of one plan over one array of ids, both in memory."""
        return cls([RowsInMemory(ids, rows, length)], [languages], length, **special)

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
        fields = {name: np.zeros((rows.size, self.length), np.int32) for name in TOKEN_FIELDS}
        fields["input_ids"].fill(self._pad_id)
        if "labels" in self.names:
            # An empty row has a label like any other, and a weight of 0.
            fields["labels"] = np.zeros(rows.size, np.int32)
            fields["example_weights"] = np.zeros(rows.size, np.float32)
        # Block by block.
        block_of_row = np.searchsorted(self._ends, rows, side="right")
        for block in np.unique(block_of_row[rows >= 0]).tolist():
            which = np.flatnonzero((block_of_row == block) & (rows >= 0))
            first = self._ends[block - 1] if block else 0
            self._fill(fields, which, block, rows[which] - first, places[which], draws)
        return fields

    def _fill(
        self,
        fields: dict[str, np.ndarray],
        which: np.ndarray,
        block: int,
        rows: np.ndarray,
        places: np.ndarray,
        draws: Draws | None,
    ) -> None:
        """Writes `rows` of a block to rows `which` of the fields."""
        text, number, languages = self._blocks[block]
        plan = text.block(number)
        first = plan.splits[rows]
        counts = plan.splits[rows + 1] - first
        slices = plan.slices[_ranges(first, counts)]
        if plan.texts is not None and draws is not None:
            uniform = draws.uniform(PARTNERS, TRIES)[places]
            slices = redrawn(slices, rows, plan.slices, plan.translations, uniform, self.length)
        if plan.labels is not None:
            fields["labels"][which] = plan.labels[rows]
            fields["example_weights"][which] = 1.0
        lengths = slices["lengths"].astype(np.int64)
        begins = np.cumsum(lengths) - lengths
        # The slices of a row stand one behind the other, from its first column on.
        row_of_slice = np.repeat(np.arange(counts.size), counts)
        tokens_of_row = np.bincount(row_of_slice, lengths, counts.size).astype(np.int64)
        columns = begins - (np.cumsum(tokens_of_row) - tokens_of_row)[row_of_slice]
        flat = _ranges(which[row_of_slice] * self.length + columns, lengths)
        ids = fields["input_ids"].reshape(-1)
        starts = slices["start"].astype(np.int64)
        for side in np.unique(slices["text"]).tolist():
            here = slices["text"] == side
            found = text.ids(number, side)[_ranges(starts[here], lengths[here])]
            ids[flat[np.repeat(here, lengths)]] = found
        opens = (slices["opens"] > 0) & (lengths > 0)
        ids[flat[begins[opens]]] = self._bos_id
        of_slice = {
            "position_ids": slices["positions"],
            "language_ids": languages[slices["languages"]],
            "pack_ids": slices["packs"],
            "sides": slices["sides"],
        }
        for name, values in of_slice.items():
            of_token = np.repeat(values.astype(np.int32), lengths)
            if name == "position_ids":
                of_token += (np.arange(flat.size) - np.repeat(begins, lengths)).astype(np.int32)
            fields[name].reshape(-1)[flat] = of_token


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start + 1 ... of every start, one behind the other, int64 [sum of lengths]."""
    ends = np.cumsum(lengths)
    if not ends.size:
        return np.zeros(0, np.int64)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1])
