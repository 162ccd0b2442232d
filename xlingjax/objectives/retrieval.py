"""Fine-tuning of sentence vectors on translations: binary cross-entropy against the hardest
negatives of the batch."""

import dataclasses

import jax
import jax.numpy as jnp

from xlingjax.errors import UserError, require_numbers, require_whole
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import Mask
from xlingjax.model.partition import cut_rows
from xlingjax.objectives.base import (
    EACH_TEXT_ALONE,
    INPUTS,
    Array,
    Batch,
    Judged,
    LabelObjective,
    Params,
    first_language,
    used_rows,
)


@dataclasses.dataclass(frozen=True)
class HardestNegative(LabelObjective):
    """A text and its translation are a positive, the text and the most similar translation of
    another text of the batch a negative: binary cross-entropy of `scale` times the cosine plus
    `bias`, mean of both directions (ERNIE-M's Tatoeba "after fine-tuning", in its EMNLP 2021
    version; hardest negatives as in Faghri et al. 2018).

    A vector is the mean of the states at `layer` (0: the embeddings; None: the last) of all of a
    text's tokens, separators too, each text read alone, as sentence retrieval measures it. A text
    that is equal to the translation is no negative. One pair per row; a batch is one question,
    and of several `parts` the vectors are computed one after the other. The paper prints neither
    scale nor bias.
    """

    name: str = "hardest_negative"
    layer: int | None = None
    scale: float = 20.0
    bias: float = 0.0
    parts: int = 1
    reads = (*INPUTS, "sides")
    whole_batch = True
    continues_encoder = True

    def __post_init__(self):
        require_numbers(self, "(0, inf)", "scale", f"{self.name}: ")
        require_whole(self, "[0, inf)", "layer", f"{self.name}: ")

    def attention(self) -> Mask:
        return EACH_TEXT_ALONE

    def masks(self) -> dict[str, Mask]:
        return {"each text alone": self.attention()}

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {self.name: used_rows(batch).sum()}

    def vectors(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None = None
    ) -> tuple[Array, Array]:
        """u_BD of the first texts and v_BD of the second, of length 1; 0 of a row that only fills
        the batch."""
        if self.parts == 1:
            return self._vectors(model, params, batch, rng)

        # No part is kept but its vectors: on the way back each is computed again (Gao et al. 2021,
        # "Scaling deep contrastive learning batch size under memory limited setup").
        @jax.checkpoint
        def of_part(rows: Batch, number: Array) -> tuple[Array, Array]:
            key = None if rng is None else jax.random.fold_in(rng, number)
            return self._vectors(model, params, rows, key)

        read = {name: batch[name] for name in self.reads}
        cut = cut_rows(read, self.parts, model.mesh), jnp.arange(self.parts)
        _, (u_KRD, v_KRD) = jax.lax.scan(lambda _, part: (None, of_part(*part)), None, cut)
        rows = batch["input_ids"].shape[0]
        return tuple(x.swapaxes(0, 1).reshape(rows, -1) for x in (u_KRD, v_KRD))

    def in_parts(self, parts: int) -> "HardestNegative":
        return dataclasses.replace(self, parts=parts)

    def _vectors(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None
    ) -> tuple[Array, Array]:
        layers = model.config.layers
        layer = layers if self.layer is None else self.layer
        if layer > layers:
            raise UserError(
                f"{self.name}: RETRIEVAL_LAYER={layer}, and the model has {layers} layers"
            )
        h_NBLD = model.encode(params, batch, self.attention(), rng=rng, all_layers=True)
        h_BLD = h_NBLD[layer].astype(jnp.float32)
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

    def judged(self, model: Encoder, params: Params, batch: Batch, rng: Array | None) -> Judged:
        u_BD, v_BD = self.vectors(model, params, batch, rng)
        # In float32: near 1 the cosines of a trained model differ in late digits.
        cosine_BB = jnp.einsum("BD,CD->BC", u_BD, v_BD, precision=jax.lax.Precision.HIGHEST)
        logits_BB = self.scale * cosine_BB + self.bias
        weights_B = used_rows(batch)
        positive_B = jnp.diagonal(logits_BB)
        # [x, y]: a negative is another pair's text, and none that is the same text.
        real_BB = (weights_B[:, None] * weights_B[None, :]) > 0
        hardest = []
        for side, axis in ((1, 1), (0, 0)):
            texts_B = self._texts(batch, side)
            other_BB = texts_B[:, None] != texts_B[None, :]
            negative_BB = jnp.where(real_BB & other_BB, logits_BB, jnp.finfo(jnp.float32).min)
            hardest.append(negative_BB.max(axis=axis))
        # -log sigmoid(s) = softplus(-s) of a positive, softplus(s) of a negative.
        of_negatives_B = jax.nn.softplus(hardest[0]) + jax.nn.softplus(hardest[1])
        loss_B = jax.nn.softplus(-positive_B) + 0.5 * of_negatives_B
        correct_B = positive_B > jnp.maximum(*hardest)
        return Judged(loss_B, correct_B, weights_B, first_language(batch))

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
