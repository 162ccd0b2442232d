"""Tensors of another program as our parameters: what the families have in common.

A family is a file of this folder:

- `config_of(fields, name)`: our configuration of what its config.json describes;
- `names_of(config)`: the table of names;
- `usual(tensors)`: each tensor under its name in that table, and under one name;
- `HEAD`: how the names of its vocabulary head begin; None where the head has no weights of its own;
- `LEFT`, `WITHOUT_MEANING`: how the names begin of what is left behind, with a word about it and
  without.
"""

import dataclasses
from collections.abc import Callable, Mapping
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
    tensors = family.usual(tensors)
    abstract = build_model(config).abstract()
    found, without = places(family.names_of(config), config, abstract)
    notes, fresh = (
        list(tensors.notes),
        {name for name in without if name.startswith("head/")},
    )
    if family.HEAD and not any(name.startswith(family.HEAD) for name in tensors.shapes):
        fresh |= {place.ours for place in found if place.ours.startswith("head/")}
    if fresh:
        what = (
            "random"
            if any(name.endswith("kernel") for name in fresh)
            else "the words' alone, without a bias"
        )
        notes.append(f"the vocabulary head is {what}: the checkpoint has none")
    if missing := [name for name in without if name not in fresh]:
        raise UserError(
            f"{tensors.origin}: such a model has no {missing[0]}, which {config.name} needs"
        )
    found = [place for place in found if place.ours not in fresh]
    wanted = {name for place in found for name in place.theirs}
    free = [name for name in tensors.shapes if name not in wanted]
    known = [
        name
        for name in free
        if name.startswith((*family.LEFT, *family.WITHOUT_MEANING))
    ]
    if left := [
        start for start in family.LEFT if any(name.startswith(start) for name in free)
    ]:
        notes.append(
            f"left behind: {', '.join(start.removesuffix('.') for start in left)}"
        )
    params = to_ours(found, tensors, known)
    params.update(_random(fresh, config, abstract))
    return Converted(config, nested(params), not fresh, tuple(notes))


def renamed(
    tensors: Tensors, rename: Callable[[str], str], tied: Mapping[str, str]
) -> Tensors:
    """Each tensor under its usual name, and under one. tied: {another name of the same tensor: the
    usual one}. Raises UserError for names that are tied and tensors that are not."""
    own: dict[str, str] = {}
    for name in tensors.shapes:
        if (usual := rename(_today(name))) in own:
            raise UserError(
                f"{tensors.origin}: {name} and {own[usual]} are one weight; leave one"
            )
        own[usual] = name
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
    return dataclasses.replace(
        tensors, shapes=shapes, fetch=lambda name: tensors.fetch(own[name])
    )


_OLD_PARTS = {
    "gamma": "weight",
    "beta": "bias",
}  # of weights that were converted from TensorFlow
_NORMS = ("LayerNorm", "layer_norm", "layernorm_embedding")


def _today(name: str) -> str:
    """The name of a tensor as transformers writes it today and renames older ones."""
    start, _, part = name.rpartition(".")
    return (
        f"{start}.{_OLD_PARTS[part]}"
        if part in _OLD_PARTS and start.endswith(_NORMS)
        else name
    )


def unfused(tensors: Tensors) -> Tensors:
    """`in_proj_weight` and `in_proj_bias`, query, key and value below each other, as three tensors
    each."""
    own: dict[str, tuple[str, int | None]] = {}
    shapes = {}
    for name, shape in tensors.shapes.items():
        start, _, part = name.rpartition(".in_proj_")
        if start and part in ("weight", "bias") and shape and shape[0] % 3 == 0:
            for i, projection in enumerate("qkv"):
                own[f"{start}.{projection}_proj.{part}"] = name, i
                shapes[f"{start}.{projection}_proj.{part}"] = (
                    shape[0] // 3,
                    *shape[1:],
                )
        else:
            own[name], shapes[name] = (name, None), shape

    def fetch(name: str) -> np.ndarray:
        there, i = own[name]
        value = tensors.fetch(there)
        return value if i is None else np.split(value, 3)[i]

    return dataclasses.replace(tensors, shapes=shapes, fetch=fetch)


def folded(
    tensors: Tensors, positions: str, segments: str, pairs: bool = False
) -> Tensors:
    """The first row of the table `segments`, that of a text alone, becomes part of what the table
    `positions` gives. pairs: the table stays, as what each segment has beside the first; else every
    token is of that one. Raises `Differing`."""
    there, beside = tensors.shapes.get(segments), tensors.shapes.get(positions)
    if there is None or beside is None or len(beside) != 2:
        return tensors
    if len(there) != 2 or there[0] < 1 or there[1] != beside[1]:
        raise Differing(tensors.origin, [(segments, (1, beside[1]), there)])

    def fetch(name: str) -> np.ndarray:
        if name == segments:
            return tensors.read(segments) - tensors.read(segments)[0]
        if name != positions:
            return tensors.fetch(name)
        return tensors.read(positions) + tensors.read(segments)[0]

    if pairs and there[0] > 1:
        return dataclasses.replace(tensors, fetch=fetch)
    shapes = {name: shape for name, shape in tensors.shapes.items() if name != segments}
    notes = [
        f"left behind: rows of {segments} after the first, every token is of segment 0"
    ][: there[0] - 1]
    return dataclasses.replace(
        tensors, shapes=shapes, fetch=fetch, notes=(*tensors.notes, *notes)
    )


def _random(
    fresh: set[str], config: ModelConfig, abstract: Any
) -> dict[str, np.ndarray]:
    rng, made = np.random.default_rng(0), {}
    for name, leaf in flattened(abstract).items():
        if name not in fresh:
            continue
        if name.endswith("/kernel"):
            made[name] = rng.normal(
                0, config.init_std or config.dim**-0.5, leaf.shape
            ).astype(np.float32)
        else:
            made[name] = np.full(leaf.shape, float(name.endswith("/scale")), np.float32)
    return made
