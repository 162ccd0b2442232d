"""Where batches come from (`BatchSource`) and how a host's rows become global arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from xlingjax.data.features import FIELDS
from xlingjax.errors import UserError

if TYPE_CHECKING:
    from xlingjax.data.rows.plan import LeftOut, Preprocessor
    from xlingjax.data.store.tokenise import BlockText


Arrays = dict[str, np.ndarray]
ENDLESS = 1 << 62
"""Batches of a source without an end."""


# A protocol, so that a user's source need not inherit from anything here.
@runtime_checkable
class BatchSource(Protocol):
    """An endless (or, for evaluation, finite) stream of batches with an exact position.

    The global stream does not depend on the number of hosts: a host reads the rows of a batch that
    its devices hold, or all of them.
    """

    shapes: dict[str, tuple[int, ...]]
    """Global shape of every field; dtypes are in `features.FIELDS`. Batches may be shorter in the
    axis of tokens, all hosts' alike."""
    languages: tuple[str, ...]
    """Sorted run languages: the index is the language id."""
    identity: dict[str, Any]
    """JSON values that must be equal for a position to be valid (mixture, vocabulary hash, lengths,
    sampling ...)."""

    def next(self) -> dict[str, np.ndarray]:
        """This host's rows of the next global batch. Raises StopIteration at the end of a finite
        source."""

    def state(self) -> int:
        """The position after the last `next()`: the number of the next batch."""

    def restore(self, state: int) -> None:
        """Continues from a position: the next batch is the one that would have followed."""

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
    """How many of the model's positions the rows use, where these are not as many as their columns;
    0: they are."""
    preprocessor: Preprocessor | None = None
    """What makes them of text; None: they are not made of text."""
    shortest: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    """Shapes of the shortest batch; {}: all batches have `shapes`."""

    def __call__(self) -> BatchSource:
        return self.opener()


def first_batch(source: BatchSource) -> dict[str, np.ndarray]:
    """This host's rows of the first batch of all; the position stays as it is."""
    position = source.state()
    source.restore(0)
    batch = source.next()
    source.restore(position)
    return batch


def to_global(
    rows: Mapping[str, np.ndarray], sharding: Any, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Global `jax.Array`s from this host's rows.

    `sharding` places the row axis (it may leave the other axes out); `shapes` are the source's
    global shapes. The host has either all rows of the batch or exactly the contiguous rows its own
    devices hold. Raises UserError when it has neither.
    """
    import jax

    def place(name: str, local: np.ndarray) -> jax.Array:
        shape = tuple(shapes[name])
        held = [
            index[0].indices(shape[0])[:2]
            for index in sharding.addressable_devices_indices_map(shape).values()
        ]
        # `local` begins with row 0 where the host read the whole batch, else with the first row of
        # its devices.
        start = 0 if local.shape[0] == shape[0] else min(begin for begin, _ in held)
        end = max(end for _, end in held)
        # NumPy would cut the slice short, and JAX complain of a shape that nobody wrote.
        if end - start > local.shape[0]:
            raise UserError(
                f"this host read {local.shape[0]} of {shape[0]} rows and its devices hold rows up"
                f" to {end}; set data_shards=1"
            )

        def read(index: Any) -> np.ndarray:
            begin, end, _ = index[0].indices(shape[0])
            rows_of_device = slice(begin - start, end - start)
            # Cast here and not before, so that only the rows of this host's devices are copied.
            return np.asarray(local[(rows_of_device, *index[1:])], dtype=FIELDS[name].dtype)

        return jax.make_array_from_callback(shape, sharding, read)

    return {name: place(name, array) for name, array in rows.items()}


class NumberedSource:
    """Batch n is `batches[n]`; a position is the number of the next batch. Batches are made ahead
    of their use, in Grain's threads.

    threads, prefetch: batches are made by so many threads, so many ahead; 0: when they are asked
    for. texts: what is read, where that is text; left_out: of each that is pairs, how many its rows
    have no room for. The others: see `BatchSource`.
    """

    texts: tuple[BlockText, ...] = ()
    left_out: Mapping[str, LeftOut] = MappingProxyType({})

    def __init__(
        self,
        batches: Any,
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
        # Here: what is not trained needs no Grain, whose import takes long.
        import grain

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


class _Repeated:
    """Batches again and again: for ever (None), or so many times."""

    def __init__(self, batches: Sequence[Mapping[str, np.ndarray]], epochs: int | None):
        self._batches = batches
        self._steps = ENDLESS if epochs is None else epochs * len(batches)

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> Arrays:
        # A copy, so that a caller who adds a field does not change what the next epoch reads.
        return dict(self._batches[step % len(self._batches)])


def array_source(
    batches: Sequence[Mapping[str, np.ndarray]],
    *,
    languages: Sequence[str] = ("en",),
    identity: dict[str, Any] | None = None,
    epochs: int | None = None,
) -> BatchSource:
    """A source over batches held in memory, in order, repeated `epochs` times (None: for ever)."""
    return NumberedSource(
        _Repeated(batches, epochs),
        shapes={name: array.shape for name, array in batches[0].items()},
        languages=languages,
        identity=identity or {"kind": "arrays", "batches": len(batches)},
    )


def as_declared(batch: Arrays, fields: Sequence[str]) -> Arrays:
    """The fields of a batch, in the types that `features.FIELDS` says."""
    return {name: batch[name].astype(FIELDS[name].dtype, copy=False) for name in fields}
