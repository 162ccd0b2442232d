"""Sentence vectors from translations: binary cross-entropy against the hardest negatives of the
batch, cross-entropy over all of them, and the vectors that a teacher makes of one of the two."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from xlingjax.data.features import pairs_of_row
from xlingjax.errors import UserError, require_choice, require_numbers, require_whole
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import Mask
from xlingjax.model.partition import cut_rows
from xlingjax.objectives.base import (
    EACH_TEXT_ALONE,
    INPUTS,
    Array,
    Batch,
    Judged,
    Key,
    LabelObjective,
    Loss,
    Objective,
    Params,
    metrics_by_language,
)


@dataclasses.dataclass(frozen=True)
class SentencePairs(Objective):
    """On the vectors of the two texts of each pair, each read alone, as sentence retrieval does.

    A vector is made of the states at `layer` (0: the embeddings; None: the last) of a text's
    tokens, separators too: their `mean`, or the `first` one; then it goes through `dense`, whose
    layers are not trained. packing: a row holds several pairs, L // 6 at most, else one. Q: pairs
    of the batch, those that only fill it among them.
    """

    layer: int | None = None
    pooling: str = "mean"
    dense: Callable[[Array], Array] | None = None
    packing: bool = False
    reads = (*INPUTS, "sides")
    continues_encoder = True

    def __post_init__(self):
        require_whole(self, "[0, inf)", "layer", f"{self.name}: ")
        require_choice(self, ("mean", "first"), "pooling", f"{self.name}: ")

    def attention(self) -> Mask:
        return EACH_TEXT_ALONE

    def masks(self) -> dict[str, Mask]:
        return {"each text alone": self.attention()}

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {self.name: self.used(batch).sum()}

    def of_text(self, batch: Batch, side: int) -> Array:
        """bool [Q, L]: which columns of its row are a pair's text of a side."""
        packs = 1 + jnp.arange(pairs_of_row(batch["pack_ids"].shape[1]) if self.packing else 1)
        of_pair_BPL = batch["pack_ids"][:, None] == packs[:, None]
        there_BPL = of_pair_BPL & (batch["sides"] == side)[:, None]
        return there_BPL.reshape(-1, there_BPL.shape[-1])

    def of_columns(self, values_BL: Array, there_QL: Array) -> Array:
        """[Q, L]: the values of each pair's row at its columns, 0 elsewhere."""
        times = len(there_QL) // len(values_BL)
        return jnp.where(there_QL, jnp.repeat(values_BL, times, axis=0), 0)

    def used(self, batch: Batch) -> Array:
        """float32 [Q]: 1 for a pair, 0 for one that only fills the batch."""
        return self.of_text(batch, 0).any(axis=1).astype(jnp.float32)

    def languages(self, batch: Batch, side: int) -> Array:
        """[Q]: of each pair's text of a side."""
        return self.of_columns(batch["language_ids"], self.of_text(batch, side)).max(axis=1)

    def vectors(
        self, model: Encoder, params: Params, batch: Batch, rng: Key = None
    ) -> tuple[Array, Array]:
        """float32 u_QD of the first texts and v_QD of the second; 0 of a pair that only fills the
        batch, unless `dense` makes something of it."""
        layers = model.config.layers
        layer = layers if self.layer is None else self.layer
        if layer > layers:
            raise UserError(
                f"{self.name}: RETRIEVAL_LAYER={layer}, and the model has {layers} layers"
            )
        h_NBLD = model.encode(params, batch, self.attention(), rng=rng, all_layers=True)
        h_BLD = h_NBLD[layer].astype(jnp.float32)
        B, L, D = h_BLD.shape
        found = []
        for side in (0, 1):
            there_QL = self.of_text(batch, side)
            if self.pooling == "first":
                there_QL &= jnp.arange(L) == there_QL.argmax(axis=1)[:, None]
            weights_QL = there_QL / jnp.maximum(there_QL.sum(axis=1, keepdims=True), 1)
            weights_BPL = weights_QL.reshape(B, -1, L)
            mean_QD = jnp.einsum("BPL,BLD->BPD", weights_BPL, h_BLD).reshape(-1, D)
            found.append(self.dense(mean_QD) if self.dense else mean_QD)
        return found[0], found[1]


