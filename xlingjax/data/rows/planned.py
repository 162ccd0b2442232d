"""The rows of a text, planned block by block and kept beside its tokens.

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

from xlingjax.data.rows.left_out import LeftOut
from xlingjax.data.rows.paraphrases import Translations
from xlingjax.data.rows.plan import SLICES, Rows
from xlingjax.data.rows.preprocessor import Preprocessor
from xlingjax.data.store.blocks import BlockText
from xlingjax.data.store.entries import Entry, Writer, cache_root, get, name_of
from xlingjax.data.store.tokens import Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

# Part of every name: another form of plan leaves the old files alone.
FORMAT = 4
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
        arrays = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: array for name, array in arrays.items() if array is not None}

    @property
    def nbytes(self) -> int:
        of_texts = 0
        if self.texts is not None:
            # With what `translations` makes of them.
            of_texts = 2 * self.texts.nbytes
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
    """The rows of a text. counts: int64 [blocks], rows of each block. sizes: as `Rows.sizes`, of
    all of it; left_out: likewise."""

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
        key = (self.blocks.folder, number)
        return OPENED.get(key, functools.partial(self._read, self.blocks, number))

    def _read(self, entry: Entry, number: int) -> BlockRows:
        return BlockRows(**{name: entry.array(f"{number:05}.{name}") for name in self.arrays})

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
        if text.lines < FEW_LINES:
            kept: list[BlockRows] = []
            facts = self._planned(text, lambda number, rows: kept.append(rows))
            return self._of(text, facts, kept)

        def make(writer: Writer) -> None:
            def write(number: int, rows: BlockRows) -> None:
                for name, array in rows.arrays().items():
                    writer.array(f"{number:05}.{name}", array)

            writer.facts = self._planned(text, write)

        entry = get("rows", self._name(text), make)
        return self._of(text, entry.facts, entry)

    def _of(
        self, text: BlockText, facts: Mapping[str, Any], blocks: Entry | Sequence[BlockRows]
    ) -> TextRows:
        counts = np.array(facts["counts"], np.int64)
        left_out = LeftOut(*facts["left_out"])
        return TextRows(
            text, self, counts, facts["sizes"], left_out, tuple(facts["arrays"]), blocks
        )

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
        left_out = LeftOut()
        passes = 1
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
        sentences, tokens, rows_of_text = totals.tolist()
        return {
            "counts": counts,
            "sizes": {
                "sentences": sentences,
                "tokens": tokens / passes,
                "rows": rows_of_text / passes,
            },
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
    numbers: Any = np.uint16
    if columns >= 1 << 16:
        numbers = np.uint32
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
    modules = {__name__}
    for name in ("plan", "documents", "paraphrases", "targets"):
        modules.add(f"xlingjax.data.rows.{name}")
    for one in preprocessor.__mro__:
        modules.add(one.__module__)
    digest = hashlib.sha256()
    for name in sorted(modules):
        module = sys.modules.get(name)
        digest.update(_source(module))
    return digest.hexdigest()


def _source(module: Any) -> bytes:
    try:
        return inspect.getsource(module).encode()
    # Of the standard library, or typed in a notebook: then its name is all there is.
    except (OSError, TypeError):
        return repr(module).encode()


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
        if plan.count:
            continue
        length = plan.plan.length
        if plan.plan.preprocessor.aligned_documents:
            raise UserError(
                f"no {name} document has two sentences in a row of {length} tokens; raise the"
                " length, and see that blank lines stand behind documents, not behind sentences"
            )
        lacks = plan.plan.preprocessor.lacks
        raise UserError(
            f"no {name} text fits rows of {length} tokens{lacks}; raise the length or the limit of"
            " pieces"
        )
