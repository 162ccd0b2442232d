"""Unicoder's three objectives beside MLM and TLM (Unicoder §3.2): word recovery, paraphrase classification, masked LM on
documents of two languages."""

import dataclasses

import jax
import jax.numpy as jnp

from xlingjax.model.attention import AttentionSpec
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import bidirectional, own_side, partner
from xlingjax.objectives.base import Array, Batch, Loss, Params, metrics_by_language
from xlingjax.objectives.xlm import CHUNK, INPUTS, MLM, token_loss


@dataclasses.dataclass(frozen=True)
class CLWR:
    """Cross-lingual word recovery: each text read as mixtures of its translation's word embeddings, every word predicted.

    The mean over all words of both texts of a pair, each recovered from the other. raw: feed the mixtures to the first
    layer as they are, without position, language and LayerNorm.
    """

    name: str = "clwr"
    raw: bool = False
    chunk: int = CHUNK
    reads = (*INPUTS, "sides", "target_weights")

    @property
    def coefficients(self) -> dict[str, float]:
        return {self.name: 1.0}

    def attention(self) -> AttentionSpec:
        """Of the layers; a word is mixed from those that the mask `partner` allows."""
        return AttentionSpec(own_side)

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {self.name: batch["target_weights"].sum()}

    def mixtures(self, model: Encoder, params: Params, batch: Batch) -> tuple[Array, Array]:
        """(x_BLD, attention_BLS): the input of the layers, and how much of which word is in it."""
        e_BLD = model.word_embeddings(params, batch["input_ids"])
        return model.recover_words(params, e_BLD, batch, partner)

    def loss(self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int) -> Loss:
        x_BLD, _ = self.mixtures(model, params, batch)
        h_BLD = model.encode(params, batch, self.attention(), rng=rng, **{"states_BLD" if self.raw else "words_BLD": x_BLD})
        return token_loss(
            self.name,
            model,
            params,
            h_BLD,
            batch["input_ids"],
            batch["target_weights"],
            batch["language_ids"],
            languages,
            self.chunk,
        )


@dataclasses.dataclass(frozen=True)
class CLPC:
    """Cross-lingual paraphrase classification: binary cross-entropy of the first state of a pair, one pair per row.

    Label 1 = the two texts translate each other. Metrics are by the language of the second text.
    """

    name: str = "clpc"
    reads = (*INPUTS, "sides", "labels", "example_weights")

    @property
    def coefficients(self) -> dict[str, float]:
        return {self.name: 1.0}

    def attention(self) -> AttentionSpec:
        return AttentionSpec(bidirectional, packed=False)

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {self.name: batch["example_weights"].sum()}

    def loss(self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int) -> Loss:
        encode_rng, head_rng = (None, None) if rng is None else jax.random.split(rng)
        h_BLD = model.encode(params, batch, self.attention(), rng=encode_rng)
        logit_B = model.classify_paraphrase(params, h_BLD, rng=head_rng)
        sign_B = 2.0 * batch["labels"] - 1.0
        values = {"loss": jax.nn.softplus(-sign_B * logit_B), "accuracy": jnp.float32(sign_B * logit_B > 0)}
        second_B = jnp.where(batch["sides"] > 0, batch["language_ids"], -1).max(axis=1)
        metrics = metrics_by_language(self.name, values, batch["example_weights"], second_B, languages)
        return Loss({self.name: (values["loss"] * batch["example_weights"]).sum()}, metrics)


@dataclasses.dataclass(frozen=True)
class CLMLM(MLM):
    """Cross-lingual masked LM: MLM on documents some of whose sentences are replaced by their translation."""

    name: str = "cl_mlm"
