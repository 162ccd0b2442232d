"""Batches as a pure function of (seed, step), in tf.data.

A step draws which text each row comes from; each text goes through its rows in an order that is new
in every epoch; the preprocessor masks the batch. All of it is stateless, so a position is a step
and a count per text (and per lane, see `row_order`), restoring takes no reading, prefetching cannot
disturb it, and every host and every number of shards sees the same batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from xlingjax.data import draws as random
from xlingjax.data.blocks import BlockText
from xlingjax.data.features import FIELDS, TOKEN_FIELDS
from xlingjax.data.left_out import LeftOut
from xlingjax.data.loader import OfText
from xlingjax.data.row_order import RowOrder
from xlingjax.data.row_reader import RowReader
from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json

ROWS_TOGETHER = 512
"""Rows that are looked up at a time, of several steps where batches are small: a look into a block
takes as long for one row as for ten."""


@dataclass(frozen=True)
class BatchPlan:
    """Everything a step needs."""

    reader: RowReader
    order: RowOrder
    map: Callable[[dict, Any], dict]
    fields: tuple[str, ...]
    shares: np.ndarray
    batch: int
    seed: int
    same_language: bool
    shuffle: bool
    epochs: int | None
    prefetch: int
    threads: int
    refusals: list[UserError] = field(default_factory=list)
    """What reading rows raised."""

    def finite_rows(self) -> np.ndarray:
        """Row numbers [steps, B] of a source with an end; -1 fills up."""
        # A batch of one language cannot take the rows of the next text, so each text is padded
        # for itself.
        first_row = self.order.first_row
        spans = [(0, first_row[-1])]
        if self.same_language:
            spans = list(zip(first_row[:-1], first_row[1:], strict=True))
        rng = np.random.default_rng(self.seed)
        blocks = []
        for _ in range(self.epochs):
            for first, last in spans:
                if self.shuffle:
                    rows = first + rng.permutation(last - first)
                else:
                    rows = np.arange(first, last)
                missing = -rows.size % self.batch
                rows = np.pad(rows, (0, missing), constant_values=-1)
                blocks.append(rows.reshape(-1, self.batch))
        return np.concatenate(blocks).astype(np.int64)

    def dataset(self, step: int, positions: np.ndarray, first: int, count: int) -> Any:
        """From `step` on: (fields of rows first .. first+count of the batch, rows drawn so far by
        each lane from each text). positions: int64 [lanes, texts]."""
        if self.epochs is None:
            data = self._endless(step, positions, first, count)
        else:
            data = self._finite(step, positions, first, count)
        # Behind everything else, so that whole batches wait and the accelerator does not.
        data = data.prefetch(self.prefetch)
        options = tf.data.Options()
        # Autotune would change buffers and threads as it measures; here they are the caller's.
        # One thread makes a batch, and `threads` of them work on as many batches at a time.
        options.autotune.enabled = False
        options.threading.private_threadpool_size = self.threads
        options.threading.max_intra_op_parallelism = 1
        return data.with_options(options)

    def _endless(self, step: int, positions: np.ndarray, first: int, count: int) -> Any:
        """Batches drawn by `shares`, for ever."""
        # Without the last bound: rounding may leave it
        # below 1, and a draw above it would be of no text.
        upper = tf.constant(np.cumsum(self.shares)[:-1], tf.float32)

        texts = len(self.shares)
        lanes = self.order.lanes
        in_lanes = tf.constant(self.order.in_lanes)
        lane = tf.repeat(tf.range(lanes, dtype=tf.int64), self.batch // lanes)

        # Every host draws for the whole batch, though it makes only its part of the rows: how
        # many rows of a text are drawn before a row depends on the rows of the other hosts.
        def draw_texts(drawn: Any, step: Any) -> Any:
            text = self._texts(upper, step)
            # [B, texts]
            member = tf.one_hot(text, texts, dtype=tf.int64)
            # Exclusive: how many rows of the same text stand before this one in the batch.
            before = tf.cumsum(member, exclusive=True)
            place = tf.reduce_sum(drawn, axis=0) + before
            of_lane = tf.reshape(member, [lanes, -1, texts])
            if lanes > 1:
                before = tf.cumsum(of_lane, axis=1, exclusive=True)
                in_lane = tf.reshape(drawn[:, None] + before, [-1, texts])
                place = tf.where(in_lanes, in_lane, place)
            place = tf.gather(place, text, batch_dims=1)
            after = drawn + tf.reduce_sum(of_lane, axis=1)
            return after, (step, text, place, after)

        together = max(1, ROWS_TOGETHER // count)

        def read(step: Any, text: Any, place: Any, after: Any) -> Any:
            numbers = []
            for number in (text, tf.repeat(lane[None], together, 0), place):
                here = number[:, first : first + count]
                numbers.append(tf.reshape(here, [-1]))
            fields = self._read(self._drawn, numbers, together * count)
            for name, value in fields.items():
                of_step = [together, count, *value.shape[1:]]
                fields[name] = tf.reshape(value, of_step)
            return step, fields, after

        def make(step: Any, fields: Any, after: Any) -> Any:
            return self._fields(step, fields, first, count), after

        start = tf.constant(positions, tf.int64)
        # Only the cheap draw is sequential; making the fields is a map, which threads can share.
        data = tf.data.Dataset.counter(start=step).scan(start, _as_written(draw_texts))
        data = data.batch(together, drop_remainder=True)
        data = self._mapped(data, read).unbatch()
        return self._mapped(data, make)

    def _finite(self, step: int, positions: np.ndarray, first: int, count: int) -> Any:
        """Batches of `finite_rows`; the rows drawn of each text stay at `positions`, since the
        step alone says where the source is."""
        rows = tf.constant(self.finite_rows()[:, first : first + count])
        steps_of_epoch = rows.shape[0] // self.epochs
        start = tf.constant(positions, tf.int64)

        def make(step: Any) -> Any:
            row = tf.gather(rows, step)
            epoch = tf.fill([count], step // steps_of_epoch)
            read = self._read(self.reader, (row, epoch), count)
            return self._fields(step, read, first, count), start

        return self._mapped(tf.data.Dataset.range(step, rows.shape[0]), make)

    def _mapped(self, data: Any, make: Callable) -> Any:
        # Batches must come in the order of their steps, however many threads make them.
        return data.map(_as_written(make), num_parallel_calls=self.threads, deterministic=True)

    def _texts(self, upper: Any, step: Any) -> Any:
        """[B]: the text that each row of a step comes from. `upper`: where the share of each text
        but the last ends in 0 .. 1."""
        width = self.batch
        if self.same_language:
            # One draw for the whole batch.
            width = 1
        u = tf.random.stateless_uniform(
            [width], random.seed_pair(self.seed, random.CHOICE, step), alg="philox"
        )
        return tf.broadcast_to(
            # "right": a draw of exactly 0 must not fall on a first text whose share is 0.
            tf.searchsorted(upper, u, side="right"),
            [self.batch],
        )

    def _drawn(
        self, text: np.ndarray, lane: np.ndarray, place: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The rows [B] that are the `place`-th drawn of their texts."""
        return self.reader(self.order.rows(text, lane, place), self.order.epochs(text, lane, place))

    def _read(
        self, read: Callable[..., dict[str, np.ndarray]], numbers: Sequence[Any], count: int
    ) -> dict[str, Any]:
        """The token fields of `count` rows, in TensorFlow."""
        names = self.reader.names
        dtypes = [tf.as_dtype(FIELDS[name].dtype) for name in names]

        def arrays(*numbers: np.ndarray) -> list[np.ndarray]:
            try:
                fields = read(*numbers)
            except UserError as error:
                # TensorFlow makes an error of its own of it, with a traceback for its message.
                self.refusals.append(error)
                raise
            return [fields[name] for name in names]

        # Rows are read in NumPy: text larger than memory is no constant of a graph.
        tensors = tf.numpy_function(arrays, numbers, dtypes)
        fields = {}
        for name, tensor in zip(names, tensors, strict=True):
            shape = [count]
            if name in TOKEN_FIELDS:
                shape.append(self.reader.length)
            fields[name] = tf.ensure_shape(tensor, shape)
        return fields

    def _fields(self, step: Any, read: dict[str, Any], first: int, count: int) -> dict[str, Any]:
        """The fields of the rows that were read, which are first .. first+count of the batch."""
        draws = random.Draws(self.seed, step, self.batch, first, count)
        batch = self.map(read, draws)
        # What the map made on its way is dropped here, before it is prefetched and copied.
        return {name: batch[name] for name in self.fields}


