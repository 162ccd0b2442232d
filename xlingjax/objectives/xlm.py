"""XLM's three objectives: causal, masked and translation language modelling (XLM §3.2-3.4).

MLM and TLM differ in their features (one text, or a pair with restarting positions and two languages), not in their
loss.
"""

import dataclasses

import jax.numpy as jnp

from xlingjax.losses import cross_entropy, gather_positions
from xlingjax.model.attention import AttentionSpec
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import bidirectional, causal
from xlingjax.objectives.base import Array, Batch, Loss, Params, metrics_by_language

INPUTS = ("input_ids", "position_ids", "language_ids", "pack_ids")
SLOTS = ("masked_positions", "masked_targets", "masked_weights")

# Most tokens whose logits exist at once: at a vocabulary of 250 000, 2 GB for the logits.
CHUNK = 2048


def token_loss(
    name: str,
    model: Encoder,
    params: Params,
    h: Array,
    targets: Array,
    weights: Array,
    language_ids: Array,
    languages: int,
    chunk: int,
) -> Loss:
    """Cross-entropy at the states h_...D against ids, weights and languages of shape [...]."""
    g, table_VD, bias_V = model.vocab_head(params, h)
    weights_T, languages_T = jnp.float32(weights).reshape(-1), language_ids.reshape(-1)
    loss, nll_T, correct_T = cross_entropy(
        g.reshape(-1, g.shape[-1]),
        table_VD,
        bias_V,
        targets.reshape(-1),
        weights_T,
        vocab_size=model.config.vocab_size,
        chunk=chunk,
    )
    values = {"loss": nll_T, "accuracy": correct_T}
    return Loss({name: loss}, metrics_by_language(name, values, weights_T, languages_T, languages))


def masked_loss(
    name: str,
    model: Encoder,
    params: Params,
    h_BLD: Array,
    batch: Batch,
    languages: int,
    chunk: int,
    slots: slice = slice(None),  # noqa: B008 - frozen
) -> Loss:
    """`token_loss` at the prediction slots of a batch, or at some of them."""
    positions_BM = batch["masked_positions"][:, slots]
    return token_loss(
        name,
        model,
        params,
        gather_positions(h_BLD, positions_BM),
        batch["masked_targets"][:, slots],
        batch["masked_weights"][:, slots],
        jnp.take_along_axis(batch["language_ids"], positions_BM, axis=1),
        languages,
        chunk,
    )


def halves(terms: tuple[str, str], batch: Batch) -> list[tuple[str, slice]]:
    """[(first term, slots of side 0), (second term, slots of side 1)] where the slots are masked side by side."""
    half = batch["masked_positions"].shape[1] // 2
    return [(terms[0], slice(0, half)), (terms[1], slice(half, None))]


@dataclasses.dataclass(frozen=True)
class MLM:
    """Masked language modelling: mean cross-entropy over the chosen positions, whatever the input shows there.

    `packed` False promises rows of one example each (see `AttentionSpec`). `chunk`: tokens per cross-entropy step.
    """

    name: str = "mlm"
    packed: bool = True
    chunk: int = CHUNK
    reads = INPUTS + SLOTS

    @property
    def coefficients(self) -> dict[str, float]:
        return {self.name: 1.0}

    def attention(self) -> AttentionSpec:
        return AttentionSpec(bidirectional, causal=False, packed=self.packed)

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {self.name: jnp.sum(batch["masked_weights"], dtype=jnp.float32)}

    def loss(self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int) -> Loss:
        h_BLD = model.encode(params, batch, self.attention(), rng=rng)
        return masked_loss(self.name, model, params, h_BLD, batch, languages, self.chunk)


@dataclasses.dataclass(frozen=True)
class TLM(MLM):
    """Translation language modelling: MLM over both sides of a pair under full attention (XLM §3.4)."""

    name: str = "tlm"


@dataclasses.dataclass(frozen=True)
class CLM:
    """Causal language modelling: each token predicts the next one of the same example.

    `context_size` k > 0 drops the predictions made from an example's first k positions, which have little context.
    """

    name: str = "clm"
    context_size: int = 0
    packed: bool = True
    chunk: int = CHUNK
    reads = INPUTS

    @property
    def coefficients(self) -> dict[str, float]:
        return {self.name: 1.0}

    def attention(self) -> AttentionSpec:
        return AttentionSpec(causal & bidirectional, causal=True, packed=self.packed)

    def _weights_BL(self, batch: Batch) -> Array:
        """1 where a column's token predicts its right neighbour; the last column has none."""
        pack_BL = batch["pack_ids"]
        next_BL = jnp.pad(pack_BL[:, 1:], ((0, 0), (0, 1)))
        used_BL = (pack_BL > 0) & (pack_BL == next_BL) & (batch["position_ids"] >= self.context_size)
        return used_BL.astype(jnp.float32)

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {self.name: self._weights_BL(batch).sum()}

    def loss(self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int) -> Loss:
        h_BLD = model.encode(params, batch, self.attention(), rng=rng)
        return token_loss(
            self.name,
            model,
            params,
            h_BLD,
            _next(batch["input_ids"]),
            self._weights_BL(batch),
            _next(batch["language_ids"]),
            languages,
            self.chunk,
        )


def _next(ids_BL: Array) -> Array:
    """Each column's right neighbour, 0 in the last."""
    return jnp.pad(ids_BL[:, 1:], ((0, 0), (0, 1)))
