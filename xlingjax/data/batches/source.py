"""A `BatchSource` over batches that are made by number, ahead of their use, in Grain's threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import grain
import numpy as np

from xlingjax.data.batches.loader import BatchSource, OfText
from xlingjax.data.batches.order import ENDLESS
from xlingjax.data.features import FIELDS

Arrays = dict[str, np.ndarray]


class Steps(Protocol):
    """Anything by the number of a batch."""

    def __len__(self) -> int: ...

    def __getitem__(self, step: int) -> Any: ...


class NumberedSource(OfText):
    """Batch n is `batches[n]`; a position is the number of the next batch.

    threads, prefetch: batches are made by so many threads, so many ahead; 0: when they are asked
    for. The others: see `BatchSource`.
    """

    def __init__(
        self,
        batches: Steps,
        *,
        shapes: Mapping[str, tuple[int, ...]],
        languages: Sequence[str],
        identity: dict[str, Any],
        threads: int = 1,
        prefetch: int = 0,
    ):
        self.shapes = dict(shapes)
        self.languages = tuple(languages)
        self.identity = identity
        self.batches = batches
        # Fewer batches ahead than threads would leave some of these idle.
        ahead = max(prefetch, threads) if prefetch else 0
        options = grain.ReadOptions(num_threads=threads if ahead else 0, prefetch_buffer_size=ahead)
        self._iterator = iter(grain.MapDataset.source(batches).to_iter_dataset(options))

    def next(self) -> Arrays:
        return next(self._iterator)

    def state(self) -> int:
        return self._iterator.get_state()["next_index"]

    def restore(self, state: int) -> None:
        self._iterator.set_state({"next_index": state})

    def close(self) -> None:
        self._iterator.close()


class Repeated:
    """Batches `read(0)` .. `read(count - 1)` again and again: for ever (None), or so many times."""

    def __init__(self, read: Callable[[int], Arrays], count: int, epochs: int | None):
        self._read = read
        self._count = count
        self._steps = ENDLESS if epochs is None else epochs * count

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> Arrays:
        return self._read(step % self._count)


def array_source(
    batches: Sequence[Mapping[str, np.ndarray]],
    *,
    languages: Sequence[str] = ("en",),
    identity: dict[str, Any] | None = None,
    epochs: int | None = None,
) -> BatchSource:
    """A source over batches held in memory, in order, repeated `epochs` times (None: for ever)."""
    if identity is None:
        identity = {"kind": "arrays", "batches": len(batches)}

    def read(number: int) -> Arrays:
        # A copy, so that a caller who adds a field does not change what the next epoch reads.
        return dict(batches[number])

    return NumberedSource(
        Repeated(read, len(batches), epochs),
        shapes={name: array.shape for name, array in batches[0].items()},
        languages=languages,
        identity=identity,
    )


def as_declared(batch: Arrays, fields: Sequence[str]) -> Arrays:
    """The fields of a batch, in the types that `features.FIELDS` says."""
    return {name: batch[name].astype(FIELDS[name].dtype, copy=False) for name in fields}
