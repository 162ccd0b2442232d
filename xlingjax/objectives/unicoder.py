"""Unicoder's objectives beside MLM and TLM (Unicoder §3.2): word recovery, paraphrase
classification, masked LM on documents of two languages; and the light model that finds wrong
partners for the second."""

import dataclasses

import jax
import jax.numpy as jnp

from xlingjax.errors import require_numbers
from xlingjax.model.encoder import Encoder
from xlingjax.model.layers import split_key
from xlingjax.model.masks import Mask, bidirectional, own_side, partner
from xlingjax.objectives.base import (
    CHUNK,
    INPUTS,
    Array,
    Batch,
    Judged,
    Key,
    LabelObjective,
    Params,
    Predictions,
    TokenObjective,
    at_all,
    first_language,
    used_rows,
)
from xlingjax.objectives.finetuning import of_classes
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
    weighed_by = "target_weights"
    adds = ("word_recovery",)

    def attention(self) -> Mask:
        # All that a text knows of the other one is in its mixtures.
        return own_side

    def masks(self) -> dict[str, Mask]:
        return {"self-attention": own_side, "word recovery": partner}

    def evidence(self) -> dict[str, Mask]:
        """Of the words that are mixed; those to be recovered say how much of which, and are not
        shifted."""
        return {self.name: partner}

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
        rng: Key = None,
        shift_BLD: Array | None = None,
    ) -> dict[str, Predictions]:
        # What is hidden of a text is all of it: its own words reach no layer.
        x_BLD, _ = self.mixtures(model, params, batch, shift_BLD)
        # The paper does not say whether positions and languages are added to the mixtures.
        given = {"states_BLD" if self.raw else "words_BLD": x_BLD}
        h_BLD = model.encode(params, batch, self.attention(), rng=rng, **given)
        return {
            self.name: at_all(
                h_BLD, batch["input_ids"], batch["target_weights"], batch["language_ids"]
            )
        }


@dataclasses.dataclass(frozen=True)
class CLPC(LabelObjective):
    """Cross-lingual paraphrase classification: binary cross-entropy of the first state of a pair,
    one pair per row.

    Label 1 = the two texts translate each other. Metrics are by the language of the second text.
    """

    name: str = "clpc"
    reads = (*INPUTS, "sides", "labels", "example_weights")
    adds = ("paraphrase",)
    continues_encoder = True

    def evidence(self) -> dict[str, Mask]:
        return {self.name: bidirectional}

    def read(self, h_BLD: Array, batch: Batch) -> dict[str, Predictions]:
        first_B1 = jnp.zeros((len(h_BLD), 1), jnp.int32)
        # Padding has side 0, so the second text is wherever the side is not.
        second_B = jnp.where(batch["sides"] > 0, batch["language_ids"], -1).max(axis=1)
        labels_B1, weights_B1 = batch["labels"][:, None], batch["example_weights"][:, None]
        return {
            self.name: Predictions(h_BLD[:, :1], first_B1, labels_B1, weights_B1, second_B[:, None])
        }

    def judged(self, model: Encoder, params: Params, batch: Batch, rng: Key) -> Judged:
        encode_rng, head_rng = split_key(rng)
        first = self.predictions(model, params, batch, encode_rng)[self.name]
        logit_B = model.classify_paraphrase(params, first.states, rng=head_rng)
        # -log sigmoid(s x) = softplus(-s x), with s = 1 for translations and -1 for others.
        signed_B = (2.0 * batch["labels"] - 1.0) * logit_B
        return Judged(
            jax.nn.softplus(-signed_B),
            signed_B > 0,
            batch["example_weights"],
            first.languages[:, 0],
        )


@dataclasses.dataclass(frozen=True)
class DAN(LabelObjective):
    """The light model that finds wrong partners for `CLPC` (Unicoder §3.2; Guo et al. 2018): each
    text among all translations of the batch, softmax over `scale` times the cosine of deep
    averages.

    A batch is one question: it cannot be cut into microbatches. One pair per row.
    """

    name: str = "dan"
    scale: float = 20.0
    reads = (*INPUTS, "sides")
    # Each row is measured against all others, so microbatches would ask an easier question.
    whole_batch = True

    def __post_init__(self):
        require_numbers(self, "(0, inf)", "scale", f"{self.name}: ")

    def attention(self) -> Mask:
        """There is none; who is averaged."""
        return own_side

    def masks(self) -> dict[str, Mask]:
        return {"averages": own_side}

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {self.name: used_rows(batch).sum()}

    def judged(self, model: Encoder, params: Params, batch: Batch, rng: Key) -> Judged:
        # Cosines; an average may be 0, as of a row that only fills the batch.
        u_BF, v_BF = (
            x_BF / jnp.maximum(jnp.linalg.norm(x_BF, axis=1, keepdims=True), 1e-6)
            for x_BF in model.averages(params, batch)
        )
        weights_B = used_rows(batch)
        # Row i's translation stands in column i; rows that only fill the batch are no candidates.
        # Cosines lie in -1 .. 1: without a scale their softmax stays nearly even.
        lowest = jnp.finfo(jnp.float32).min
        scores_BB = jnp.where(weights_B[None, :] > 0, self.scale * u_BF @ v_BF.T, lowest)
        found = of_classes(scores_BB, jnp.arange(len(scores_BB)))
        return Judged(*found, weights_B, first_language(batch))


@dataclasses.dataclass(frozen=True)
class CLMLM(MLM):
    """Cross-lingual masked LM: MLM on documents some of whose sentences are replaced by their
    translation."""

    name: str = "cl_mlm"
