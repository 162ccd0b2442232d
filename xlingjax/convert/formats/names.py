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

from xlingjax.convert.formats.tensors import Tensors
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig
from xlingjax.model.params import flattened

_PARTS = {"kernel": "weight", "embedding": "weight", "scale": "weight", "bias": "bias"}
Row = tuple[str, tuple[int, ...] | None, tuple[int, ...] | None]
OF_WORDS = ("tokens/embedding", "head/bias")  # V rows there, padded ones here


@dataclasses.dataclass(frozen=True)
class Names:
    """A family's table."""

    modules: Mapping[str, str]
    """{our module: theirs}, with "{n}" for the number of a layer."""
    transposed: bool = True
    """Their linear layers are [out, in]."""

    def theirs(self, name: str) -> str | None:
        """What they call our parameter; None: their model has no place for it."""
        module, _, part = name.rpartition("/")
        return (
            f"{self.modules[module]}.{_PARTS[part]}" if module in self.modules else None
        )


@dataclasses.dataclass(frozen=True)
class Place:
    """A parameter of ours, and the tensors that it is there."""

    ours: str
    leaf: jax.ShapeDtypeStruct
    theirs: tuple[str, ...]
    """One for each layer, or one."""
    shape: tuple[int, ...]
    """Of each of theirs."""
    transposed: bool
    rows: int | None
    """Of words; ours has more, padding."""

    @property
    def stacked(self) -> bool:
        return "/layers/" in self.ours

    def to_ours(self, tensors: Iterable[np.ndarray]) -> np.ndarray:
        """tensors: one at a time, so that a large model stands in memory once."""
        made = np.zeros(self.leaf.shape, np.float32)
        for i, tensor in enumerate(tensors):
            into = made[i] if self.stacked else made[: self.rows]
            into[...] = (tensor.T if self.transposed else tensor).reshape(into.shape)
        return made

    def to_theirs(self, value: np.ndarray) -> dict[str, np.ndarray]:
        found = {}
        for name, one in zip(
            self.theirs, value if self.stacked else [value[: self.rows]], strict=True
        ):
            one = (
                one.reshape(self.shape[::-1]).T
                if self.transposed
                else one.reshape(self.shape)
            )
            found[name] = np.ascontiguousarray(one)
        return found


def places(
    names: Names, config: ModelConfig, abstract: Any
) -> tuple[list[Place], list[str]]:
    """(what of our parameters lies where in theirs, those that have no place there). abstract: ours
    as shapes."""
    found, without = [], []
    for name, leaf in flattened(abstract).items():
        theirs = names.theirs(name)
        if theirs is None:
            without.append(name)
            continue
        stacked, transposed, rows = "/layers/" in name, False, None
        shape = tuple(leaf.shape[1:] if stacked else leaf.shape)
        if name.endswith(OF_WORDS):
            rows = config.true_rows
            shape = (rows, *shape[1:])
        elif name.endswith("/kernel"):
            transposed = names.transposed
            inputs = (
                math.prod(shape[:-1])
                if name.endswith("attention/out/kernel")
                else shape[0]
            )
            shape = (inputs, math.prod(shape) // inputs)
            shape = shape[::-1] if transposed else shape
        elif name.endswith("/bias"):
            shape = (math.prod(shape),)
        layers = (
            tuple(theirs.replace("{n}", str(n)) for n in range(leaf.shape[0]))
            if stacked
            else (theirs,)
        )
        found.append(Place(name, leaf, layers, shape, transposed, rows))
    return found, without


def to_ours(
    found: Sequence[Place], tensors: Tensors, known: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """{our path: float32 array}.

    known: names of theirs that are read elsewhere or carry nothing. Raises `Differing` for what is
    missing, of
    another shape or unexpected, before any tensor is read, and UserError for a tensor with NaN or
    infinity in it.
    """
    wanted = {name: place.shape for place in found for name in place.theirs}
    there = tensors.shapes
    rows = [
        (name, shape, there.get(name))
        for name, shape in wanted.items()
        if there.get(name) != shape
    ]
    rows += [
        (name, None, shape)
        for name, shape in there.items()
        if name not in wanted and name not in known
    ]
    if rows:
        raise Differing(tensors.origin, rows)
    return {
        place.ours: place.to_ours(map(tensors.read, place.theirs)) for place in found
    }


class Differing(UserError):
    """Weights are not those that a configuration describes. The message names the first of them,
    `table` all."""

    def __init__(
        self, origin: str, rows: Sequence[Row], description: str = "config.json"
    ):
        lines = [(name, _size(wanted), _size(there)) for name, wanted, there in rows]
        name, wanted, there = lines[0]
        more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
        super().__init__(
            f"{origin}: its weights are not those that {description} describes: {name}: wanted"
            f" {wanted}, found {there}{more}; give files that belong together"
        )
        lines = [("weight", "wanted", "found"), *lines]
        widths = [max(len(line[i]) for line in lines) for i in range(2)]
        self.table = "\n".join(
            f"{a:{widths[0]}}  {b:{widths[1]}}  {c}" for a, b, c in lines
        )


def _size(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else " x ".join(map(str, shape)) or "a number"


def to_theirs(found: Sequence[Place], params: Any) -> dict[str, np.ndarray]:
    """{their name: float32 array}."""
    flat = flattened(params)
    return {
        name: one
        for place in found
        for name, one in place.to_theirs(np.asarray(flat[place.ours])).items()
    }
