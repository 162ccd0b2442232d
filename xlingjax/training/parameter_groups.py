"""Which parameters are decayed, at which rates, and trained: trees beside theirs."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from xlingjax.errors import UserError
from xlingjax.model.params import flattened, path_name, path_names


def decayed(params: Any) -> Any:
    """True where weight decay applies: everything but biases and LayerNorm scales. By name, since a
    scanned stack's biases have two axes."""

    def decays(path, _):
        return path_name(path).split("/")[-1] not in ("bias", "scale")

    return jax.tree_util.tree_map_with_path(decays, params)


def layer_rates(params: Any, decay: float) -> Any:
    """What each parameter's update is multiplied with; a vector over axis 0 for the stacked blocks.

    Block i of the N of its stack (0: the bottom one) decay^(N - i), the tables of words, positions
    and languages beneath it decay^(N + 1), all else 1: the LayerNorm of the embeddings, poolers and
    heads (the released code of ERNIE-M). Weight decay beside the gradient is not multiplied. A
    decoder counts its own layers, as do the tables that are its own; tables that both sides read
    count the encoder's.
    """
    if decay == 1.0:
        return jax.tree.map(lambda _: 1.0, params)
    layers: dict[str, int] = {}
    for name, leaf in flattened(params).items():
        if "/layers/" in name:
            layers[name.split("/")[0]] = leaf.shape[0]

    def rate(path, leaf):
        part, _, rest = path_name(path).partition("/")
        inner = rest.split("/")[0]
        # Of a scanned stack, one array for all blocks, each block has a factor of its own.
        if inner == "layers":
            powers = np.arange(layers[part], 0, -1, dtype=np.float32)
            # One number per block, spread over the axes of the rest.
            shape = (-1, *[1] * (len(leaf.shape) - 1))
            return np.float32(decay) ** powers.reshape(shape)
        if part in ("embeddings", "decoder_embeddings") and inner != "norm":
            side = "encoder"
            if part.startswith("decoder"):
                side = "decoder"
            return decay ** (layers.get(side, 0) + 1)
        return 1.0

    return jax.tree_util.tree_map_with_path(rate, params)


def trainable_mask(params: Any, frozen: Sequence[str]) -> Any:
    """Tree of bools: False where a regular expression of `frozen` is found in the path. Raises
    UserError for an expression that matches nothing, and when nothing would be left to train."""
    names = path_names(params)
    for pattern in frozen:
        if not any(re.search(pattern, name) for name in names):
            raise UserError(
                f"frozen={pattern!r} matches no parameter; paths are like {', '.join(names[:3])}"
            )
    mask = []
    for name in names:
        mask.append(not any(re.search(pattern, name) for pattern in frozen))
    if not any(mask):
        raise UserError(f"frozen={tuple(frozen)} freezes every parameter; nothing is left to train")
    return jax.tree.unflatten(jax.tree.structure(params), mask)


def first_steps(masks: Mapping[int, Any]) -> Any:
    """Tree of the steps from which each parameter is trained; 0 for one that never is. masks:
    {first step of a stage: tree of bools}, in order."""

    def first(*trained):
        for start, on in zip(masks, trained, strict=True):
            if on:
                return start
        return 0

    return jax.tree.map(first, *masks.values())


def moments_mask(opt_state: Any, trainable: Any) -> Any:
    """Tree of bools like the optimizer state: False where a path ends in that of a parameter not
    `trainable`."""
    known = dict(jax.tree_util.tree_flatten_with_path(trainable)[0])

    def is_trained(path, _):
        # A moment has the path of its parameter behind its own; a count ends in none.
        for start in range(len(path)):
            if path[start:] in known:
                return known[path[start:]]
        return True

    return jax.tree_util.tree_map_with_path(is_trained, opt_state)


def split(params: Any, trainable: Any) -> tuple[Any, Any]:
    """(trainable, frozen): two trees, each with None where the other has the leaf, so that frozen
    leaves get neither gradient nor moments. None stays None in both."""
    kept = jax.tree.map(lambda p, keep: p if keep else None, params, trainable, is_leaf=_is_none)
    rest = jax.tree.map(lambda p, keep: None if keep else p, params, trainable, is_leaf=_is_none)
    return kept, rest


def merge(trainable: Any, frozen: Any) -> Any:
    """The inverse of `split`."""
    return jax.tree.map(lambda t, f: f if t is None else t, trainable, frozen, is_leaf=_is_none)


def _is_none(leaf: Any) -> bool:
    return leaf is None
