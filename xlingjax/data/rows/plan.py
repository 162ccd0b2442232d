"""Rows: which tokens stand in which row of a batch, planned once in NumPy.

All text of a source lies in one array of ids; a row is a list of slices of it. A stream row is one
slice; a pair is two, one per sentence; packing puts several examples in a row and numbers them in
`pack_ids`. Because every sentence ends in `</s>` and the array begins with one, the slice that
starts one token early is `</s> x </s>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from xlingjax.data.rows.left_out import LeftOut
from xlingjax.data.store.tokens import Records, Tokens

OPEN_ROWS = 256
"""Rows that packing keeps open for a shorter example to come."""

SLICES = ("lengths", "positions", "packs", "sides", "languages", "opens")
"""What `Rows` says of each slice besides where it starts."""

NEIGHBOURS_APART = 0
"""The seed of the order in which examples fill rows. Neighbours in a file should not share a row,
since they are often about one thing; the seed is not the run's, so that every run has the same
rows."""


@dataclass(frozen=True)
class Rows:
    """A plan of R rows made of S slices: row r has slices splits[r] .. splits[r+1]-1, left to
    right.

    Per slice [S]: `starts` and `lengths` in the array of ids, `positions` (position id of its first
    token), `packs` (number of its example in the row, from 1), `sides`, `languages` (index in the
    languages of its records), `opens` (its first token becomes the one that opens a text).
    Per row [R], for classification: `labels`.
    texts: of rows whose wrong partners the reader draws, see `paraphrases.Translations`.
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
    packs_per_example: int,
    sentences: int,
    passes: int,
    **fields: np.ndarray,
) -> Rows:
    """Rows from fields [E, P] over E examples of P slices each, in the order of `row_of_example`
    [E]."""
    examples, slices = fields["starts"].shape
    # Stable, so that the examples of a row keep the order in which they were put in.
    order = np.argsort(row_of_example, kind="stable")
    rows = row_of_example[order]
    first, number = number_in_row(rows)
    within = np.arange(slices) % packs_per_example
    packs = 1 + number[:, None] * packs_per_example + within
    flat = {}
    for name, array in fields.items():
        of_slice = np.broadcast_to(array, (examples, slices))[order].reshape(-1)
        flat[name] = of_slice.astype(slice_dtype(name))
    packs = packs.reshape(-1).astype(np.int32)
    return Rows(**flat, packs=packs, splits=first * slices, sentences=sentences, passes=passes)


def number_in_row(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the rows of examples [E], sorted: (the first example of each row and of the one after the
    last [R + 1], the number of each example in its row, from 0 [E])."""
    if not rows.size:
        return np.zeros(1, np.int64), rows
    first = np.searchsorted(rows, np.arange(rows[-1] + 2))
    return first, np.arange(rows.size) - first[rows]


def slice_dtype(name: str) -> type:
    """The type of a field of slices: only `starts` counts the tokens of all text, which may be more
    than 2^31."""
    if name == "starts":
        return np.int64
    return np.int32


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
    chunk = length
    if stream_length:
        chunk = min(stream_length, length)
    # `<s>` takes the place of the token before the chunk: the slice begins one token early, and
    # the reader writes `<s>` over it.
    early = int(bos)
    step = chunk - early
    total = text.ids.size
    begins = np.arange(0, total, step)
    lengths = np.minimum(begins + step, total) - begins + early
    return plan_rows(
        np.arange(begins.size) // (length // chunk),
        1,
        text.sentences,
        1,
        starts=(base + begins - early)[:, None],
        lengths=lengths[:, None],
        positions=np.zeros(1),
        sides=np.zeros(1),
        languages=np.zeros(1),
        opens=np.full(1, bos),
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
    partner_visible: bool = True,
    shuffled: bool = False,
    each_opens: bool = False,
) -> Rows:
    """Rows of pairs `</s> x </s> </s> y </s>` (XLM §3.4), packed first-fit or one to a row.

    Pairs with an empty side, a side of more than `max_pieces`, or more than `length` tokens in all
    are left out. `reset_positions` restarts position ids at y. `both_orders` gives each pair twice,
    x first and y first. Without `partner_visible` the sides are numbered as two examples, so
    neither sees the other. `shuffled` pairs each x with the y of another pair (a control: the same
    text, no translations). `each_opens`: where a text opens with `<s>`, y does too (`<s> x </s> <s>
    y </s>`).
    """
    starts, lengths = starts_and_lengths(records, bases)
    whole = (lengths > 0).all(axis=1)
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
    if packing:
        row_of_example = first_fit(lengths.sum(axis=1), length)
    else:
        row_of_example = np.arange(sentences)
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
    # Attention is blocked between packs, so sides that are packs of their own do not see each
    # other.
    packs_per_pair = 1
    if not partner_visible:
        packs_per_pair = 2
    rows = plan_rows(
        row_of_example,
        packs_per_pair,
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
