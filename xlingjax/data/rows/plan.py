"""Rows: which tokens stand in which row of a batch. They are planned once in NumPy, kept beside
their text, and looked up; and the contract of `preprocessors/<paper>.py`, for one objective.

The ids of a text's sides lie one behind the other; a row is a list of slices of them. A stream row
is one slice; a pair is two, one per sentence; packing puts several examples in a row and numbers
them in `pack_ids`. Because every sentence ends in `</s>` and each side begins with one, the slice
that starts one token early is `</s> x </s>`.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from xlingjax.data.features import TOKEN_FIELDS, Batch, Shapes, batch_shapes
from xlingjax.data.rows.draws import PARTNERS, Draws
from xlingjax.data.rows.left_out import LeftOut
from xlingjax.data.rows.partners import TRIES, Translations, redrawn
from xlingjax.data.store.entries import Writer, folder_of, get, name_of, read
from xlingjax.data.store.tokenise import SHARDS, BlockText, Records
from xlingjax.data.vocabulary.sentencepiece import Vocabulary

OPEN_ROWS = 256  # rows that packing keeps open for a shorter example to come

SLICES = ("lengths", "positions", "packs", "sides", "languages", "opens")
"""What `Rows.slices` says of each besides where it starts."""

NEIGHBOURS_APART = 0
"""The seed of the order in which examples fill rows. Neighbours in a file should not share a row,
often being about one thing; all runs have the same rows."""


@dataclass(frozen=True)
class Rows:
    """A plan of R rows of S slices: row r has slices splits[r] .. splits[r+1]-1.

    slices: of each [S] its `starts` and `lengths` in the ids of all sides (see `side_bases`),
    `positions` (position id of its first token), `packs` (number of its example in the row, from
    1), `sides`, `languages` (index in the languages of its records), `opens` (its first token
    becomes the one that opens a text).
    Per row [R], for classification: `labels`.
    texts [R//2, 3]: of rows whose wrong partners the reader draws, see `paraphrases.Translations`.
    One pass over the rows reads `sentences` sentences or pairs, each `passes` times; left_out: of
    pairs, those that stand in no row.
    """

    slices: Batch
    splits: np.ndarray
    sentences: int
    passes: int = 1
    labels: np.ndarray | None = None
    texts: np.ndarray | None = None
    left_out: LeftOut = LeftOut()

    @property
    def count(self) -> int:
        return self.splits.size - 1

    @property
    def sizes(self) -> dict[str, float]:
        """Sentences, and the tokens and rows they fill when each is read once."""
        tokens = int(self.slices["lengths"].sum()) / self.passes
        return {"sentences": self.sentences, "tokens": tokens, "rows": self.count / self.passes}


def plan_rows(
    row_of_example: np.ndarray,
    sentences: int,
    passes: int = 1,
    example: np.ndarray | None = None,
    left_out: LeftOut = LeftOut(),
    **fields: Any,
) -> Rows:
    """Rows of E examples, in the order of `row_of_example` [E]. fields: of `Rows.slices`, [E] or
    [E, P], where P of each example follow each other, or [S] with the `example` [S] of each; one
    value stands for all, and what is not given is 0. An example is a pack."""
    starts = fields["starts"]
    if example is None:
        example = np.repeat(np.arange(len(starts)), starts.shape[1] if starts.ndim > 1 else 1)
    # Stable, so that the examples of a row keep the order in which they were put in.
    order = np.argsort(row_of_example, kind="stable")
    rows = row_of_example[order]
    count = int(rows[-1]) + 1 if rows.size else 0
    first = np.searchsorted(rows, np.arange(count + 1))
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    by_row = np.argsort(place[example], kind="stable")
    flat: Batch = {}
    for name in ("starts", *SLICES):
        of_slice = np.broadcast_to(fields.get(name, 0), starts.shape).reshape(-1)
        # Only `starts` counts the tokens of all text, which may be more than 2^31.
        flat[name] = of_slice[by_row].astype(np.int64 if name == "starts" else np.int32)
    number = place - first[row_of_example] if order.size else place
    # From 1: 0 is padding.
    flat["packs"] = (1 + number[example][by_row]).astype(np.int32)
    splits = np.searchsorted(row_of_example[example][by_row], np.arange(count + 1))
    return Rows(flat, splits, sentences, passes, left_out=left_out)


def side_bases(records: Records) -> np.ndarray:
    """[sides]: where each side begins in an array of all ids, each side behind a `</s>` of its own:
    the slice that begins a token early is `</s> x </s>` for the first sentence of each side."""
    sizes = np.array([1 + side.ids.size for side in records.sides])
    return 1 + np.cumsum(sizes) - sizes


def starts_and_lengths(records: Records) -> tuple[np.ndarray, np.ndarray]:
    """int64 [lines, sides], twice: where each line begins in the ids, and its tokens."""
    lengths = np.stack([side.lengths for side in records.sides], axis=1).astype(np.int64)
    return side_bases(records) + np.cumsum(lengths, axis=0) - lengths, lengths


def opened_sides(
    records: Records, max_pieces: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(where each side of each line begins in a row, its tokens there, both int64 [lines, sides];
    bool [lines]: which have text on every side, which of these have none over `max_pieces`)."""
    starts, lengths = starts_and_lengths(records)
    whole = np.all(lengths > 0, axis=1)
    readable = whole & np.all(lengths <= max_pieces + 1, axis=1)
    # One token early: the `</s>` before a sentence opens it.
    return starts - 1, lengths + 1, whole, readable


def first_fit(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """First-fit packing: the row [E] of each example of `lengths` [E], in order, in rows of
    `capacity` tokens; of lengths [E, P] in rows that have so many for each of the P parts.

    Each goes into the first of the last `OPEN_ROWS` rows with room, or opens one.
    """
    row_of_example = np.empty(len(lengths), np.int64)
    room = np.full((len(lengths) + 1, *lengths.shape[1:]), capacity, np.int64)
    count = 0
    for example, length in enumerate(lengths.tolist()):
        low = max(0, count - OPEN_ROWS)
        # The last one is a row not yet opened, so one fits always.
        fits = room[low : count + 1] >= length
        if fits.ndim > 1:
            fits = fits.all(axis=1)
        row = low + int(fits.argmax())
        count = max(count, row + 1)
        room[row] -= length
        row_of_example[example] = row
    return row_of_example


def rows_of(lengths: np.ndarray, length: int, packing: bool) -> np.ndarray:
    """The row of each example: packed into rows of `length` tokens, or one to a row."""
    return first_fit(lengths, length) if packing else np.arange(len(lengths))


def apart(count: int) -> np.ndarray:
    """An order of so many examples in which neighbours do not share a row."""
    return np.random.default_rng(NEIGHBOURS_APART).permutation(count)


def stream_rows(
    records: Records, length: int, *, bos: bool = False, documents: bool = False
) -> Rows:
    """Rows of continuous text (XLM §5.1): sentences each followed by `</s>`, cut every `length`
    tokens. With `bos` each row is `<s>` and
    one token less of text (XLM-R). The last row may be short. documents: each document of a row is
    an example of its own, which attends to no other."""
    (text,) = records.sides
    # `<s>` takes the place of the token before the row: the slice begins one token early, and the
    # reader writes `<s>` over it.
    early = int(bos)
    total = text.ids.size
    begins = np.arange(0, total, length - early)
    if documents:
        # A blank line, which has no token, parts two of them.
        parted = np.cumsum(text.lengths)[text.lengths == 0]
        begins = np.union1d(begins, parted[parted < total])
    row, column = np.divmod(begins, length - early)
    opens = bos & (column == 0)
    return plan_rows(
        row,
        text.sentences,
        starts=1 + begins - opens,
        lengths=np.diff(begins, append=total) + opens,
        opens=opens,
    )


def _both_orders(of_side: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """[2 E, 2] of [E, 2]: pairs with those of `turn` [E, 1] turned, then with the others turned."""
    turned = of_side[:, ::-1]
    first_pass = np.where(turn, turned, of_side)
    second_pass = np.where(turn, of_side, turned)
    return np.concatenate([first_pass, second_pass])


BatchMap = Callable[[Batch, Draws], Batch]


class Preprocessor(abc.ABC):
    """Turns records into rows, and rows into fields. Its subclasses are frozen dataclasses, whose
    options are part of a run's identity."""

    # Part of the seed and of a run's identity, so it stays when a class is renamed.
    name: str
    sides: int
    """1: reads text of one language; 2: pairs; 3: pairs with negatives."""
    fields: tuple[str, ...]
    beside_pairs: bool = False
    """Of one that reads text: it needs the run to have pairs, too."""
    aligned_documents: bool = False
    """Of one that reads pairs: they are the lines of documents, with blank lines between these."""

    lacks: str = ""
    """What else text may lack of which no row comes, as the message goes on: " beside ..."."""

    @property
    def needs_pairs(self) -> bool:
        """Whether a run without pairs has nothing for it."""
        return self.sides > 1 or self.beside_pairs

    @abc.abstractmethod
    def rows(self, records: Records, length: int, vocabulary: Vocabulary) -> Rows:
        """The rows of one text."""

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> BatchMap:
        """The map (token fields [B, L], `Draws`) -> at least `fields`; `counts` [V] are token
        frequencies. It changes no array that it is given. By default the rows as they are."""
        return lambda batch, draws: batch

    def text_length(self, length: int) -> int:
        """Tokens of a row of `length` that hold text."""
        return length

    def slots(self, length: int) -> int:
        """Prediction slots M for rows of `length` tokens."""
        return 0

    def columns(self, length: int) -> int:
        """How wide the reader's rows are, before `map` makes rows of `length` tokens of them."""
        return length

    def decoder_columns(self, length: int) -> int:
        """T, what the decoder of an encoder-decoder reads."""
        return length

    def placeholders(self, length: int) -> int:
        """P for pseudo tokens."""
        return 0

    def positions(self, length: int) -> int:
        """Positions of the model that the rows use, where these exceed their columns; else 0."""
        return 0

    def takes(self, languages: tuple[str, ...]) -> bool:
        """Whether it reads text in these languages."""
        return True

    def shapes(self, batch: int, length: int) -> Shapes:
        """The global shapes of its batches."""
        return batch_shapes(
            self.fields,
            batch=batch,
            length=length,
            slots=self.slots(length),
            targets=self.decoder_columns(length),
            placeholders=self.placeholders(length),
        )


class PairPreprocessor(Preprocessor):
    """Rows of pairs `</s> x </s> </s> y </s>` (XLM §3.4), packed first-fit or one to a row.

    Pairs with an empty side, a side of more than `max_pieces`, or more tokens in all than a row are
    left out. `reset_positions` restarts position ids at y. `both_orders` gives each pair twice, x
    first and y first. `shuffled_pairs` pairs each x with the y of another pair (a control: the same
    text, no translations). `each_opens`: where a text opens with `<s>`, y does too (`<s> x </s> <s>
    y </s>`).
    """

    sides = 2
    max_pieces: int = 100
    reset_positions: bool = True
    both_orders: bool = False
    packing: bool = True
    shuffled_pairs: bool = False
    each_opens: bool = False

    def rows(self, records: Records, length: int, vocabulary: Vocabulary) -> Rows:
        starts, lengths, whole, readable = opened_sides(records, self.max_pieces)
        # Without the two that open them.
        tokens = lengths.sum(axis=1) - 2
        rng = np.random.default_rng(NEIGHBOURS_APART)
        chosen = np.flatnonzero(readable)
        chosen = chosen[rng.permutation(chosen.size)]
        starts = starts[chosen]
        lengths = lengths[chosen]
        if self.shuffled_pairs:
            # The order is random already, so the next pair's y is a random other y.
            starts[:, 1] = np.roll(starts[:, 1], 1)
            lengths[:, 1] = np.roll(lengths[:, 1], 1)
        sizes = lengths.sum(axis=1) + self.reserved(vocabulary)
        fits = sizes <= self.text_length(length)
        read = np.zeros_like(whole)
        read[chosen[fits]] = True
        starts = starts[fits]
        lengths = lengths[fits]
        sentences = len(starts)
        row_of_example = rows_of(sizes[fits], self.text_length(length), self.packing)
        languages = np.broadcast_to(np.arange(2), starts.shape)
        if self.both_orders and sentences:
            # The first pass over the pairs turns a random half of them around, the second pass the
            # others: each row has both orders, and each pair is read in both.
            turn = rng.random(sentences)[:, None] < 0.5
            starts = _both_orders(starts, turn)
            lengths = _both_orders(lengths, turn)
            languages = _both_orders(languages, turn)
            second_pass = row_of_example + row_of_example.max() + 1
            row_of_example = np.concatenate([row_of_example, second_pass])
        positions = np.zeros_like(lengths)
        if not self.reset_positions:
            positions[:, 1] = lengths[:, 0]
        return plan_rows(
            row_of_example,
            sentences,
            1 + int(self.both_orders),
            left_out=LeftOut.of(whole, read, tokens),
            starts=starts,
            lengths=lengths,
            positions=positions,
            sides=np.arange(2),
            languages=languages,
            opens=np.array([True, self.each_opens]),
        )

    def reserved(self, vocabulary: Vocabulary) -> int:
        """Columns of a row that `map` fills for each pair."""
        return 0


# Planning a block takes seconds, so a plan is written once per text, preprocessor, length and code
# of the planners. What a run needs before its first batch, how many rows each block has, stands in
# an index; the plans themselves are read with the first row of theirs.

# Part of every name: another form of plan leaves the old files alone.
FORMAT = 6
FEW_LINES = 4096  # text of fewer lines is planned at every start, sooner than its plan is found
OPEN_BLOCKS = 128
"""Of plans and of ids that all sources of a process have open at a time. They are maps of files,
each of which holds a file open; what is closed is still in the system's cache."""


@dataclass(frozen=True)
class BlockRows:
    """The rows of one block: row r has slices splits[r] .. splits[r+1]-1, left to right.

    slices: a structured array [S]: `text`, the side of the text that a slice lies in; `start`, its
    first token there behind a first `</s>`; and `SLICES`. labels, texts: as of `Rows`.
    """

    splits: np.ndarray
    slices: np.ndarray
    labels: np.ndarray | None = None
    texts: np.ndarray | None = None

    def arrays(self) -> Batch:
        """Those that it has, by name."""
        return {name: array for name, array in vars(self).items() if array is not None}

    @functools.cached_property
    def translations(self) -> Translations:
        """Of rows whose wrong partners are drawn: row 2e + 1 is translation e."""
        assert self.texts is not None
        # Two slices a row.
        sizes = self.slices["lengths"].reshape(-1, 4)[:, 2:]
        return Translations(self.texts, sizes)


@dataclass(frozen=True)
class TextRows:
    """The rows of a text. counts: int64 [blocks], rows of each block. block: the rows of one, by
    its number; ids: [1 + T] of one of its sides, behind a first `</s>`. sizes: sentences, and the
    tokens and rows that they fill when each is read once, of all of it; left_out: likewise."""

    counts: np.ndarray
    labelled: bool
    block: Callable[[int], BlockRows]
    ids: Callable[[int, int], np.ndarray]
    sizes: Mapping[str, float]
    left_out: LeftOut

    @property
    def count(self) -> int:
        return int(self.counts.sum())


@functools.lru_cache(OPEN_BLOCKS)
def opened_block(folder: Path, number: int, arrays: tuple[str, ...]) -> BlockRows:
    return BlockRows(**{name: read(folder, f"{number:05}.{name}") for name in arrays})


# Of this process: objectives of a run read the same text, whose pairs have two sides.
opened_ids = functools.lru_cache(2 * OPEN_BLOCKS)(functools.partial(read, name="ids"))


@dataclass(frozen=True)
class RowPlan:
    """How rows of `length` tokens are planned over text."""

    preprocessor: Preprocessor
    length: int
    vocabulary: Vocabulary

    def open(self, text: BlockText) -> TextRows:
        """The rows of a text, planned now or found in the store."""
        if text.lines < FEW_LINES:
            blocks: list[BlockRows] = []
            facts = self._planned(text, lambda number, rows: blocks.append(rows))
            block = blocks.__getitem__
        else:
            entry = get("rows", self._name(text), functools.partial(self._make, text))
            facts = entry.facts
            arrays = tuple(facts["arrays"])
            block = functools.partial(opened_block, entry.folder, arrays=arrays)

        def ids(number: int, side: int) -> np.ndarray:
            return opened_ids(folder_of(SHARDS, text.blocks[number].shards[side]))

        return TextRows(
            np.array(facts["counts"], np.int64),
            "labels" in facts["arrays"],
            block,
            ids,
            facts["sizes"],
            LeftOut(*facts["left_out"]),
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
        sizes: dict[str, float] = {}
        left_out = LeftOut()
        arrays: list[str] = []
        for number in range(len(text.blocks)):
            records = text.of_block(number)
            plan = self.preprocessor.rows(records, self.length, self.vocabulary)
            rows = compact(plan, records, self.preprocessor.columns(self.length))
            take(number, rows)
            counts.append(plan.count)
            sizes = {name: size + sizes.get(name, 0) for name, size in plan.sizes.items()}
            left_out += plan.left_out
            arrays = [*rows.arrays()]
        return {
            "counts": counts,
            "sizes": sizes,
            "left_out": dataclasses.astuple(left_out),
            "arrays": arrays,
        }


def compact(rows: Rows, records: Records, columns: int) -> BlockRows:
    """A plan over the sides of records, in as few bytes as its numbers need."""
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
    starts = rows.slices["starts"]
    slices = np.empty(starts.size, list(kinds.items()))
    # One before its base lies the `</s>` of the side.
    firsts = side_bases(records) - 1
    text = np.searchsorted(firsts, starts, side="right") - 1
    slices["text"] = text
    slices["start"] = starts - firsts[text]
    for name in SLICES:
        slices[name] = rows.slices[name]
    splits = rows.splits.astype(np.int64)
    return BlockRows(splits, slices, rows.labels, rows.texts)


def options(preprocessor: Preprocessor) -> dict[str, Any]:
    """A preprocessor's options as a checkpoint's JSON gives them back: tuples are lists there."""
    # A dataclass, as all of them are.
    given = dataclasses.asdict(cast(Any, preprocessor))
    return json.loads(json.dumps(given))


@functools.cache
def code_hash(preprocessor: type) -> str:
    """Hash of the planners' files: a plan of other code, a user's paper's too, is not found."""
    planners = ("plan", "documents", "paraphrases", "partners", "targets")
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
        vocabulary: Vocabulary,
    ):
        # (text, number of the block in it, its language ids) of each block.
        self._blocks = [
            (text, number, np.asarray(table, np.int32))
            for text, table in zip(texts, languages, strict=True)
            for number in range(text.counts.size)
        ]
        self._ends = np.cumsum(np.concatenate([text.counts for text in texts]))
        self.length = length
        self._vocabulary = vocabulary
        self.names: tuple[str, ...] = TOKEN_FIELDS
        if any(text.labelled for text in texts):
            self.names = (*TOKEN_FIELDS, "labels", "example_weights")

    @classmethod
    def of_records(
        cls,
        records: Records,
        rows: Rows,
        languages: Sequence[int],
        length: int,
        vocabulary: Vocabulary,
    ) -> RowReader:
        """Of one plan over records, both in memory."""
        block = compact(rows, records, length)
        sides = [np.concatenate([[vocabulary.eos_id], side.ids]) for side in records.sides]
        text = TextRows(
            np.array([rows.count]),
            rows.labels is not None,
            lambda number: block,
            lambda number, side: sides[side],
            rows.sizes,
            rows.left_out,
        )
        return cls([text], [languages], length, vocabulary)

    def __call__(
        self,
        rows: np.ndarray,
        draws: Draws | None = None,
        places: np.ndarray | None = None,
    ) -> Batch:
        """draws: of the wrong partners of rows that have such (`partners`), of which those at
        `places` [B] are these rows' (default: all in order); None: those that they were planned
        with."""
        if places is None:
            places = np.arange(rows.size)
        fields: Batch = {
            name: np.zeros((rows.size, self.length), np.int32) for name in TOKEN_FIELDS
        }
        fields["input_ids"].fill(self._vocabulary.pad_id)
        if "labels" in self.names:
            # An empty row has a label like any other, and a weight of 0.
            fields["labels"] = np.zeros(rows.size, np.int32)
            fields["example_weights"] = np.zeros(rows.size, np.float32)
        block_of_row = np.searchsorted(self._ends, rows, side="right")
        for block in np.unique(block_of_row[rows >= 0]).tolist():
            which = np.flatnonzero((block_of_row == block) & (rows >= 0))
            first = self._ends[block - 1] if block else 0
            self._fill(fields, which, block, rows[which] - first, places[which], draws)
        return fields

    def _fill(
        self,
        fields: Batch,
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
        ids[flat[begins[opens]]] = self._vocabulary.bos_id
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
