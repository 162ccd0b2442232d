"""A forward pass over many rows: compiled once, in batches of one size, on one device or a mesh."""

import functools
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xlingjax.data.batches.loader import to_global
from xlingjax.data.row_lengths import padded_length
from xlingjax.model.build import build_model
from xlingjax.model.encoder import Encoder
from xlingjax.model.partition import batch_sharding

Rows = Mapping[str, np.ndarray]

GROUPED_BATCHES = 8  # fewer batches are all padded alike


@functools.lru_cache(maxsize=256)
def compiled(
    function: Callable, model: Encoder, mesh: Mesh | None, *settings: Hashable
) -> Callable:
    """jit of (params, batch, ...) -> function(model, *settings, params, batch, ...), the model on
    attention backend "xla" and what comes back whole on every device.

    Equal arguments give the same program, so a step of the training loop compiles nothing that the
    one before has compiled. `function` must be of a module: a lambda is another one at every call.
    """
    # Model and settings are constants of the program; parameters, which change, its arguments.
    run = functools.partial(function, on_xla(model, mesh), *settings)
    if mesh is None:
        return jax.jit(run)
    # Whole on every device, so that every process can read it without asking the others.
    return jax.jit(run, out_shardings=NamedSharding(mesh, PartitionSpec()))


def by_batch(
    run: Callable, params: Any, rows: Rows, size: int, mesh: Mesh | None = None
) -> Iterator[tuple[Any, int]]:
    """(what `run` gives, the number of true rows in it) of each batch.

    size: rows of a batch, rounded up to what the mesh divides. The last batch is filled up with
    rows of zeros, which are padding to every objective.
    """
    multiple = row_multiple(mesh)
    size = -(-size // multiple) * multiple
    total = len(rows["input_ids"])
    for start in range(0, total, size):
        batch = {}
        for name, values in rows.items():
            # One shape for all batches: a shorter last one would be a compilation of its own.
            batch[name] = _filled_up(values[start : start + size], size)
        yield run(params, place(batch, mesh)), min(size, total - start)


def by_row(run: Callable, params: Any, rows: Rows, size: int, mesh: Mesh | None = None) -> Any:
    """What `run` gives for all rows, in their order, as NumPy arrays; `run` gives one array, or a
    tuple of arrays, rows first. size: see `by_batch`. Raises ValueError where there are no rows."""
    parts = []
    for found, count in by_batch(run, params, rows, size, mesh):
        arrays, form = jax.tree.flatten(found)
        # Copied to the host at once: the next batch may need the device's memory.
        parts.append([np.asarray(array)[:count] for array in arrays])
    if not parts:
        raise ValueError("no rows to run the model on")
    whole = [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
    return jax.tree.unflatten(form, whole)


def by_length(
    run: Callable,
    params: Any,
    rows: Rows,
    size: int,
    mesh: Mesh | None = None,
    *,
    texts: int = 1,
    of_tokens: bool = False,
) -> Any:
    """As `by_row`, one array alone: of many rows those of about one length together, padded to one
    of a few lengths. texts: side by side in a row, each padded by itself. of_tokens: what `run`
    gives has tokens on axis 1, and has zeros where it was not computed."""
    pack_NHL = _by_text(rows["pack_ids"], texts)
    total, _, length = pack_NHL.shape
    # A program for each length costs more than the padding of a few batches.
    if total < GROUPED_BATCHES * size:
        return by_row(run, params, rows, size, mesh)
    longest_N = (pack_NHL > 0).sum(axis=-1).max(axis=-1)
    order = np.argsort(longest_N, kind="stable")
    whole = None
    for start in range(0, total, size):
        chosen = order[start : start + size]
        padded = padded_length(int(longest_N[chosen[-1]]), length)
        batch = {}
        for name, values in rows.items():
            batch[name] = values[chosen]
            if values.ndim > 1:
                kept = _by_text(batch[name], texts)[:, :, :padded]
                batch[name] = kept.reshape(len(chosen), -1)
        found = by_row(run, params, batch, size, mesh)
        if whole is None:
            shape = found.shape[1:]
            if of_tokens:
                shape = (texts, length, *shape[1:])
            whole = np.zeros((total, *shape), found.dtype)
        if of_tokens:
            whole[chosen, :, :padded] = _by_text(found, texts)
        else:
            whole[chosen] = found
    if of_tokens:
        whole = whole.reshape(total, texts * length, *whole.shape[3:])
    return whole


def _by_text(values: np.ndarray, texts: int) -> np.ndarray:
    """[N, H, L, ...] of [N, H * L, ...]."""
    return values.reshape(len(values), texts, -1, *values.shape[2:])


def _filled_up(values: np.ndarray, size: int) -> np.ndarray:
    widths = [(0, 0)] * values.ndim
    widths[0] = (0, size - len(values))
    return np.pad(values, widths)


def on_xla(model: Encoder, mesh: Mesh | None) -> Encoder:
    """The model with backend "xla" and the same parameters: others may refuse packed rows."""
    if model.config.attention_backend == "xla":
        return model
    return _built(model.config.replace(attention_backend="xla"), mesh)


# `compiled` tells models apart by identity, so equal configurations must be one model.
_built = functools.lru_cache(maxsize=8)(build_model)


def place(batch: Rows, mesh: Mesh | None) -> Any:
    """The batch, rows over the mesh's data axes; every process holds all rows and gives its own."""
    if mesh is None:
        return batch
    shapes = {name: array.shape for name, array in batch.items()}
    return to_global(batch, batch_sharding(mesh), shapes)


def row_multiple(mesh: Mesh | None) -> int:
    """A batch must have a multiple of this many rows."""
    return 1 if mesh is None else mesh.shape["data"] * mesh.shape["fsdp"]
