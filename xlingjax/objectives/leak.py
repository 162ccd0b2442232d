"""Does a model see what its masks and its objective say, no more and no less? A numeric test, on any device.

Shift the word embedding of one column (an activation, not the table that the vocabulary head shares), run the model,
and note what is no longer bit-equal. Over N layers a token may reach further than one layer's mask, through others.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.model.attention import AttentionSpec
from xlingjax.model.encoder import Encoder, Params
from xlingjax.model.masks import Fields
from xlingjax.objectives.base import Objective

Batch = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Visibility:
    """bool [B, M, S] each: may, and does, a shift of word s move state m?"""

    allowed: np.ndarray
    moved: np.ndarray

    @property
    def leaks(self) -> np.ndarray:
        """[n, 3] (row, query, key) that moved and must not."""
        return np.argwhere(self.moved & ~self.allowed)

    @property
    def blocked(self) -> np.ndarray:
        """[n, 3] (row, query, key) that must move and did not."""
        return np.argwhere(self.allowed & ~self.moved)


def visibility(model: Encoder, params: Params, batch: Batch, spec: AttentionSpec) -> Visibility:
    """Of the states of every column, by the mask of `spec` after all layers."""

    def states(shift_BLD):
        return {spec.mask.name: model.encode(params, batch, spec, shift_BLD=shift_BLD)}

    moved = _moved(states, batch, model.config.dim)[spec.mask.name]
    return Visibility(reachable(spec, batch, model.config.layers), moved)


def prediction_visibility(objective: Objective, model: Encoder, params: Params, batch: Batch) -> dict[str, Visibility]:
    """Per entry of the objective's `predictions`, by its `evidence`; unused slots see nothing."""

    def states(shift_BLD):
        found = objective.predictions(model, params, batch, None, shift_BLD)
        return {name: p.states for name, p in found.items()}

    places = jax.jit(lambda: objective.predictions(model, params, batch))()
    fields = Fields.from_batch(jax.tree.map(jnp.asarray, dict(batch)))
    moved = _moved(states, batch, model.config.dim)
    result = {}
    for name, mask in objective.evidence().items():
        used_BM1 = np.asarray(places[name].weights)[..., None] > 0
        allowed_BLS = np.asarray(mask(fields, fields))
        allowed_BMS = np.take_along_axis(allowed_BLS, np.asarray(places[name].columns)[..., None], axis=1)
        result[name] = Visibility(allowed_BMS & used_BM1, moved[name] & used_BM1)
    return result


def _moved(states: Callable[[Any], dict[str, Any]], batch: Batch, dim: int) -> dict[str, np.ndarray]:
    """bool [B, M, S] per entry [B, M, D] of `states`: does a shift of the words in column s move it?

    Raises FloatingPointError where a state is not finite.
    """
    rows, length = batch["input_ids"].shape
    shift_D = np.random.default_rng(0).normal(size=dim).astype(np.float32)

    @jax.jit
    def shifted(column):
        at_column_L1 = (jnp.arange(length) == column)[:, None]
        return states(jnp.where(at_column_L1, jnp.broadcast_to(shift_D, (rows, length, dim)), 0.0))

    before = jax.tree.map(np.asarray, shifted(-1))
    for name, states_BMD in before.items():
        if not np.isfinite(states_BMD).all():
            raise FloatingPointError(f"{name}: attention gives values that are not finite")
    moved: dict[str, list[np.ndarray]] = {name: [] for name in before}
    for column in range(length):
        for name, states_BMD in shifted(column).items():
            moved[name].append((np.asarray(states_BMD) != before[name]).any(-1))
    return {name: np.stack(columns, axis=-1) for name, columns in moved.items()}


def reachable(spec: AttentionSpec, batch: Batch, layers: int) -> np.ndarray:
    """bool [B, L, S]: may token s influence state l after that many layers? Every token reaches itself."""
    fields = Fields.from_batch(jax.tree.map(jnp.asarray, dict(batch)))
    step_BLS = np.asarray(spec.mask(fields, fields)) | np.eye(fields.pack.shape[-1], dtype=bool)
    reach_BLS = np.eye(fields.pack.shape[-1], dtype=bool)
    for _ in range(layers):
        reach_BLS = step_BLS @ reach_BLS
    return reach_BLS
