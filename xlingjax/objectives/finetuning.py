"""Fine-tuning objectives: one labelled text, pair of texts, or tagged sentence per row."""

import dataclasses

import jax
import jax.numpy as jnp

from xlingjax.errors import UserError
from xlingjax.model.attention import AttentionSpec
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import Mask, bidirectional, same_side
from xlingjax.objectives.base import INPUTS, Array, Batch, Loss, Params, metrics_by_language


@dataclasses.dataclass(frozen=True)
class Classification:
    """Mean cross-entropy per example of the model's classifier (see `Classifier`).

    apart: the encoder sees each text of a pair alone, as it did when it learned that translations are alike; for the
    classifier "difference" and no other. num_labels must be the model's. Raises UserError where either is not so. Rows
    of `example_weights` 0 count for nothing. An example's language is that of its first token.
    """

    num_labels: int
    apart: bool = False
    name: str = "classification"
    reads: tuple[str, ...] = (
        "input_ids",
        "position_ids",
        "language_ids",
        "pack_ids",
        "sides",
        "labels",
        "example_weights",
    )
    coefficients: dict[str, float] = dataclasses.field(default_factory=lambda: {"classification": 1.0}, hash=False)

    def attention(self) -> AttentionSpec:
        return AttentionSpec(bidirectional & same_side if self.apart else bidirectional, packed=self.apart)

    def masks(self) -> dict[str, Mask]:
        return {"attention": self.attention().mask}

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {"classification": batch["example_weights"].sum()}

    def loss(self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int) -> Loss:
        logits_BC = self.logits(model, params, batch, rng)
        nll_B = -jnp.take_along_axis(jax.nn.log_softmax(logits_BC), batch["labels"][:, None], axis=-1)[:, 0]
        correct_B = (logits_BC.argmax(-1) == batch["labels"]).astype(jnp.float32)
        weights_B = batch["example_weights"]
        metrics = metrics_by_language(
            self.name, {"loss": nll_B, "accuracy": correct_B}, weights_B, batch["language_ids"][:, 0], languages
        )
        return Loss(terms={"classification": (nll_B * weights_B).sum()}, metrics=metrics)

    def logits(self, model: Encoder, params: Params, batch: Batch, rng: Array | None = None) -> Array:
        """float32 logits_BC."""
        if model.config.num_labels != self.num_labels:
            raise UserError(
                f"model {model.config.name} has num_labels={model.config.num_labels} and the task has "
                f"{self.num_labels} labels: set the model's num_labels to the task's"
            )
        if self.apart != (model.config.classifier == "difference"):
            raise UserError(
                f"model {model.config.name} has classifier={model.config.classifier!r} and the objective "
                f"apart={self.apart}: set CLASSIFIER, which sets both"
            )
        encode_rng, head_rng = (None, None) if rng is None else jax.random.split(rng)
        h_BLD = model.encode(params, batch, self.attention(), rng=encode_rng)
        return model.classify(params, h_BLD, batch, rng=head_rng)


@dataclasses.dataclass(frozen=True)
class Tagging:
    """Mean cross-entropy per word of the model's tagger, read at the first piece of each word."""

    num_labels: int
    name: str = "tagging"
    reads: tuple[str, ...] = (*INPUTS, "tag_labels", "tag_weights")
    coefficients: dict[str, float] = dataclasses.field(default_factory=lambda: {"tagging": 1.0}, hash=False)

    def attention(self) -> AttentionSpec:
        return AttentionSpec(bidirectional, packed=False)

    def masks(self) -> dict[str, Mask]:
        return {"attention": bidirectional}

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {"tagging": batch["tag_weights"].sum()}

    def loss(self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int) -> Loss:
        log_p_BLC = jax.nn.log_softmax(self.logits(model, params, batch, rng))
        nll_BL = -jnp.take_along_axis(log_p_BLC, batch["tag_labels"][..., None], axis=-1)[..., 0]
        correct_BL = (log_p_BLC.argmax(-1) == batch["tag_labels"]).astype(jnp.float32)
        weights_T = batch["tag_weights"].reshape(-1)
        values = {"loss": nll_BL.reshape(-1), "accuracy": correct_BL.reshape(-1)}
        metrics = metrics_by_language(self.name, values, weights_T, batch["language_ids"].reshape(-1), languages)
        return Loss(terms={"tagging": (values["loss"] * weights_T).sum()}, metrics=metrics)

    def logits(self, model: Encoder, params: Params, batch: Batch, rng: Array | None = None) -> Array:
        """float32 logits_BLC."""
        if (model.config.num_labels, model.config.classifier) != (self.num_labels, "tagging"):
            raise UserError(
                f"model {model.config.name} has num_labels={model.config.num_labels}, "
                f"classifier={model.config.classifier!r}; the task has {self.num_labels} tags and needs "
                'classifier="tagging"'
            )
        encode_rng, head_rng = (None, None) if rng is None else jax.random.split(rng)
        h_BLD = model.encode(params, batch, self.attention(), rng=encode_rng)
        return model.classify(params, h_BLD, batch, rng=head_rng)
