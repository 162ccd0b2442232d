"""Batches as a pure function of (seed, step), in tf.data.

A step draws which text each row comes from; each text goes through its rows in an order that is new
in every epoch; the preprocessor masks the batch. All of it is stateless, so a position is a step
and one count per text, restoring
takes no reading, prefetching cannot disturb it, and every host and every number of shards sees the
same batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from xlingjax.data import draws as random
from xlingjax.data.features import FIELDS
from xlingjax.data.rows import RowReader
from xlingjax.errors import UserError


@dataclass(frozen=True)
class BatchPlan:
    """Everything a step needs."""

    reader: RowReader
    map: Callable[[dict, Any], dict]
    fields: tuple[str, ...]
    shares: np.ndarray
    first_row: np.ndarray
    batch: int
    seed: int
    same_language: bool
    shuffle: bool
    epochs: int | None
    prefetch: int
    threads: int

    def finite_rows(self) -> np.ndarray:
        """Row numbers [steps, B] of a source with an end; -1 fills up."""
        spans = list(zip(self.first_row[:-1], self.first_row[1:], strict=True))
        spans = spans if self.same_language else [(0, self.first_row[-1])]
        rng = np.random.default_rng(self.seed)
        blocks = []
        for _ in range(self.epochs):
            for first, last in spans:
                rows = first + (
                    rng.permutation(last - first) if self.shuffle else np.arange(last - first)
                )
                blocks.append(
                    np.pad(rows, (0, -rows.size % self.batch), constant_values=-1).reshape(
                        -1, self.batch
                    )
                )
        return np.concatenate(blocks).astype(np.int64)

    def dataset(self, step: int, positions: np.ndarray, first: int, count: int) -> Any:
        """From `step` on: (fields of rows first .. first+count of the batch, rows drawn so far from
        each text)."""
        texts = len(self.shares)
        upper = tf.constant(np.cumsum(self.shares)[:-1], tf.float32)
        sizes = tf.constant(np.diff(self.first_row), tf.int64)
        first_row = tf.constant(self.first_row[:-1], tf.int64)

        def choose(drawn: Any, step: Any) -> Any:
            width = 1 if self.same_language else self.batch
            u = tf.random.stateless_uniform(
                [width], random.seed_pair(self.seed, random.CHOICE, step), alg="philox"
            )
            text = tf.broadcast_to(tf.searchsorted(upper, u, side="right"), [self.batch])
            member = tf.one_hot(text, texts, dtype=tf.int64)
            before = tf.gather(tf.cumsum(member, exclusive=True), text, batch_dims=1)
            place = tf.gather(drawn, text) + before
            after = drawn + tf.reduce_sum(member, axis=0)
            return after, (step, text, place, after)

        def rows_of(step: Any, text: Any, place: Any, after: Any) -> Any:
            text, place = text[first : first + count], place[first : first + count]
            size = tf.gather(sizes, text)
            index, epoch = place % size, place // size
            if self.shuffle:
                key = random.seed_pair(self.seed, random.ORDER, 0)[0] * 7919 + tf.cast(
                    text, tf.int64
                )
                index = random.permute(index, size, key * 1_000_003 + epoch)
            return fields_of(step, tf.gather(first_row, text) + index, after)

        def fields_of(step: Any, row: Any, after: Any) -> Any:
            made = self.map(
                self.reader(row), random.Draws(self.seed, step, self.batch, first, count)
            )
            return {name: made[name] for name in self.fields}, after

        # Nothing here needs autograph, and converting takes longer than tracing.
        plain = tf.autograph.experimental.do_not_convert
        start = tf.constant(positions, tf.int64)
        if self.epochs is None:
            data = tf.data.Dataset.counter(start=step).scan(start, plain(choose))
            make = rows_of
        else:
            rows = tf.constant(self.finite_rows()[:, first : first + count])
            data = tf.data.Dataset.range(step, rows.shape[0])

            def make(step: Any) -> Any:
                return fields_of(step, tf.gather(rows, step), start)

        data = data.map(plain(make), num_parallel_calls=self.threads, deterministic=True).prefetch(
            self.prefetch
        )
        options = tf.data.Options()
        options.autotune.enabled = False
        options.threading.private_threadpool_size = self.threads
        options.threading.max_intra_op_parallelism = 1
        return data.with_options(options)


class PlannedSource:
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
    ):
        if list(shards) != list(range(shards[0], shards[-1] + 1)) or shards[-1] >= data_shards:
            raise UserError(
                f"a host reads neighbouring data shards below {data_shards}, got {list(shards)}"
            )
        self._plan, self._shards = plan, shards
        share = plan.batch // data_shards
        self._first, self._count = shards[0] * share, len(shards) * share
        self.shapes, self.languages, self.identity = shapes, languages, identity
        self._seek(0, np.zeros(len(plan.shares), np.int64))

    def _seek(self, step: int, positions: np.ndarray) -> None:
        self._step, self._positions, self._iterator = step, positions, None

    def next(self) -> dict[str, np.ndarray]:
        if self._iterator is None:
            self._iterator = iter(
                self._plan.dataset(self._step, self._positions, self._first, self._count)
            )
        fields, positions = next(self._iterator)
        self._step, self._positions = self._step + 1, positions.numpy()
        return {
            name: value.numpy().astype(FIELDS[name].dtype, copy=False)
            for name, value in fields.items()
        }

    def state(self) -> dict[str, bytes]:
        position = json.dumps({"step": self._step, "rows_drawn": self._positions.tolist()}).encode()
        return {f"shard-{shard}": position for shard in self._shards}

    def restore(self, state: dict[str, bytes]) -> None:
        # Every shard is at the same step of the same global stream, so any entry will do, however
        # many there were.
        try:
            position = json.loads(next(iter(state.values())))
            step, positions = int(position["step"]), np.array(position["rows_drawn"], np.int64)
        except (StopIteration, ValueError, KeyError, TypeError):
            raise UserError(
                "the saved data position cannot be read; resume from the checkpoint before it"
            ) from None
        if positions.shape != self._positions.shape:
            raise UserError(
                f"the saved data position is of {positions.size} texts, this source has"
                f" {self._positions.size}: continue with the text that the run began with"
            )
        self._seek(step, positions)

    def close(self) -> None:
        self._iterator = iter(())
