"""Rows: which tokens stand in which row of a batch, planned once in NumPy, and the contract of
`preprocessors/<paper>.py`, which says so of one objective.

All text of a source lies in one array of ids; a row is a list of slices of it. A stream row is one
slice; a pair is two, one per sentence; packing puts several examples in a row and numbers them in
`pack_ids`. Because every sentence ends in `</s>` and the array begins with one, the slice that
starts one token early is `</s> x </s>`.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xlingjax.data.features import batch_shapes
from xlingjax.data.rows.draws import Draws
from xlingjax.data.store.tokenise import Records, Tokens
from xlingjax.data.vocabulary.sentencepiece import Vocabulary

OPEN_ROWS = 256
"""Rows that packing keeps open for a shorter example to come."""

SLICES = ("lengths", "positions", "packs", "sides", "languages", "opens")
"""What `Rows` says of each slice besides where it starts."""

NEIGHBOURS_APART = 0
"""The seed of the order in which examples fill rows. Neighbours in a file should not share a row,
since they are often about one thing; the seed is not the run's, so that every run has the same
rows."""

# ---- text that no row has room for ---------------------------------------------------------------

FEW = 0.05
"""Of the text and of its tokens: that much is left out without a word."""


@dataclass(frozen=True)
class LeftOut:
    """How many of `pairs`, with text on both sides, or sentences stand in no row; the same of their
    tokens, which are more: long ones are left out."""

    left: int = 0
    pairs: int = 0
    left_tokens: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, whole: np.ndarray, read: np.ndarray, tokens: np.ndarray) -> LeftOut:
        """Of examples: bool [E] which have text, and which stand in rows; [E] how many tokens."""
        left = whole & ~read
        counts = left.sum(), whole.sum(), tokens[left].sum(), tokens[whole].sum()
        return cls(*map(int, counts))

    def __add__(self, other: LeftOut) -> LeftOut:
        both = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return LeftOut(*(one + two for one, two in both))

    @property
    def shares(self) -> tuple[float, float]:
        """Of the pairs, and of their tokens."""
        return self.left / max(self.pairs, 1), self.left_tokens / max(self.tokens, 1)

    def __str__(self) -> str:
        of_pairs, of_tokens = self.shares
        return f"{of_pairs:.1%}, and {of_tokens:.1%} of their tokens"


def message(stage: str, source: Any) -> str:
    """What a run or `inspect` says of the text that an open `BatchSource` leaves out; "": of few or
    none. stage: of an objective."""
    left_out: Mapping[str, LeftOut] = getattr(source, "left_out", None) or {}
    most = max(left_out, key=lambda name: max(left_out[name].shares), default="")
    # One language may lose much of its text where all together lose little.
    if not most or max(left_out[most].shares) <= FEW:
        return ""
    total = sum(left_out.values(), LeftOut())
    return (
        f"{stage}: {total.left:,} of {total.pairs:,} examples ({total}; of {most}"
        f" {left_out[most]}) do not fit rows of {source.identity['length']} tokens, or are of more"
        " than MAX_PIECES, and are left out: raise LENGTH, or the objective's own, or MAX_PIECES"
    )


# ---- plans ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """A plan of R rows made of S slices: row r has slices splits[r] .. splits[r+1]-1, left to
    right.

    Per slice [S]: `starts` and `lengths` in the array of ids, `positions` (position id of its first
    token), `packs` (number of its example in the row, from 1), `sides`, `languages` (index in the
    languages of its records), `opens` (its first token becomes the one that opens a text).
    Per row [R], for classification: `labels`.
    texts [R//2, 3]: of rows whose wrong partners the reader draws, see `paraphrases.Translations`.
    One pass over the rows reads `sentences` sentences or pairs, each `passes` times; left_out: of
    pairs, those that stand in no row.
    """

    starts: np.ndarray
    lengths: np.ndarray
    positions: np.ndarray
    packs: np.ndarray
    sides: np.ndarray
    languages: np.ndarray
    opens: np.ndarray
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
        tokens = int(self.lengths.sum()) / self.passes
        return {"sentences": self.sentences, "tokens": tokens, "rows": self.count / self.passes}


def plan_rows(
    row_of_example: np.ndarray,
    sentences: int,
    passes: int = 1,
    example: np.ndarray | None = None,
    **fields: Any,
) -> Rows:
    """Rows of E examples, in the order of `row_of_example` [E]. fields: of `Rows`, of slices [E]
    or [E, P], where P of each example follow each other, or [S] with the `example` [S] of each; one
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
    # And the slices of an example theirs.
    by_row = np.argsort(place[example], kind="stable")
    flat: dict[str, Any] = {}
    for name in ("starts", *SLICES):
        of_slice = np.broadcast_to(fields.get(name, 0), starts.shape).reshape(-1)
        # Only `starts` counts the tokens of all text, which may be more than 2^31.
        flat[name] = of_slice[by_row].astype(np.int64 if name == "starts" else np.int32)
    number = place - first[row_of_example] if order.size else place
    # From 1: 0 is padding.
    flat["packs"] = (1 + number[example][by_row]).astype(np.int32)
    splits = np.searchsorted(row_of_example[example][by_row], np.arange(count + 1))
    return Rows(**flat, splits=splits, sentences=sentences, passes=passes)


def line_starts(side: Tokens, base: int) -> np.ndarray:
    """Where each line of a side begins in the array of ids, [lines]."""
    return base + np.cumsum(side.lengths) - side.lengths


def starts_and_lengths(records: Records, bases: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Where each aligned line of each side begins in the array of ids, and its tokens, both int64
    [lines, sides]."""
    starts = [line_starts(side, base) for base, side in zip(bases, records.sides, strict=True)]
    lengths = [side.lengths for side in records.sides]
    return np.stack(starts, axis=1), np.stack(lengths, axis=1).astype(np.int64)


def first_fit(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """First-fit packing: the row [E] of each example of `lengths` [E], in order, in rows of
    `capacity` tokens; of lengths [E, P] in rows that have so many for each of the P parts.

    Each goes into the first of the last `OPEN_ROWS` rows that has room, or opens a row. No length
    exceeds `capacity`.
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
    records: Records, base: int, length: int, *, stream_length: int | None = None, bos: bool = False
) -> Rows:
    """Rows of continuous text (XLM §5.1): sentences each followed by `</s>`, cut every
    `stream_length` tokens.

    `base` is where the text starts in the array of ids. A row of `length` tokens holds `length //
    stream_length` chunks, by default one. With `bos` each chunk is `<s>` and one token less of text
    (XLM-R). The last chunk may be short.
    """
    (text,) = records.sides
    chunk = min(stream_length or length, length)
    # `<s>` takes the place of the token before the chunk: the slice begins one token early, and
    # the reader writes `<s>` over it.
    early = int(bos)
    step = chunk - early
    total = text.ids.size
    begins = np.arange(0, total, step)
    lengths = np.minimum(begins + step, total) - begins + early
    return plan_rows(
        np.arange(begins.size) // (length // chunk),
        text.sentences,
        starts=base + begins - early,
        lengths=lengths,
        opens=bos,
    )


def pair_rows(
    records: Records,
    bases: Sequence[int],
    length: int,
    *,
    max_pieces: int = 100,
    reset_positions: bool = True,
    both_orders: bool = True,
    packing: bool = True,
    shuffled: bool = False,
    each_opens: bool = False,
) -> Rows:
    """Rows of pairs `</s> x </s> </s> y </s>` (XLM §3.4), packed first-fit or one to a row.

    Pairs with an empty side, a side of more than `max_pieces`, or more than `length` tokens in all
    are left out. `reset_positions` restarts position ids at y. `both_orders` gives each pair twice,
    x first and y first. `shuffled` pairs each x with the y of another pair (a control: the same
    text, no translations). `each_opens`: where a text opens with `<s>`, y does too (`<s> x </s> <s>
    y </s>`).
    """
    starts, lengths = starts_and_lengths(records, bases)
    whole = np.all(lengths > 0, axis=1)
    keep = whole & (lengths <= max_pieces + 1).all(axis=1)
    tokens = lengths.sum(axis=1)
    # One token early: the `</s>` before a sentence opens it.
    starts = starts[keep] - 1
    lengths = lengths[keep] + 1
    rng = np.random.default_rng(NEIGHBOURS_APART)
    order = rng.permutation(len(starts))
    starts = starts[order]
    lengths = lengths[order]
    if shuffled:
        # The order is random already, so the next pair's y is a random other y.
        starts[:, 1] = np.roll(starts[:, 1], 1)
        lengths[:, 1] = np.roll(lengths[:, 1], 1)
    fits = lengths.sum(axis=1) <= length
    read = np.zeros_like(whole)
    read[np.flatnonzero(keep)[order][fits]] = True
    starts = starts[fits]
    lengths = lengths[fits]
    sentences = len(starts)
    row_of_example = rows_of(lengths.sum(axis=1), length, packing)
    languages = np.broadcast_to(np.arange(2), starts.shape)
    if both_orders and sentences:
        # The first pass over the pairs turns a random half of them around, the second pass the
        # others: each row has both orders, and each pair is read in both.
        turn = rng.random(sentences)[:, None] < 0.5
        starts = _both_orders(starts, turn)
        lengths = _both_orders(lengths, turn)
        languages = _both_orders(languages, turn)
        second_pass = row_of_example + row_of_example.max() + 1
        row_of_example = np.concatenate([row_of_example, second_pass])
    positions = np.zeros_like(lengths)
    if not reset_positions:
        positions[:, 1] = lengths[:, 0]
    rows = plan_rows(
        row_of_example,
        sentences,
        1 + int(both_orders),
        starts=starts,
        lengths=lengths,
        positions=positions,
        sides=np.arange(2),
        languages=languages,
        opens=np.array([True, each_opens]),
    )
    return replace(rows, left_out=LeftOut.of(whole, read, tokens))


def _both_orders(of_side: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """[2 E, 2] of [E, 2]: the pairs with those of `turn` [E, 1] turned around, then the pairs with
    the others turned around."""
    turned = of_side[:, ::-1]
    first_pass = np.where(turn, turned, of_side)
    second_pass = np.where(turn, of_side, turned)
    return np.concatenate([first_pass, second_pass])


def join(records: Records, eos_id: int) -> tuple[np.ndarray, list[int]]:
    """All ids in one array after a first `</s>`, and where each side begins."""
    # Every sentence ends in `</s>`. With one in front, the slice that starts a token early is
    # `</s> x </s>` for the very first sentence too.
    first = np.array([eos_id], records.sides[0].ids.dtype)
    ids = np.concatenate([first, *(side.ids for side in records.sides)])
    bases = []
    begin = first.size
    for side in records.sides:
        bases.append(begin)
        begin += side.ids.size
    return ids, bases


# ---- the contract of a preprocessor --------------------------------------------------------------

Batch = dict[str, np.ndarray]
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
    def rows(
        self, records: Records, bases: Sequence[int], length: int, vocabulary: Vocabulary
    ) -> Rows:
        """The rows of one text; `bases[i]` is where side i of the records begins in the array of
        ids."""

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
        """How many of the model's positions the rows use, where these are more than their columns;
        0: they are not."""
        return 0

    def takes(self, languages: tuple[str, ...]) -> bool:
        """Whether it reads text in these languages."""
        return True

    def shapes(self, batch: int, length: int) -> dict[str, tuple[int, ...]]:
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
    """Rows of `pair_rows`, whose options these are."""

    sides = 2
    max_pieces: int = 100
    reset_positions: bool = True
    both_orders: bool = False
    packing: bool = True
    shuffled_pairs: bool = False
    each_opens: bool = False

    def rows(
        self, records: Records, bases: Sequence[int], length: int, vocabulary: Vocabulary
    ) -> Rows:
        return pair_rows(
            records,
            bases,
            self.text_length(length),
            max_pieces=self.max_pieces,
            reset_positions=self.reset_positions,
            both_orders=self.both_orders,
            packing=self.packing,
            shuffled=self.shuffled_pairs,
            each_opens=self.each_opens,
        )