def unit(x_QD: Array) -> Array:
    """Of length 1, and 0 of 0: a gradient at the norm of a vector that is 0 is no number."""
    square_Q1 = (x_QD**2).sum(axis=1, keepdims=True)
    return x_QD * jax.lax.rsqrt(jnp.maximum(square_Q1, 1e-12))


@dataclasses.dataclass(frozen=True)
class HardestNegative(SentencePairs, LabelObjective):
    """A text and its translation are a positive, the text and the most similar translation of
    another text of the batch a negative: binary cross-entropy of `scale` times the cosine plus
    `bias`, mean of both directions (ERNIE-M's Tatoeba "after fine-tuning", in its EMNLP 2021
    version; hardest negatives as in Faghri et al. 2018).

    A text that is equal to the translation is no negative. A batch is one question, and of several
    `parts` the vectors are computed one after the other. The paper prints neither scale nor bias.
    """

    name: str = "hardest_negative"
    scale: float = 20.0
    bias: float = 0.0
    parts: int = 1
    whole_batch = True

    def __post_init__(self):
        super().__post_init__()
        require_numbers(self, "(0, inf)", "scale", f"{self.name}: ")

    def vectors(
        self, model: Encoder, params: Params, batch: Batch, rng: Key = None
    ) -> tuple[Array, Array]:
        """As of every objective of pairs, but of length 1."""
        if self.parts == 1:
            u_QD, v_QD = super().vectors(model, params, batch, rng)
            return unit(u_QD), unit(v_QD)

        # No part is kept but its vectors: on the way back each is computed again (Gao et al. 2021,
        # "Scaling deep contrastive learning batch size under memory limited setup").
        @jax.checkpoint
        def of_part(rows: Batch, number: Array) -> tuple[Array, Array]:
            key = None if rng is None else jax.random.fold_in(rng, number)
            return self.in_parts(1).vectors(model, params, rows, key)

        read = {name: batch[name] for name in self.reads}
        cut = cut_rows(read, self.parts, model.mesh), jnp.arange(self.parts)
        _, found = jax.lax.scan(lambda _, part: (None, of_part(*part)), None, cut)
        rows = len(batch["input_ids"]) // self.parts
        # A part has every `parts`-th row, and all of its pairs.
        u_QD, v_QD = (
            x.reshape(self.parts, rows, -1, x.shape[-1]).swapaxes(0, 1).reshape(-1, x.shape[-1])
            for x in found
        )
        return u_QD, v_QD

    def in_parts(self, parts: int) -> "HardestNegative":
        return dataclasses.replace(self, parts=parts)

    def judged(self, model: Encoder, params: Params, batch: Batch, rng: Key) -> Judged:
        u_QD, v_QD = self.vectors(model, params, batch, rng)
        # In float32: near 1 the cosines of a trained model differ in late digits.
        cosine_QQ = jnp.einsum("QD,CD->QC", u_QD, v_QD, precision=jax.lax.Precision.HIGHEST)
        logits_QQ = self.scale * cosine_QQ + self.bias
        weights_Q = self.used(batch)
        # [x, y]: a negative is another pair's text, and none that is the same text.
        real_QQ = (weights_Q[:, None] * weights_Q[None, :]) > 0
        # Rows [Q, Q] of each direction: of a text the translations, of a translation the texts.
        negatives = []
        for side, scores_QQ in ((1, logits_QQ), (0, logits_QQ.T)):
            texts_Q = self._texts(batch, side)
            other_QQ = texts_Q[:, None] != texts_Q[None, :]
            negatives.append(jnp.where(real_QQ & other_QQ, scores_QQ, jnp.finfo(jnp.float32).min))
        positive_Q = jnp.diagonal(logits_QQ)
        loss_Q = self.against(positive_Q, *negatives)
        hardest_Q = jnp.maximum(*(negatives_QQ.max(axis=1) for negatives_QQ in negatives))
        return Judged(loss_Q, positive_Q > hardest_Q, weights_Q, self.languages(batch, 0))

    def against(self, positive_Q: Array, forward_QQ: Array, backward_QQ: Array) -> Array:
        """[Q]: the loss of each pair's score against those of its negatives in both directions."""
        # -log sigmoid(s) = softplus(-s) of a positive, softplus(s) of a negative.
        of_negatives_Q = jax.nn.softplus(forward_QQ.max(axis=1))
        of_negatives_Q += jax.nn.softplus(backward_QQ.max(axis=1))
        return jax.nn.softplus(-positive_Q) + 0.5 * of_negatives_Q

    def _texts(self, batch: Batch, side: int) -> Array:
        """A number [Q] of each text of a side; equal texts have the same."""
        # By the place within the text, which does not depend on the length of the other one.
        places_BL = batch["position_ids"].astype(jnp.uint32) + 1
        ids_BL = batch["input_ids"].astype(jnp.uint32) + 1
        # Two texts of one number would cost one negative in 4e9.
        mixed_BL = (ids_BL * jnp.uint32(2654435761)) ^ (places_BL * jnp.uint32(2246822519))
        mixed_BL = (mixed_BL ^ (mixed_BL >> 15)) * jnp.uint32(3266489917)
        mixed_BL = mixed_BL ^ (mixed_BL >> 13)
        return self.of_columns(mixed_BL, self.of_text(batch, side)).sum(axis=1, dtype=jnp.uint32)


