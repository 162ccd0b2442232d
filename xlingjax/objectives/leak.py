"""Does a model see what its objective says, no more and no less? A numeric test, on any device.

Shift the word embedding of one column (an activation, not the table that the vocabulary head
shares), run the model, and note what is no longer bit-equal.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.model.encoder import Encoder, Params
from xlingjax.model.masks import Fields
from xlingjax.objectives.base import Objective, Predictions

Batch = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Visibility:
    """bool [B, M, S] each: may, and does, a shift of word s move state m? columns [B, M]: where the
    state stands, -1 where nothing is predicted from it."""

    allowed: np.ndarray
    moved: np.ndarray
    columns: np.ndarray

    @property
    def leaks(self) -> np.ndarray:
        """[n, 3] (row, query, key) that moved and must not."""
        return np.argwhere(self.moved & ~self.allowed)

    @property
    def blocked(self) -> np.ndarray:
        """[n, 3] (row, query, key) that must move and did not."""
        return np.argwhere(self.allowed & ~self.moved)


def prediction_visibility(
    objective: Objective, model: Encoder, params: Params, batch: Batch
) -> dict[str, Visibility]:
    """Per entry of the objective's `predictions`, by its `evidence`; unused slots see nothing."""
    words = objective.words(batch)
    # Of all columns whose words are read: a decoder's stand behind the encoder's.
    fields = Fields.from_batch(jax.tree.map(jnp.asarray, words))

    def predict(shift_BLD):
        return objective.predictions(model, params, batch, None, shift_BLD)

    moved_of = moved_states(predict, words, model.config.dim)
    result = {}
    for name, mask in objective.evidence().items():
        moved, columns_BM = moved_of[name]
        made_BM1 = columns_BM[..., None] >= 0
        # Of every column; then of those that the predictions are made from.
        allowed_BLS = np.asarray(mask(fields, fields))
        allowed_BMS = np.take_along_axis(allowed_BLS, np.maximum(columns_BM, 0)[..., None], axis=1)
        result[name] = Visibility(allowed_BMS & made_BM1, moved & made_BM1, columns_BM)
    return result


def moved_states(
    predict: Callable[[Any], dict[str, Predictions]], batch: Batch, dim: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Per entry of `predict`, a function of the shift: (bool [B, M, S], does a shift of the words
    in column s move state m?; its columns). Raises FloatingPointError where a state is not finite.
    """
    rows, length = batch["input_ids"].shape
    # Not the same in every dimension: LayerNorm would take that out again.
    shift_D = np.random.default_rng(0).normal(size=dim).astype(np.float32)

    # The column is an argument, so that all columns run in one compiled function.
    @jax.jit
    def shifted(column):
        at_column_L1 = (jnp.arange(length) == column)[:, None]
        shift_BLD = jnp.broadcast_to(shift_D, (rows, length, dim))
        return predict(jnp.where(at_column_L1, shift_BLD, 0.0))

    # No column is -1. The same compiled function, so that equal states are equal in every bit.
    before = jax.tree.map(np.asarray, shifted(-1))
    for name, predictions in before.items():
        if not np.isfinite(predictions.states).all():
            raise FloatingPointError(f"{name}: attention gives values that are not finite")
    moved: dict[str, list[np.ndarray]] = {name: [] for name in before}
    # One column at a time: two at once could undo each other.
    for column in range(length):
        for name, predictions in shifted(column).items():
            moved_BM = (np.asarray(predictions.states) != before[name].states).any(-1)
            moved[name].append(moved_BM)
    result = {}
    for name, predictions in before.items():
        # Unused slots name column 0, as if its word were predicted.
        columns_BM = np.where(predictions.weights > 0, predictions.columns, -1)
        result[name] = (np.stack(moved[name], axis=-1), columns_BM)
    return result
