"""Tensors of another program as our parameters: what the families have in common.

A family is a file of this folder:

- `config_of(fields, name)`: our configuration of what its config.json describes;
- `names_of(config)`: the table of names;
- `usual(tensors)`: each tensor under its name in that table, and under one name; or, where the
  tensors tell more of the model, `prepared(config, tensors)`, which gives both;
- `HEAD`: how the names of its vocabulary head begin; None where the head has no weights of its own;
- `LEFT`, `WITHOUT_MEANING`: how the names begin of what is left behind, with a word about it and
  without.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from xlingjax.convert.formats.names import Differing, places, to_ours
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.errors import UserError
from xlingjax.model.build import build_model
from xlingjax.model.config import ModelConfig
from xlingjax.model.params import flattened, nested


@dataclasses.dataclass(frozen=True)
class Converted:
    config: ModelConfig
    params: Any
    vocabulary_head: bool
    """Came with it; else it is random."""
    notes: tuple[str, ...]
    """What was made up or left behind."""


def converted(family: ModuleType, config: ModelConfig, tensors: Tensors) -> Converted:
    """Raises `Differing` for weights that the configuration does not describe, UserError for NaN in
    them."""
    # First of all: everything below asks by the names in the family's table.
    if hasattr(family, "prepared"):
        config, tensors = family.prepared(config, tensors)
    else:
        tensors = family.usual(tensors)
    abstract = build_model(config).abstract()
    table, without = places(family.names_of(config), config, abstract)
    notes = list(tensors.notes)
    # The class of such a checkpoint has no head, or it was saved without the one it had.
    fresh = {name for name in without if name.startswith("head/")}
    if family.HEAD and not _begin(tensors.shapes, family.HEAD):
        fresh.update(_begin([place.ours for place in table], "head/"))
    if fresh:
        what = "the words' alone, without a bias"
        if any(name.endswith("kernel") for name in fresh):
            what = "random"
        notes.append(f"the vocabulary head is {what}: the checkpoint has none")
    # Only heads may be made up: a body with random parts would look like the model and not be it.
    for name in without:
        if name not in fresh:
            raise UserError(
                f"{tensors.origin}: such a model has no {name}, which {config.name} needs"
            )
    table = [place for place in table if place.ours not in fresh]
    wanted = set()
    for place in table:
        wanted.update(place.theirs)
    free = [name for name in tensors.shapes if name not in wanted]
    # Only what is there is said to be left behind.
    left = [start for start in family.LEFT if _begin(free, start)]
    if left:
        modules = [start.removesuffix(".") for start in left]
        notes.append(f"left behind: {', '.join(modules)}")
    known = _begin(free, (*family.LEFT, *family.WITHOUT_MEANING))
    # Shapes are compared before any tensor is read, so a wrong folder fails in no time.
    params = to_ours(table, tensors, known)
    params.update(_random(fresh, config, abstract))
    return Converted(config, nested(params), not fresh, tuple(notes))


def _begin(names: Iterable[str], start: str | tuple[str, ...]) -> list[str]:
    return [name for name in names if name.startswith(start)]


def within(
    tensors: Tensors, body: str, beside: tuple[str, ...], tied: Mapping[str, str]
) -> Tensors:
    """`renamed`, with `body` before every name that does not begin with it or with one of `beside`:
    a bare model has its tensors without the name that a model with a head has for it."""

    def rename(name: str) -> str:
        if name.startswith((body, *beside)):
            return name
        return body + name

    return renamed(tensors, rename, tied)


def renamed(tensors: Tensors, rename: Callable[[str], str], tied: Mapping[str, str]) -> Tensors:
    """Each tensor under its usual name, and under one. tied: {another name of the same tensor: the
    usual one}. Raises UserError for names that are tied and tensors that are not."""
    own: dict[str, str] = {}
    for name in tensors.shapes:
        usual = rename(_today(name))
        if usual in own:
            raise UserError(f"{tensors.origin}: {name} and {own[usual]} are one weight; leave one")
        own[usual] = name
    # A pickle may hold a tied tensor under each of its names, safetensors under any one of them.
    for alias, name in tied.items():
        if alias in own and name in own:
            if not np.array_equal(tensors.fetch(own[alias]), tensors.fetch(own[name])):
                raise UserError(
                    f"{tensors.origin}: {alias} is not {name}; xlingjax has heads tied to the words"
                    " alone"
                )
            del own[alias]
        elif alias in own:
            own[name] = own.pop(alias)
    shapes = {name: tensors.shapes[there] for name, there in own.items()}
    return dataclasses.replace(tensors, shapes=shapes, fetch=lambda name: tensors.fetch(own[name]))


# Of weights that were converted from TensorFlow.
_OLD_PARTS = {"gamma": "weight", "beta": "bias"}
_NORMS = ("LayerNorm", "layer_norm", "layernorm_embedding")


def _today(name: str) -> str:
    """The name of a tensor as transformers writes it today and renames older ones."""
    start, _, part = name.rpartition(".")
    if part in _OLD_PARTS and start.endswith(_NORMS):
        return f"{start}.{_OLD_PARTS[part]}"
    return name


def unfused(tensors: Tensors) -> Tensors:
    """`in_proj_weight` and `in_proj_bias`, query, key and value below each other, as three tensors
    each."""
    thirds: dict[str, tuple[str, int]] = {}
    shapes = {}
    for name, shape in tensors.shapes.items():
        start, _, part = name.rpartition(".in_proj_")
        if start and part in ("weight", "bias") and shape and shape[0] % 3 == 0:
            for third, projection in enumerate("qkv"):
                unfused_name = f"{start}.{projection}_proj.{part}"
                thirds[unfused_name] = (name, third)
                shapes[unfused_name] = (shape[0] // 3, *shape[1:])
        else:
            shapes[name] = shape

    def fetch(name: str) -> np.ndarray:
        if name not in thirds:
            return tensors.fetch(name)
        fused, third = thirds[name]
        return np.split(tensors.fetch(fused), 3)[third]

    return dataclasses.replace(tensors, shapes=shapes, fetch=fetch)


def folded(tensors: Tensors, positions: str, segments: str, pairs: bool = False) -> Tensors:
    """The first row of the table `segments`, that of a text alone, becomes part of what the table
    `positions` gives. pairs: the table stays, as what each segment has beside the first; else every
    token is of that one. Raises `Differing`."""
    there = tensors.shapes.get(segments)
    beside = tensors.shapes.get(positions)
    if there is None or beside is None or len(beside) != 2:
        return tensors
    if len(there) != 2 or there[0] < 1 or there[1] != beside[1]:
        raise Differing(tensors.origin, [(segments, (1, beside[1]), there)])

    def fetch(name: str) -> np.ndarray:
        if name == segments:
            # What the first row gives is part of the positions already.
            return tensors.read(segments) - tensors.read(segments)[0]
        if name != positions:
            return tensors.fetch(name)
        return tensors.read(positions) + tensors.read(segments)[0]

    if pairs and there[0] > 1:
        return dataclasses.replace(tensors, fetch=fetch)
    shapes = dict(tensors.shapes)
    del shapes[segments]
    notes = tensors.notes
    if there[0] > 1:
        notes += (f"left behind: rows of {segments} after the first, every token is of segment 0",)
    return dataclasses.replace(tensors, shapes=shapes, fetch=fetch, notes=notes)


def _random(fresh: set[str], config: ModelConfig, abstract: Any) -> dict[str, np.ndarray]:
    # A fixed seed, so that every import of a model gives the same parameters.
    rng = np.random.default_rng(0)
    std = config.init_std or config.dim**-0.5
    params = {}
    for name, leaf in flattened(abstract).items():
        if name not in fresh:
            continue
        if name.endswith("/kernel"):
            params[name] = rng.normal(0, std, leaf.shape).astype(np.float32)
        elif name.endswith("/scale"):
            params[name] = np.ones(leaf.shape, np.float32)
        else:
            params[name] = np.zeros(leaf.shape, np.float32)
    return params