@dataclasses.dataclass(frozen=True)
class TranslationRanking(HardestNegative):
    """A text's translation among those of the batch: cross-entropy of the softmax over `scale`
    times the cosines, the pair's own less `margin` times `scale`, sum of both directions (LaBSE,
    Feng et al. 2022, §2.2, equation 2; its margin is 0.3, "in-batch negatives" of others)."""

    name: str = "translation_ranking"
    margin: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        require_numbers(self, "[0, 2]", "margin", f"{self.name}: ")

    def against(self, positive_Q: Array, forward_QQ: Array, backward_QQ: Array) -> Array:
        positive_Q = positive_Q - self.scale * self.margin
        losses = []
        for negatives_QQ in (forward_QQ, backward_QQ):
            scores = jnp.concatenate([positive_Q[:, None], negatives_QQ], axis=1)
            losses.append(jax.nn.logsumexp(scores, axis=1) - positive_Q)
        return losses[0] + losses[1]


@dataclasses.dataclass(frozen=True)
class Distillation(SentencePairs):
    """Both texts of a pair get the vector that a teacher gives to one of them: the sum of both
    squared distances, mean over pairs (Reimers & Gurevych 2020, "Making monolingual sentence
    embeddings multilingual using knowledge distillation", §2, equation 1).

    normalize: all vectors at length 1, for models that compare by the cosine; the paper's are as
    they are.
    """

    name: str = "distillation"
    normalize: bool = False
    reads = (*SentencePairs.reads, "teacher_vectors")

    def loss(self, model: Encoder, params: Params, batch: Batch, rng: Key, languages: int) -> Loss:
        t_QD = batch["teacher_vectors"].reshape(-1, batch["teacher_vectors"].shape[-1])
        weights_Q = self.used(batch)
        squares, cosines = [], []
        for u_QD in self.vectors(model, params, batch, rng):
            if u_QD.shape != t_QD.shape:
                raise UserError(
                    f"{self.name}: the teacher's vectors have {t_QD.shape[1]} numbers, and those of"
                    f" the model {u_QD.shape[1]}; choose a teacher of as many"
                )
            cosines.append((unit(u_QD) * unit(t_QD)).sum(axis=1))
            if self.normalize:
                squares.append(2 - 2 * cosines[-1])
            else:
                squares.append(((u_QD - t_QD) ** 2).sum(axis=1))
        values = {"loss": jnp.concatenate(squares), "cosine": jnp.concatenate(cosines)}
        metrics = metrics_by_language(
            self.name,
            values,
            jnp.concatenate([weights_Q, weights_Q]),
            jnp.concatenate([self.languages(batch, 0), self.languages(batch, 1)]),
            languages,
        )
        return Loss({self.name: (sum(squares) * weights_Q).sum()}, metrics)
