"""The SeqIO task whose examples are the rows of an objective."""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import Mapping
from typing import Any

import seqio
import tensorflow as tf

APART = 1_000_003
"""Between the seeds of two shards: SeqIO counts the preprocessors of one up from its seed."""


class RowTask(seqio.Task):
    """A task made of a task of text: it reads that one's SeqIO cache where it has none itself, and
    its shards draw apart.

    SeqIO gives row i of every shard the same seed, so that the same places of other rows would be
    masked; here only shard 0 has SeqIO's seed.
    """

    def __init__(self, name: str, *, text: seqio.Task, **given: Any):
        super().__init__(name, **given)
        self._text = text
        self._shard: contextvars.ContextVar[int]
        self._shard = contextvars.ContextVar("shard", default=0)

    @property
    def cache_dir(self) -> str | None:
        return super().cache_dir or self._text.cache_dir

    def get_dataset(self, *given: Any, **named: Any) -> tf.data.Dataset:
        signature = inspect.signature(seqio.Task.get_dataset)
        bound = signature.bind(self, *given, **named).arguments
        shard_info = bound.get("shard_info") or seqio.ShardInfo(0, 1)
        token = self._shard.set(shard_info.index)
        try:
            return super().get_dataset(*given, **named)
        finally:
            self._shard.reset(token)

    def preprocess_postcache(
        self,
        dataset: tf.data.Dataset,
        sequence_length: Mapping[str, int] | None,
        seed: int | None = None,
    ) -> tf.data.Dataset:
        if seed is not None:
            seed += APART * self._shard.get()
        return super().preprocess_postcache(dataset, sequence_length, seed)