def _as_written(function: Callable) -> Callable:
    """Keeps autograph away: nothing here needs it, and converting takes longer than tracing."""
    return tf.autograph.experimental.do_not_convert(function)


class PlannedSource(OfText):
    """A `BatchSource` over a `BatchPlan`."""

    def __init__(
        self,
        plan: BatchPlan,
        *,
        data_shards: int,
        shards: tuple[int, ...],
        shapes: dict[str, tuple[int, ...]],
        languages: tuple[str, ...],
        identity: dict[str, Any],
        texts: tuple[BlockText, ...],
        left_out: Mapping[str, LeftOut],
    ):
        # A host's rows are one slice of the batch: `dataset` has only a first row and a count.
        neighbours = range(shards[0], shards[-1] + 1)
        if list(shards) != list(neighbours) or shards[-1] >= data_shards:
            raise UserError(
                f"a host reads neighbouring data shards below {data_shards}, got {list(shards)}"
            )
        self._plan = plan
        self._shards = shards
        rows_per_shard = plan.batch // data_shards
        self._first = shards[0] * rows_per_shard
        self._count = len(shards) * rows_per_shard
        self.shapes = shapes
        self.languages = languages
        self.identity = identity
        self.texts = texts
        self.left_out = left_out
        self._seek(0, np.zeros((plan.order.lanes, len(plan.shares)), np.int64))

    def _seek(self, step: int, positions: np.ndarray) -> None:
        self._step = step
        self._positions = positions
        self._iterator = None

    def next(self) -> dict[str, np.ndarray]:
        # At the first batch and not before: a source is often restored right after it was opened.
        if self._iterator is None:
            data = self._plan.dataset(self._step, self._positions, self._first, self._count)
            self._iterator = iter(data)
        try:
            fields, positions = next(self._iterator)
        except tf.errors.OpError:
            if self._plan.refusals:
                raise self._plan.refusals[0] from None
            raise
        # The position of the batch handed out, not of those prefetched behind it.
        self._step += 1
        self._positions = positions.numpy()
        return {
            # TensorFlow's operations give int64 here and there, and a batch must not.
            name: value.numpy().astype(FIELDS[name].dtype, copy=False)
            for name, value in fields.items()
        }

    def state(self) -> dict[str, bytes]:
        drawn = {"step": self._step, "rows_drawn": self._positions.sum(axis=0).tolist()}
        if len(self._positions) > 1:
            drawn["by_lane"] = self._positions.tolist()
        position = json.dumps(drawn).encode()
        # Each host writes entries of its own; none waits for another.
        return {f"shard-{shard}": position for shard in self._shards}

    def restore(self, state: dict[str, bytes]) -> None:
        # Every shard is at the same step of the same global stream, so any entry will do, however
        # many there were.
        try:
            position = parsed_json(next(iter(state.values())))
            step = int(position["step"])
            drawn = np.array(position["rows_drawn"], np.int64)
            positions = np.array(position.get("by_lane", [drawn]), np.int64)
        except (StopIteration, ValueError, KeyError, TypeError):
            raise UserError(
                "the saved data position cannot be read; resume from the checkpoint before it"
            ) from None
        lanes, texts = self._positions.shape
        if drawn.shape != (texts,):
            raise UserError(
                f"the saved data position is of {drawn.size} texts, this source has"
                f" {texts}: continue with the text that the run began with"
            )
        if positions.shape != (lanes, texts):
            raise UserError(
                "the saved data position is of an order of rows that this version does not have;"
                " continue with the version that the run began with, or begin anew"
            )
        self._seek(step, positions)

    def close(self) -> None:
        # Dropping the iterator ends TensorFlow's threads; an empty one refuses another batch.
        self._iterator = iter(())
