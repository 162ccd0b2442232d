"""Rows: which tokens stand in which row of a batch. Planned once in NumPy, looked up in TensorFlow.

All text of a source lies in one array of ids; a row is a list of slices of it. A stream row is one
slice; a pair is two, one per sentence; packing puts several examples in a row and numbers them in
`pack_ids`. Because every sentence ends in `</s>` and the array begins with one, the slice that
starts one token early is `</s> x </s>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xlingjax.data.token_cache import Records, Tokens

OPEN_ROWS = 256
"""Rows that packing keeps open for a shorter example to come."""

SLICES = ("lengths", "positions", "packs", "sides", "languages", "opens")
"""What `Rows` says of each slice besides where it starts."""


@dataclass(frozen=True)
class Rows:
    """A plan of R rows made of S slices: row r has slices splits[r] .. splits[r+1]-1, left to
    right.

    Per slice [S]: `starts` and `lengths` in the array of ids, `positions` (position id of its first
    token), `packs` (number of its example in the row, from 1), `sides`, `languages` (index in the
    languages of its records), `opens` (its first token becomes the one that opens a text).
    Per row [R], for classification: `labels`.
    One pass over the rows reads `sentences` sentences or pairs, each `passes` times.
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
    order = np.argsort(row_of_example, kind="stable")
    rows = row_of_example[order]
    first = np.searchsorted(rows, np.arange(rows[-1] + 2 if examples else 1))
    number = np.arange(examples) - first[rows] if examples else rows
    within = np.arange(slices) % packs_per_example
    packs = 1 + number[:, None] * packs_per_example + within
    flat = {
        name: (
            np.broadcast_to(array, (examples, slices))[order]
            .reshape(-1)
            .astype(np.int64 if name == "starts" else np.int32)
        )
        for name, array in fields.items()
    }
    packs = packs.reshape(-1).astype(np.int32)
    return Rows(**flat, packs=packs, splits=first * slices, sentences=sentences, passes=passes)


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
        fits = room[low : count + 1] >= length  # the last one is a row not yet opened
        row = low + int((fits.all(axis=1) if fits.ndim > 1 else fits).argmax())
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
    chunk = min(stream_length or length, length)
    step = chunk - 1 if bos else chunk
    total = records.sides[0].ids.size
    begins = np.arange(0, total, step)
    lengths = np.minimum(begins + step, total) - begins + int(bos)
    return plan_rows(
        np.arange(begins.size) // (length // chunk),
        1,
        records.sides[0].sentences,
        1,
        starts=(base + begins - int(bos))[:, None],
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
    lengths = np.stack([side.lengths for side in records.sides], axis=1).astype(np.int64)
    starts = np.stack(
        [
            base + np.cumsum(side.lengths) - side.lengths
            for base, side in zip(bases, records.sides, strict=True)
        ],
        axis=1,
    )
    keep = ((lengths > 0) & (lengths <= max_pieces + 1)).all(axis=1)
    starts, lengths = starts[keep] - 1, lengths[keep] + 1
    rng = np.random.default_rng(0)
    order = rng.permutation(len(starts))  # neighbours in a file should not share a row
    starts, lengths = starts[order], lengths[order]
    if shuffled:
        # The order is random already, so the next pair's y is a random other y.
        starts[:, 1], lengths[:, 1] = np.roll(starts[:, 1], 1), np.roll(lengths[:, 1], 1)
    fits = lengths.sum(axis=1) <= length
    starts, lengths = starts[fits], lengths[fits]
    sentences = len(starts)
    row_of_example = first_fit(lengths.sum(axis=1), length) if packing else np.arange(sentences)
    languages = np.broadcast_to(np.arange(2), starts.shape)
    if both_orders and sentences:
        swap = rng.random(sentences)[:, None] < 0.5
        turned = [
            np.concatenate([np.where(s, a[:, ::-1], a) for s in (swap, ~swap)])
            for a in (starts, lengths, languages)
        ]
        starts, lengths, languages = turned
        row_of_example = np.concatenate([row_of_example, row_of_example + row_of_example.max() + 1])
    positions = np.zeros_like(lengths)
    if not reset_positions:
        positions[:, 1] = lengths[:, 0]
    return plan_rows(
        row_of_example,
        1 if partner_visible else 2,
        sentences,
        2 if both_orders else 1,
        starts=starts,
        lengths=lengths,
        positions=positions,
        sides=np.arange(2),
        languages=languages,
        opens=np.array([True, each_opens]),
    )


def paraphrase_rows(
    records: Records,
    bases: Sequence[int],
    length: int,
    *,
    max_pieces: int = 100,
    reset_positions: bool = True,
    negatives: int = 1,
) -> Rows:
    """Rows of one pair each, half of them translations (label 1) and half not (label 0): `</s> x
    </s> </s> y </s>`.

    Of records with three sides the third is what does not translate the first. Of pairs, each x is
    set beside the y of `negatives` other pairs at random, and as often beside its own. Pairs with
    an empty side, a side of more than `max_pieces`, or more than `length` tokens in all are left
    out with their partner row, and so are negatives that say what the translation says.
    """
    lengths = np.stack([side.lengths for side in records.sides], axis=1).astype(np.int64)
    starts = np.stack(
        [
            base + np.cumsum(s.lengths) - s.lengths
            for base, s in zip(bases, records.sides, strict=True)
        ],
        1,
    )
    keep = np.flatnonzero(((lengths > 0) & (lengths <= max_pieces + 1)).all(axis=1))
    if len(records.sides) == 3:
        wrong = [(keep, np.full(keep.size, 2))]
    else:
        rng = np.random.default_rng(0)
        shifts = rng.permutation(np.arange(1, keep.size))[:negatives]
        order = rng.permutation(keep.size)
        wrong = [
            (keep[order[(np.argsort(order) + shift) % keep.size]], np.ones(keep.size, int))
            for shift in shifts
        ]
    text = _equal_lines(records.sides[1:])
    examples = [(np.zeros((0, 2, 2), np.int64), np.zeros((0, 2, 2), np.int64))]
    for lines, side in wrong:
        differs = (
            text[side - 1, lines] != text[0, keep]
        )  # the same sentence may stand in several pairs
        x = np.repeat(keep[differs, None], 2, axis=1)  # [n, (wrong, right)]
        second = np.stack([lines[differs], keep[differs]], axis=1)
        of = np.stack([side[differs], np.ones(len(x), int)], axis=1)
        size = np.stack([lengths[x, 0], lengths[second, of]], axis=2) + 1
        fits = (size.sum(axis=2) <= length).all(axis=1)
        examples.append(
            ((np.stack([starts[x, 0], starts[second, of]], axis=2) - 1)[fits], size[fits])
        )
    at, size = (np.concatenate(parts).reshape(-1, 2) for parts in zip(*examples, strict=True))
    positions = np.zeros_like(size)
    if not reset_positions:
        positions[:, 1] = size[:, 0]
    rows = plan_rows(
        np.arange(len(at)),
        1,
        keep.size,
        2 * len(wrong),
        starts=at,
        lengths=size,
        positions=positions,
        sides=np.arange(2),
        languages=np.arange(2),
        opens=np.array([True, False]),
    )
    return replace(rows, labels=np.tile([0, 1], len(at) // 2))


def _equal_lines(sides: Sequence[Tokens]) -> np.ndarray:
    """int [sides, lines]: equal numbers for equal lines."""
    number: dict[bytes, int] = {}
    found = []
    for side in sides:
        ids, ends = np.asarray(side.ids), np.cumsum(side.lengths)
        lines = (
            ids[end - n : end].tobytes()
            for end, n in zip(ends.tolist(), side.lengths.tolist(), strict=True)
        )
        found.append([number.setdefault(line, len(number)) for line in lines])
    return np.array(found)


def stack(plans: Sequence[Rows], languages: Sequence[Sequence[int]]) -> tuple[Rows, np.ndarray]:
    """One plan of all rows, and the first row of each [plans + 1]; `languages[i]` maps plan i's
    indices to ids."""
    mapped = [
        replace(plan, languages=np.asarray(table, np.int32)[plan.languages])
        for plan, table in zip(plans, languages, strict=True)
    ]
    names = ("starts", *SLICES)
    fields = {name: np.concatenate([getattr(plan, name) for plan in mapped]) for name in names}
    slices = np.cumsum([0, *(plan.starts.size for plan in plans)])
    splits = np.concatenate(
        [[0], *(plan.splits[1:] + offset for plan, offset in zip(plans, slices, strict=False))]
    )
    rows = np.cumsum([0, *(plan.count for plan in plans)])
    labels = None if plans[0].labels is None else np.concatenate([plan.labels for plan in plans])
    sentences = sum(plan.sentences for plan in plans)
    return Rows(**fields, splits=splits.astype(np.int64), sentences=sentences, labels=labels), rows


class RowReader:
    """Looks rows up in TensorFlow: row numbers [B] -> token fields [B, L], and labels and
    example_weights [B] where the plan has labels. A negative row number gives a padded row."""

    def __init__(self, ids: np.ndarray, rows: Rows, length: int, *, pad_id: int, bos_id: int):
        import tensorflow as tf

        self._ids = tf.constant(ids)
        self._splits = tf.constant(rows.splits)
        self._starts = tf.constant(rows.starts)
        self._slices = tf.constant(np.stack([getattr(rows, name) for name in SLICES], axis=1))
        self._length, self._pad_id = length, pad_id
        self._bos_id = bos_id
        self._labels = None if rows.labels is None else tf.constant(rows.labels, tf.int32)

    def __call__(self, row: Any) -> Mapping[str, Any]:
        import tensorflow as tf

        real = tf.maximum(row, 0)
        first = tf.gather(self._splits, real)
        last = tf.where(row >= 0, tf.gather(self._splits, real + 1), first)
        of_row = tf.ragged.range(first, last)  # [B, slices]
        slices = dict(
            zip(
                SLICES, tf.unstack(tf.gather(self._slices, of_row.flat_values), axis=1), strict=True
            )
        )
        starts = tf.gather(self._starts, of_row.flat_values)
        where = tf.ragged.range(
            starts, starts + tf.cast(slices["lengths"], tf.int64)
        )  # [slices, tokens]
        slice_of_token = where.value_rowids()
        within = tf.cast(where.flat_values - tf.gather(starts, slice_of_token), tf.int32)
        ids = tf.cast(tf.gather(self._ids, where.flat_values), tf.int32)
        of_token = {name: tf.gather(slices[name], slice_of_token) for name in SLICES[1:]}
        ids = tf.where((within == 0) & (of_token["opens"] > 0), self._bos_id, ids)
        tokens = {
            "input_ids": (ids, self._pad_id),
            "position_ids": (of_token["positions"] + within, 0),
            "language_ids": (of_token["languages"], 0),
            "pack_ids": (of_token["packs"], 0),
            "sides": (of_token["sides"], 0),
        }
        splits = tf.gather(where.row_splits, of_row.row_splits)

        def padded(values: Any, pad: int) -> Any:
            ragged = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
            return ragged.to_tensor(default_value=pad, shape=[row.shape[0], self._length])

        fields = {name: padded(*values) for name, values in tokens.items()}
        if self._labels is not None:
            fields["example_weights"] = tf.cast(row >= 0, tf.float32)
            fields["labels"] = tf.where(row >= 0, tf.gather(self._labels, real), 0)
        return fields
