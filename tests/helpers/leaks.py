"""What the states of a model see, by the mask of its layers alone."""

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.model.masks import Fields
from xlingjax.objectives.base import at_all
from xlingjax.objectives.leak import Visibility, moved_states


def visibility(model, params, batch, mask) -> Visibility:
    """Of the states of every column, by `mask` after all layers."""

    def states(shift_BLD):
        h_BLD = model.encode(params, batch, mask, shift_BLD=shift_BLD)
        # Nothing is predicted: of targets, weights and languages only the shapes matter.
        ones_BL = jnp.ones(h_BLD.shape[:2], jnp.int32)
        return {mask.name: at_all(h_BLD, ones_BL, ones_BL, ones_BL)}

    ((moved, columns),) = moved_states(states, batch, model.config.dim).values()
    return Visibility(reachable(mask, batch, model.config.layers), moved, columns)


def reachable(mask, batch, layers) -> np.ndarray:
    """bool [B, L, S]: may token s influence state l after that many layers? Every token reaches
    itself."""
    fields = Fields.from_batch(jax.tree.map(jnp.asarray, dict(batch)))
    # The residual connection: every state keeps what it has.
    itself_LS = np.eye(fields.pack.shape[-1], dtype=bool)
    step_BLS = np.asarray(mask(fields, fields)) | itself_LS
    reach_BLS = itself_LS
    for _ in range(layers):
        reach_BLS = step_BLS @ reach_BLS
    return reach_BLS
