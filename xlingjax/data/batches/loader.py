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
    from xlingjax.data.store.blocks import BlockText


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
    languages: Callable[[], Sequence[str]] | None = None
    """Gives the run's languages; None: not known before the source is open."""

    def __call__(self) -> BatchSource:
        return self.opener()


class OfText:
    """A `BatchSource` that may read text; texts: what it reads, () where that is no text;
    left_out: of each that is pairs, how many its rows have no room for."""

    texts: tuple[BlockText, ...] = ()
    left_out: Mapping[str, LeftOut] = MappingProxyType({})


class Peekable(OfText):
    """A `BatchSource` whose next batch can be looked at before it is taken, and its first at any
    time."""

    def __init__(self, source: BatchSource):
        self._source = source
        self._ahead: dict[str, np.ndarray] | None = None
        """The batch that was looked at."""
        self._first: dict[str, np.ndarray] | None = None
        self.shapes = source.shapes
        self.languages = source.languages
        self.identity = source.identity
        if isinstance(source, OfText):
            self.texts = source.texts
            self.left_out = source.left_out

    def peek(self) -> dict[str, np.ndarray]:
        if self._ahead is None:
            self._ahead = self._source.next()
        return self._ahead

    def first(self) -> dict[str, np.ndarray]:
        """The first batch of this start, taken or not."""
        if self._first is None:
            self._first = self.peek()
        return self._first

    def next(self) -> dict[str, np.ndarray]:
        batch = self.peek()
        self._ahead = None
        if self._first is None:
            self._first = batch
        return batch

    def state(self) -> int:
        # Of the batches taken, not of the one looked at.
        return self._source.state() - (self._ahead is not None)

    def restore(self, state: int) -> None:
        self._ahead = None
        self._first = None
        self._source.restore(state)

    def close(self) -> None:
        self._source.close()


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
        batch_rows = shape[0]
        begins = []
        ends = []
        for index in sharding.addressable_devices_indices_map(shape).values():
            begin, end, _ = index[0].indices(batch_rows)
            begins.append(begin)
            ends.append(end)
        # `local` begins with row 0 where the host read the whole batch, else with the first row of
        # its devices.
        start = min(begins)
        if local.shape[0] == batch_rows:
            start = 0
        # NumPy would cut the slice short, and JAX complain of a shape that nobody wrote.
        if max(ends) - start > local.shape[0]:
            raise UserError(
                f"this host read {local.shape[0]} of {batch_rows} rows but its devices hold rows "
                f"{min(begins)}..{max(ends)}; set data_shards=1"
            )

        def read(index: Any) -> np.ndarray:
            begin, end, _ = index[0].indices(batch_rows)
            rows_of_device = slice(begin - start, end - start)
            # Cast here and not before, so that only the rows of this host's devices are copied.
            return np.asarray(local[(rows_of_device, *index[1:])], dtype=FIELDS[name].dtype)

        return jax.make_array_from_callback(shape, sharding, read)

    return {name: place(name, array) for name, array in rows.items()}
