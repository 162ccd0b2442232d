"""Does attention see what its mask says, no more and no less? A numeric test for any backend, on any device.

Change the token of one column, encode, and note which states are no longer bit-equal. Over N layers a token may reach
further than one layer's mask, through others: what counts is the N-fold composition of the mask.
"""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.model.attention import AttentionSpec
from xlingjax.model.encoder import Encoder, Params
from xlingjax.model.masks import Fields


@dataclasses.dataclass(frozen=True)
class Visibility:
    """bool [B, L, S] each: may, and does, a change of token s move state l?"""

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


def visibility(model: Encoder, params: Params, batch: Mapping[str, np.ndarray], spec: AttentionSpec) -> Visibility:
    """Encodes the batch once per column with that column's ids changed (to the next id, in every row)."""
    ids_BL = np.asarray(batch["input_ids"])
    encode = jax.jit(lambda ids: model.encode(params, {**batch, "input_ids": ids}, spec))
    before_BLD = np.asarray(encode(ids_BL))
    if not np.isfinite(before_BLD).all():
        raise FloatingPointError(f"mask {spec.mask.name}: attention gives values that are not finite")
    moved = []
    for column in range(ids_BL.shape[1]):
        changed_BL = ids_BL.copy()
        changed_BL[:, column] = (changed_BL[:, column] + 1) % model.config.vocab_size
        moved.append((np.asarray(encode(changed_BL)) != before_BLD).any(-1))
    return Visibility(reachable(spec, batch, model.config.layers), np.stack(moved, axis=-1))


def reachable(spec: AttentionSpec, batch: Mapping[str, np.ndarray], layers: int) -> np.ndarray:
    """bool [B, L, S]: may token s influence state l after that many layers? Every token reaches itself."""
    fields = Fields.from_batch(jax.tree.map(jnp.asarray, dict(batch)))
    step_BLS = np.asarray(spec.mask(fields, fields)) | np.eye(fields.pack.shape[-1], dtype=bool)
    reach_BLS = np.eye(fields.pack.shape[-1], dtype=bool)
    for _ in range(layers):
        reach_BLS = step_BLS @ reach_BLS
    return reach_BLS
