"""Unicoder's objectives beside MLM and TLM (Unicoder §3.2): word recovery, paraphrase
classification, masked LM on documents of two languages; and the light model that finds wrong
partners for the second."""

import dataclasses

import jax
import jax.numpy as jnp

from xlingjax.errors import require_numbers
from xlingjax.model.attention import AttentionSpec
from xlingjax.model.config import ModelConfig
from xlingjax.model.encoder import Encoder
from xlingjax.model.layers import split_key
from xlingjax.model.masks import Mask, bidirectional, own_side, partner
from xlingjax.objectives.base import (
    CHUNK,
    INPUTS,
    Array,
    Batch,
    Loss,
    Objective,
    Params,
    Predictions,
    Shapes,
    TokenObjective,
    at_all,
    flops_of_labels,
    metrics_by_language,
)
from xlingjax.objectives.xlm import MLM


@dataclasses.dataclass(frozen=True)
class CLWR(TokenObjective):
    """Cross-lingual word recovery: a text read as mixtures of its translation's word embeddings,
    all words predicted.

    The mean over all words of both texts of a pair, each recovered from the other. raw: feed the
    mixtures to the first layer as they are, without position, language and LayerNorm.
    """

    name: str = "clwr"
    raw: bool = False
    chunk: int = CHUNK
    reads = (*INPUTS, "sides", "target_weights")
    adds = ("word_recovery",)

    def attention(self) -> AttentionSpec:
        # All that a text knows of the other one is in its mixtures.
        return AttentionSpec(own_side)

    def masks(self) -> dict[str, Mask]:
        return {"self-attention": own_side, "word recovery": partner}

    def evidence(self) -> dict[str, Mask]:
        """Of the words that are mixed; those to be recovered say how much of which, and are not
        shifted."""
        return {self.name: partner}

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {self.name: batch["target_weights"].sum()}

    def mixtures(
        self, model: Encoder, params: Params, batch: Batch, shift_BLD: Array | None = None
    ) -> tuple[Array, Array]:
        """(x_BLD, attention_BLS): the input of the layers, and how much of which word is in it."""
        return model.recover_words(params, batch, partner, shift_BLD=shift_BLD)

    def predictions(
        self,
        model: Encoder,
        params: Params,
        batch: Batch,
        rng: Array | None = None,
        shift_BLD: Array | None = None,
    ) -> dict[str, Predictions]:
        # What is hidden of a text is all of it: its own words reach no layer.
        x_BLD, _ = self.mixtures(model, params, batch, shift_BLD)
        # The paper does not say whether positions and languages are added to the mixtures.
        if self.raw:
            h_BLD = model.encode(params, batch, self.attention(), rng=rng, states_BLD=x_BLD)
        else:
            h_BLD = model.encode(params, batch, self.attention(), rng=rng, words_BLD=x_BLD)
        predictions = at_all(
            h_BLD, batch["input_ids"], batch["target_weights"], batch["language_ids"]
        )
        return {self.name: predictions}


