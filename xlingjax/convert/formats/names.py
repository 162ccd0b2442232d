"""Our names of parameters beside those of another program, and the two ways through such a table.

Ours are the paths on disk (`encoder/layers/attention/query/kernel`, every layer in one array);
theirs name each layer's tensor by itself. PyTorch keeps a linear layer as [out, in]; ours is [in,
out], with the heads apart.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from xlingjax.convert.formats.tensors import Arrays, Tensors
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig
from xlingjax.model.params import flattened

# PyTorch calls the scale of a norm and a table "weight", too.
_PARTS = {"kernel": "weight", "embedding": "weight", "scale": "weight", "bias": "bias"}
Row = tuple[str, tuple[int, ...] | None, tuple[int, ...] | None]
"""A name, the shape wanted of it (None: no such weight), the shape that it has (None: missing)."""
OF_WORDS = ("tokens/embedding", "head/bias")  # names' ends where V rows are there, padded here


@dataclasses.dataclass(frozen=True)
class Place:
    """A parameter of ours, and the tensors that it is there."""

    ours: str
    leaf: jax.ShapeDtypeStruct
    theirs: tuple[str, ...]  # one for each layer, or one
    layers: bool  # ours has those of all layers
    first: int  # layers before which have none there
    shape: tuple[int, ...]  # of each of theirs
    transposed: bool
    rows: int | None  # of words; ours has more, padding

    def to_ours(self, tensors: Iterable[np.ndarray]) -> np.ndarray:
        """tensors: one at a time, so that a large model stands in memory once."""
        # Rows of padding behind the words are written by nothing, nor is a norm that is not there.
        value = np.full(self.leaf.shape, self.ours.endswith("/scale"), np.float32)
        for layer, tensor in enumerate(tensors, self.first):
            part = value[layer] if self.layers else value[: self.rows]
            part[...] = (tensor.T if self.transposed else tensor).reshape(part.shape)
        return value

    def to_theirs(self, value: np.ndarray) -> Arrays:
        tensors = {}
        layers = value[self.first :] if self.layers else [value[: self.rows]]
        for name, layer in zip(self.theirs, layers, strict=True):
            tensor = layer.reshape(self.shape)
            if self.transposed:
                tensor = layer.reshape(self.shape[::-1]).T
            # safetensors writes the memory as it lies, whatever the strides.
            tensors[name] = np.ascontiguousarray(tensor)
        return tensors


def places(
    modules: Mapping[str, str], config: ModelConfig, abstract: Any, transposed: bool = True
) -> tuple[list[Place], list[str]]:
    """(what of our parameters lies where in theirs, those that have no place there). modules:
    {ours: theirs}, with "{n}" for the number of a layer; abstract: ours as shapes; transposed:
    their linear layers are [out, in]."""
    table = []
    without = []
    for name, leaf in flattened(abstract).items():
        module, _, part = name.rpartition("/")
        if module not in modules:
            without.append(name)
            continue
        theirs = f"{modules[module]}.{_PARTS[part]}"
        layers = "/layers/" in name
        shape = tuple(leaf.shape)[layers:]
        first = int("/attention_norm/" in name and not config.first_norm)
        numbers = range(first, leaf.shape[0] if layers else 1)
        named = tuple(theirs.replace("{n}", str(n)) for n in numbers)
        turned = False
        rows = None
        if name.endswith(OF_WORDS):
            # The padding is ours: their tables end with the last word.
            rows = config.true_rows
            shape = (rows, *shape[1:])
        elif name.endswith("/kernel"):
            # The heads stand apart behind query, key and value, and before what joins them.
            inputs = shape[0]
            if name.endswith("attention/out/kernel"):
                inputs = math.prod(shape[:-1])
            shape = (inputs, math.prod(shape) // inputs)
            turned = transposed
            if turned:
                shape = shape[::-1]
        elif name.endswith("/bias"):
            shape = (math.prod(shape),)
        table.append(Place(name, leaf, named, layers, first, shape, turned, rows))
    return table, without


def to_ours(table: Sequence[Place], tensors: Tensors, known: Sequence[str] = ()) -> Arrays:
    """{our path: float32 array}.

    known: names of theirs that are read elsewhere or carry nothing. Raises `Differing` for what is
    missing, of another shape or unexpected, before any tensor is read, and UserError for a tensor
    with NaN or infinity in it.
    """
    wanted = {}
    for place in table:
        wanted |= dict.fromkeys(place.theirs, place.shape)
    expected = [name for name in tensors.shapes if name in wanted or name not in known]
    rows = difference(wanted, {name: tensors.shapes[name] for name in expected})
    if rows:
        raise Differing(tensors.origin, rows)
    return {place.ours: place.to_ours(map(tensors.read, place.theirs)) for place in table}


def difference(
    wanted: Mapping[str, tuple[int, ...]], shapes: Mapping[str, tuple[int, ...]]
) -> list[Row]:
    """(name, wanted shape, shape) of what is missing or differs, then of what is not wanted."""
    names = dict.fromkeys((*wanted, *shapes))
    rows = [(name, wanted.get(name), shapes.get(name)) for name in names]
    return [(name, shape, found) for name, shape, found in rows if shape != found]


class Differing(UserError):
    """Weights are not those that a configuration describes."""

    def __init__(self, origin: str, rows: Sequence[Row], description: str = "config.json"):
        name, wanted, found = rows[0]
        # One of them: the names of a whole model would hide what is to be done.
        more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
        super().__init__(
            f"{origin}: its weights are not those that {description} describes: {name}: wanted"
            f" {_size(wanted)}, found {_size(found)}{more}; give files that belong together"
        )


def _size(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else " x ".join(map(str, shape)) or "a number"


def to_theirs(table: Sequence[Place], params: Any) -> Arrays:
    """{their name: float32 array}."""
    flat = flattened(params)
    tensors = {}
    for place in table:
        tensors |= place.to_theirs(np.asarray(flat[place.ours]))
    return tensors
