"""XLM's three objectives: causal, masked and translation language modelling (XLM §3.2-3.4).

MLM and TLM differ in their features (one text, or a pair with restarting positions and two
languages), not in their loss.
"""

import dataclasses

import jax.numpy as jnp

from xlingjax.errors import require_whole
from xlingjax.model.masks import Mask, bidirectional, causal
from xlingjax.objectives.base import (
    CHUNK,
    INPUTS,
    SLOTS,
    Array,
    Batch,
    Predictions,
    TokenObjective,
    at_all,
    at_slots,
)


@dataclasses.dataclass(frozen=True)
class MLM(TokenObjective):
    """Masked language modelling: mean cross-entropy over the chosen positions, whatever the input
    shows there.

    `chunk`: tokens per cross-entropy step.
    """

    name: str = "mlm"
    chunk: int = CHUNK
    reads = INPUTS + SLOTS

    def evidence(self) -> dict[str, Mask]:
        # The predicted column too: one in ten shows the word itself (XLM §3.3).
        return {self.name: bidirectional}

    def read(self, h_BLD: Array, batch: Batch) -> dict[str, Predictions]:
        return {self.name: at_slots(h_BLD, batch)}


@dataclasses.dataclass(frozen=True)
class TLM(MLM):
    """Translation language modelling: MLM over both sides of a pair under full attention (XLM
    §3.4)."""

    name: str = "tlm"


@dataclasses.dataclass(frozen=True)
class CLM(TokenObjective):
    """Causal language modelling: each token predicts the next one of the same example.

    `context_size` k > 0 drops the predictions made from an example's first k positions, which have
    little context.
    """

    name: str = "clm"
    context_size: int = 0
    chunk: int = CHUNK
    reads = INPUTS
    continues_encoder = False

    def __post_init__(self):
        require_whole(self, "[0, inf)", "context_size", f"{self.name}: ")

    def attention(self) -> Mask:
        # `bidirectional` keeps packed examples apart, `causal` the later tokens of the same one.
        return causal & bidirectional

    def evidence(self) -> dict[str, Mask]:
        return {self.name: causal & bidirectional}

    def _weights_BL(self, batch: Batch) -> Array:
        """1 where a column's token predicts its right neighbour; the last column has none."""
        pack_BL = batch["pack_ids"]
        same_example_BL = (pack_BL > 0) & (pack_BL == _next(pack_BL))
        # Positions count from the start of the example, packed or not.
        enough_context_BL = batch["position_ids"] >= self.context_size
        return (same_example_BL & enough_context_BL).astype(jnp.float32)

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {self.name: self._weights_BL(batch).sum()}

    def read(self, h_BLD: Array, batch: Batch) -> dict[str, Predictions]:
        # The language of a prediction is that of the predicted token.
        targets_BL, languages_BL = _next(batch["input_ids"]), _next(batch["language_ids"])
        return {self.name: at_all(h_BLD, targets_BL, self._weights_BL(batch), languages_BL)}


def _next(ids_BL: Array) -> Array:
    """Each column's right neighbour, 0 in the last."""
    return jnp.pad(ids_BL[:, 1:], ((0, 0), (0, 1)))
