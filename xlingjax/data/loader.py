"""Where batches come from (`BatchSource`) and how a host's rows become global arrays. Imports no
TensorFlow."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from xlingjax.data.features import FIELDS
from xlingjax.errors import UserError


@runtime_checkable
class BatchSource(Protocol):
    """An endless (or, for evaluation, finite) stream of batches with an exact position.

    The global stream does not depend on the number of hosts: it is cut into virtual shards that
    each give an equal share of the rows, and a host reads the shards whose rows its devices hold.
    """

    shapes: dict[str, tuple[int, ...]]
    """Global shape of every field; dtypes are in `features.FIELDS`."""
    languages: tuple[str, ...]
    """Sorted run languages: the index is the language id."""
    identity: dict[str, Any]
    """JSON values that must be equal for a position to be valid (mixture, vocabulary hash, lengths,
    sampling ...)."""

    def next(self) -> dict[str, np.ndarray]:
        """This host's rows of the next global batch. Raises StopIteration at the end of a finite
        source."""

    def state(self) -> dict[str, bytes]:
        """The position after the last `next()`, one entry per virtual shard read here: {"shard-0":
        ...}."""

    def restore(self, state: dict[str, bytes]) -> None:
        """Continues from a position: the next batch is the one that would have followed. Raises
        UserError."""

    def close(self) -> None:
        """Frees threads and files; the source is not usable afterwards."""


@dataclasses.dataclass(frozen=True)
class Batches:
    """What opens an objective's batches when called, and what is known of them before."""

    shapes: Mapping[str, tuple[int, ...]]
    """Global shape of every field; {}: not known before the source is open."""
    opener: Callable[[], BatchSource]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """How they are made, for the run's record."""
    positions: int = 0
    """How many of the model's positions the rows use, where these are more than their columns."""

    def __call__(self) -> BatchSource:
        return self.opener()


class CountedSource:
    """A `BatchSource` over batches that can be read by number: the position is a count.

    `read(i)` gives global batch i of `count`; `epochs=None` repeats them for ever, otherwise the
    source ends.
    """

    def __init__(
        self,
        read,
        count: int,
        *,
        languages: Sequence[str],
        identity: dict[str, Any],
        epochs: int | None,
    ):
        if count < 1:
            raise UserError("a batch source needs at least one batch")
        self._read, self._count, self._epochs, self._position = read, count, epochs, 0
        self.shapes = {name: tuple(array.shape) for name, array in read(0).items()}
        self.languages = tuple(languages)
        self.identity = identity

    def next(self) -> dict[str, np.ndarray]:
        if self._epochs is not None and self._position >= self._epochs * self._count:
            raise StopIteration
        batch = self._read(self._position % self._count)
        self._position += 1
        return batch

    def state(self) -> dict[str, bytes]:
        return {"shard-0": json.dumps({"position": self._position}).encode()}

    def restore(self, state: dict[str, bytes]) -> None:
        if "shard-0" not in state:
            raise UserError(
                f"the saved data position has entries {sorted(state)}, this source needs 'shard-0'"
            )
        self._position = int(json.loads(state["shard-0"])["position"])

    def close(self) -> None:
        pass


class Peekable:
    """A `BatchSource` whose next batch can be looked at before it is taken."""

    def __init__(self, source: BatchSource):
        self._source, self._ahead = source, None
        self.shapes, self.languages, self.identity = (
            source.shapes,
            source.languages,
            source.identity,
        )

    def peek(self) -> dict[str, np.ndarray]:
        if self._ahead is None:
            self._ahead = self._source.state(), self._source.next()
        return self._ahead[1]

    def next(self) -> dict[str, np.ndarray]:
        if self._ahead is None:
            return self._source.next()
        (_, batch), self._ahead = self._ahead, None
        return batch

    def state(self) -> dict[str, bytes]:
        return self._source.state() if self._ahead is None else self._ahead[0]

    def restore(self, state: dict[str, bytes]) -> None:
        self._ahead = None
        self._source.restore(state)

    def close(self) -> None:
        self._source.close()


def array_source(
    batches: Sequence[Mapping[str, np.ndarray]],
    *,
    languages: Sequence[str] = ("en",),
    identity: dict[str, Any] | None = None,
    epochs: int | None = None,
) -> BatchSource:
    """A source over batches held in memory, in order, repeated `epochs` times (None: for ever)."""
    return CountedSource(
        lambda index: dict(batches[index]),
        len(batches),
        languages=languages,
        identity={"kind": "arrays", "batches": len(batches)} if identity is None else identity,
        epochs=epochs,
    )


def to_global(
    rows: Mapping[str, np.ndarray], sharding: Any, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Global `jax.Array`s from this host's rows.

    `sharding` places the row axis (it may leave the other axes out); `shapes` are the source's
    global shapes. The
    host has either all rows of the batch or exactly the contiguous rows its own devices hold.
    Raises UserError
    when it has neither.
    """
    import jax

    def place(name: str, local: np.ndarray) -> jax.Array:
        shape = tuple(shapes[name])
        slices = [
            index[0].indices(shape[0])[:2]
            for index in sharding.addressable_devices_indices_map(shape).values()
        ]
        start = 0 if local.shape[0] == shape[0] else min(begin for begin, _ in slices)
        if max(end for _, end in slices) - start > local.shape[0]:
            raise UserError(
                f"this host read {local.shape[0]} of {shape[0]} rows but its devices hold rows "
                f"{min(slices)[0]}..{max(end for _, end in slices)}; set data_shards=1"
            )

        def read(index: tuple[slice, ...]) -> np.ndarray:
            begin, end, _ = index[0].indices(shape[0])
            return np.asarray(
                local[(slice(begin - start, end - start), *index[1:])], dtype=FIELDS[name].dtype
            )

        return jax.make_array_from_callback(shape, sharding, read)

    return {name: place(name, array) for name, array in rows.items()}
