"""Fine-tuning of sentence vectors on translations: binary cross-entropy against the hardest
negatives of the batch."""

import dataclasses

import jax
import jax.numpy as jnp

from xlingjax.errors import UserError, require_numbers, require_whole
from xlingjax.model.attention import AttentionSpec
from xlingjax.model.config import ModelConfig
from xlingjax.model.encoder import Encoder
from xlingjax.model.flops import flops_per_token
from xlingjax.model.masks import Mask, bidirectional, same_side
from xlingjax.objectives.base import (
    INPUTS,
    Array,
    Batch,
    Loss,
    Objective,
    Params,
    Shapes,
    metrics_by_language,
)


@dataclasses.dataclass(frozen=True)
class HardestNegative(Objective):
    """A text and its translation are a positive, the text and the most similar translation of
    another text of the batch a negative: binary cross-entropy of `scale` times the cosine plus
    `bias`, mean of both directions (ERNIE-M's Tatoeba "after fine-tuning", in its EMNLP 2021
    version; hardest negatives as in Faghri et al. 2018).

    A vector is the mean of the states at `layer` (0: the embeddings; None: the last) of all of a
    text's tokens, separators too, each text read alone, as sentence retrieval measures it. A text
    that is equal to the translation is no negative. One pair per row; a batch is one question and
    cannot be cut into microbatches. The paper prints neither scale nor bias.
    """

    name: str = "hardest_negative"
    layer: int | None = None
    scale: float = 20.0
    bias: float = 0.0
    reads = (*INPUTS, "sides")
    continues_encoder = False
    # Each row is measured against all others, so microbatches would ask an easier question.
    whole_batch = True

    def __post_init__(self):
        require_numbers(self, "(0, inf)", "scale", f"{self.name}: ")
        require_whole(self, "[0, inf)", "layer", f"{self.name}: ")

    @property
    def coefficients(self) -> dict[str, float]:
        return {self.name: 1.0}

    def attention(self) -> AttentionSpec:
        # No kernel is to take the row's length for the mask: the sides do not see each other.
        return AttentionSpec(bidirectional & same_side, packed=True)

    def masks(self) -> dict[str, Mask]:
        return {"each text alone": self.attention().mask}

    def flops_per_token(self, config: ModelConfig, shapes: Shapes) -> float | None:
        return flops_per_token(config, shapes["input_ids"][1], 0.0)

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {self.name: self._weights_B(batch).sum()}

    def _weights_B(self, batch: Batch) -> Array:
        return (batch["pack_ids"] > 0).any(axis=1).astype(jnp.float32)

    def vectors(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None = None
    ) -> tuple[Array, Array]:
        """u_BD of the first texts and v_BD of the second, of length 1; 0 of a row that only fills
        the batch."""
        layers = model.config.layers
        if self.layer is not None and self.layer > layers:
            raise UserError(
                f"{self.name}: RETRIEVAL_LAYER={self.layer}, and the model has {layers} layers"
            )
        h_NBLD = model.encode(params, batch, self.attention(), rng=rng, all_layers=True)
        at = layers
        if self.layer is not None:
            at = self.layer
        h_BLD = h_NBLD[at].astype(jnp.float32)
        valid_BL = batch["pack_ids"] > 0
        found = []
        for side in (0, 1):
            of_side_BL = jnp.float32(valid_BL & (batch["sides"] == side))
            sum_BD = jnp.einsum("BL,BLD->BD", of_side_BL, h_BLD)
            # Of the sum as of the mean: length 1 forgets the number of tokens. A gradient at the
            # norm of a vector that is 0 is no number.
            square_B1 = (sum_BD**2).sum(axis=1, keepdims=True)
            found.append(sum_BD * jax.lax.rsqrt(jnp.maximum(square_B1, 1e-12)))
        return found[0], found[1]

    def loss(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int
    ) -> Loss:
        u_BD, v_BD = self.vectors(model, params, batch, rng)
        # In float32: near 1 the cosines of a trained model differ in late digits.
        cosine_BB = jnp.einsum("BD,CD->BC", u_BD, v_BD, precision=jax.lax.Precision.HIGHEST)
        logits_BB = self.scale * cosine_BB + self.bias
        weights_B = self._weights_B(batch)
        positive_B = jnp.diagonal(logits_BB)
        # [x, y]: a negative is another pair's text, and none that is the same text.
        real_BB = (weights_B[:, None] * weights_B[None, :]) > 0
        first_B, second_B = self._texts(batch, 0), self._texts(batch, 1)
        least = jnp.finfo(jnp.float32).min
        found = []
        for hashes_B, axis in ((second_B, 1), (first_B, 0)):
            other_BB = hashes_B[:, None] != hashes_B[None, :]
            negative_BB = jnp.where(real_BB & other_BB, logits_BB, least)
            found.append(negative_BB.max(axis=axis))
        to_second_B, to_first_B = found
        # -log sigmoid(s) = softplus(-s) of a positive, softplus(s) of a negative.
        nll_B = jax.nn.softplus(-positive_B) + 0.5 * (
            jax.nn.softplus(to_second_B) + jax.nn.softplus(to_first_B)
        )
        hardest_B = jnp.maximum(to_second_B, to_first_B)
        correct_B = jnp.float32(positive_B > hardest_B)
        values = {"loss": nll_B, "accuracy": correct_B}
        metrics = metrics_by_language(
            self.name, values, weights_B, batch["language_ids"][:, 0], languages
        )
        return Loss({self.name: (nll_B * weights_B).sum()}, metrics)

    @staticmethod
    def _texts(batch: Batch, side: int) -> Array:
        """A number [B] of each text of a side; equal texts have the same."""
        there_BL = (batch["pack_ids"] > 0) & (batch["sides"] == side)
        # By the place within the text, which does not depend on the length of the other one.
        place_BL = jnp.cumsum(there_BL, axis=1).astype(jnp.uint32)
        ids_BL = batch["input_ids"].astype(jnp.uint32) + 1
        # Two texts of one number would cost one negative in 4e9.
        mixed_BL = (ids_BL * jnp.uint32(2654435761)) ^ (place_BL * jnp.uint32(2246822519))
        mixed_BL = (mixed_BL ^ (mixed_BL >> 15)) * jnp.uint32(3266489917)
        mixed_BL = mixed_BL ^ (mixed_BL >> 13)
        return jnp.where(there_BL, mixed_BL, 0).sum(axis=1, dtype=jnp.uint32)