@dataclasses.dataclass(frozen=True)
class CLPC(Objective):
    """Cross-lingual paraphrase classification: binary cross-entropy of the first state of a pair,
    one pair per row.

    Label 1 = the two texts translate each other. Metrics are by the language of the second text.
    """

    name: str = "clpc"
    reads = (*INPUTS, "sides", "labels", "example_weights")

    adds = ("paraphrase",)

    @property
    def coefficients(self) -> dict[str, float]:
        return {self.name: 1.0}

    def flops_per_token(self, config: ModelConfig, shapes: Shapes) -> float | None:
        return flops_of_labels(config, shapes)

    def attention(self) -> AttentionSpec:
        # The answer stands at the row's first state, so a row is one pair.
        return AttentionSpec(bidirectional, packed=False)

    def evidence(self) -> dict[str, Mask]:
        return {self.name: bidirectional}

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {self.name: batch["example_weights"].sum()}

    def predictions(
        self,
        model: Encoder,
        params: Params,
        batch: Batch,
        rng: Array | None = None,
        shift_BLD: Array | None = None,
    ) -> dict[str, Predictions]:
        h_BLD = model.encode(params, batch, self.attention(), rng=rng, shift_BLD=shift_BLD)
        h_B1D = h_BLD[:, :1]
        # Padding has side 0, so the second text is wherever the side is not.
        second_B = jnp.where(batch["sides"] > 0, batch["language_ids"], -1).max(axis=1)
        predictions = Predictions(
            states=h_B1D,
            columns=jnp.zeros((h_B1D.shape[0], 1), jnp.int32),
            targets=batch["labels"][:, None],
            weights=batch["example_weights"][:, None],
            languages=second_B[:, None],
        )
        return {self.name: predictions}

    def loss(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int
    ) -> Loss:
        encode_rng, head_rng = split_key(rng)
        first = self.predictions(model, params, batch, encode_rng)[self.name]
        logit_B = model.classify_paraphrase(params, first.states, rng=head_rng)
        # -log sigmoid(s x) = softplus(-s x), with s = 1 for translations and -1 for others.
        sign_B = 2.0 * batch["labels"] - 1.0
        nll_B = jax.nn.softplus(-sign_B * logit_B)
        correct_B = jnp.float32(sign_B * logit_B > 0)
        weights_B = batch["example_weights"]
        values = {"loss": nll_B, "accuracy": correct_B}
        metrics = metrics_by_language(
            self.name, values, weights_B, first.languages[:, 0], languages
        )
        return Loss({self.name: (nll_B * weights_B).sum()}, metrics)


@dataclasses.dataclass(frozen=True)
class DAN(Objective):
    """The light model that finds wrong partners for `CLPC` (Unicoder §3.2; Guo et al. 2018): each
    text among all translations of the batch, softmax over `scale` times the cosine of deep
    averages.

    A batch is one question: it cannot be cut into microbatches. One pair per row.
    """

    name: str = "dan"
    scale: float = 20.0
    reads = (*INPUTS, "sides")
    continues_encoder = False
    # Each row is measured against all others, so microbatches would ask an easier question.
    whole_batch = True

    def __post_init__(self):
        require_numbers(self, "(0, inf)", "scale", f"{self.name}: ")

    @property
    def coefficients(self) -> dict[str, float]:
        return {self.name: 1.0}

    def attention(self) -> AttentionSpec:
        """There is none; who is averaged."""
        # A deep average has no attention; this says which words are averaged.
        return AttentionSpec(own_side, packed=False)

    def masks(self) -> dict[str, Mask]:
        return {"averages": own_side}

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {self.name: self._weights_B(batch).sum()}

    def _weights_B(self, batch: Batch) -> Array:
        return (batch["pack_ids"] > 0).any(axis=1).astype(jnp.float32)

    def loss(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int
    ) -> Loss:
        # Cosines; an average may be 0, as of a row that only fills the batch.
        u_BF, v_BF = model.averages(params, batch)
        u_BF = u_BF / jnp.maximum(jnp.linalg.norm(u_BF, axis=1, keepdims=True), 1e-6)
        v_BF = v_BF / jnp.maximum(jnp.linalg.norm(v_BF, axis=1, keepdims=True), 1e-6)
        weights_B = self._weights_B(batch)
        # Row i's translation stands in column i; rows that only fill the batch are no candidates.
        candidate_1B = weights_B[None, :] > 0
        # Cosines lie in -1 .. 1: without a scale their softmax stays nearly even.
        scores_BB = self.scale * u_BF @ v_BF.T
        scores_BB = jnp.where(candidate_1B, scores_BB, jnp.finfo(jnp.float32).min)
        nll_B = -jnp.diagonal(jax.nn.log_softmax(scores_BB, axis=1))
        correct_B = jnp.float32(scores_BB.argmax(axis=1) == jnp.arange(scores_BB.shape[0]))
        values = {"loss": nll_B, "accuracy": correct_B}
        metrics = metrics_by_language(
            self.name, values, weights_B, batch["language_ids"][:, 0], languages
        )
        return Loss({self.name: (nll_B * weights_B).sum()}, metrics)


@dataclasses.dataclass(frozen=True)
class CLMLM(MLM):
    """Cross-lingual masked LM: MLM on documents some of whose sentences are replaced by their
    translation."""

    name: str = "cl_mlm"
