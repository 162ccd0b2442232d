"""Where batches come from (`BatchSource`) and how a host's rows become global arrays. Imports no
TensorFlow."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from xlingjax.data.features import FIELDS
from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json

if TYPE_CHECKING:
    from xlingjax.data.blocks import BlockText
    from xlingjax.data.left_out import LeftOut
    from xlingjax.data.preprocessor import Preprocessor


# A protocol, so that a user's source need not inherit from anything here.
@runtime_checkable
class BatchSource(Protocol):
    """An endless (or, for evaluation, finite) stream of batches with an exact position.

    The global stream does not depend on the number of hosts: it is cut into virtual shards that
    each give an equal share of the rows, and a host reads the shards whose rows its devices hold.
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

    texts: tuple[BlockText, ...]
    left_out: Mapping[str, LeftOut] = MappingProxyType({})


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
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ):
        """shapes: of the largest batch; None: all are as the first."""
        if count < 1:
            raise UserError("a batch source needs at least one batch")
        self._read = read
        self._count = count
        self._epochs = epochs
        self._position = 0
        if shapes is None:
            # The first batch tells for all.
            first = read(0)
            shapes = {name: tuple(one.shape) for name, one in first.items()}
        self.shapes = dict(shapes)
        self.languages = tuple(languages)
        self.identity = identity

    def next(self) -> dict[str, np.ndarray]:
        if self._epochs is not None and self._position >= self._epochs * self._count:
            raise StopIteration
        batch = self._read(self._position % self._count)
        self._position += 1
        return batch

    def state(self) -> dict[str, bytes]:
        # Every host is at the same batch, so one entry does.
        return {"shard-0": json.dumps({"position": self._position}).encode()}

    def restore(self, state: dict[str, bytes]) -> None:
        if "shard-0" not in state:
            raise UserError(
                f"the saved data position has entries {sorted(state)}, this source needs 'shard-0'"
            )
        self._position = int(parsed_json(state["shard-0"])["position"])

    def close(self) -> None:
        pass


class Peekable(OfText):
    """A `BatchSource` whose next batch can be looked at before it is taken, and its first at any
    time."""

    def __init__(self, source: BatchSource):
        self._source = source
        # The batch looked at and the position before it: what `state` gives is the position of the
        # batches taken, not of those looked at.
        self._ahead: tuple[dict[str, bytes], dict[str, np.ndarray]] | None = None
        self._first: dict[str, np.ndarray] | None = None
        self.shapes = source.shapes
        self.languages = source.languages
        self.identity = source.identity
        self.texts = ()
        if isinstance(source, OfText):
            self.texts = source.texts
            self.left_out = source.left_out

    def peek(self) -> dict[str, np.ndarray]:
        if self._ahead is None:
            # Before `next`, which moves it.
            before = self._source.state()
            self._ahead = (before, self._source.next())
        _, batch = self._ahead
        return batch

    def first(self) -> dict[str, np.ndarray]:
        """The first batch of this start, taken or not."""
        if self._first is None:
            self._first = self.peek()
        return self._first

    def next(self) -> dict[str, np.ndarray]:
        if self._ahead is None:
            batch = self._source.next()
        else:
            _, batch = self._ahead
            self._ahead = None
        if self._first is None:
            self._first = batch
        return batch

    def state(self) -> dict[str, bytes]:
        if self._ahead is None:
            return self._source.state()
        before, _ = self._ahead
        return before

    def restore(self, state: dict[str, bytes]) -> None:
        self._ahead = None
        self._first = None
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
    if identity is None:
        identity = {"kind": "arrays", "batches": len(batches)}

    def read(index: int) -> dict[str, np.ndarray]:
        # A copy, so that a caller who adds a field does not change what the next epoch reads.
        return dict(batches[index])

    return CountedSource(read, len(batches), languages=languages, identity=identity, epochs=epochs)


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
