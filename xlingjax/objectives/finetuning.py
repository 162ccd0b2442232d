"""Fine-tuning objectives: one labelled text, pair of texts, tagged sentence or question per row."""

import dataclasses

import jax
import jax.numpy as jnp

from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig
from xlingjax.model.encoder import Encoder
from xlingjax.model.layers import split_key
from xlingjax.model.masks import Mask, bidirectional
from xlingjax.objectives.base import (
    EACH_TEXT_ALONE,
    INPUTS,
    Array,
    Batch,
    Judged,
    Key,
    LabelObjective,
    Params,
    first_language,
)
from xlingjax.objectives.translation import with_decoder


def of_classes(logits_TC: Array, labels_T: Array) -> tuple[Array, Array]:
    """(cross-entropy [T], bool [T]: whether the likeliest class is right)."""
    log_p_TC = jax.nn.log_softmax(logits_TC)
    nll_T = -jnp.take_along_axis(log_p_TC, labels_T[..., None], axis=-1)[..., 0]
    return nll_T, logits_TC.argmax(-1) == labels_T


def of_spans(logits_BLC: Array, starts_B: Array, ends_B: Array) -> tuple[Array, Array]:
    """(the mean cross-entropy of both ends [B], bool [B]: whether both are right), over the columns
    of a row."""
    targets_BC = jnp.stack([starts_B, ends_B], axis=-1)
    log_p_BLC = jax.nn.log_softmax(logits_BLC, axis=1)
    nll_BC = -jnp.take_along_axis(log_p_BLC, targets_BC[:, None], axis=1)[:, 0]
    # The mean of both, as BERT's run_squad.py has it.
    return nll_BC.mean(-1), (logits_BLC.argmax(1) == targets_BC).all(-1)


def at_columns(logits_BLC: Array, allowed_BL: Array) -> Array:
    """Far below all others where a column is not allowed."""
    # Not -inf: a row that only fills the batch has no column at all, and 0 times NaN is NaN.
    return jnp.where(allowed_BL[..., None], logits_BLC, jnp.finfo(jnp.float32).min)


def require_classifier(config: ModelConfig, classifier: str, num_labels: int) -> None:
    """Raise UserError unless the model has this classifier, of so many classes."""
    if config.num_labels != num_labels or config.classifier != classifier:
        raise UserError(
            f"model {config.name} has num_labels={config.num_labels},"
            f" classifier={config.classifier!r}; the objective needs num_labels={num_labels},"
            f' classifier="{classifier}"'
        )


@dataclasses.dataclass(frozen=True)
class Classification(LabelObjective):
    """Mean cross-entropy per example of the model's classifier (see `Classifier`), or of the head
    of `task`.

    The classifier "decoder" reads an encoder-decoder: the decoder reads the text once more, and its
    state behind the last word is classified (BART, Lewis et al. 2020, §3.1; VECO's footnote 10).
    apart: the encoder sees each text of a pair alone, as it did when it learned that translations
    are alike; for the classifier "difference" and no other. num_labels must be the model's. Raises
    UserError where either is not so. Rows of `example_weights` 0 count for nothing. An example's
    language is that of its first token.
    """

    num_labels: int
    apart: bool = False
    task: str | None = None
    """Of a model with several heads (XGLUE §6.3.3, multi-task fine-tuning): whose. No other head
    gets a gradient."""
    reads = (*INPUTS, "sides", "labels", "example_weights")

    @property
    def name(self) -> str:
        return f"classification_{self.task}" if self.task else "classification"

    def attention(self) -> Mask:
        return EACH_TEXT_ALONE if self.apart else bidirectional

    def judged(self, model: Encoder, params: Params, batch: Batch, rng: Key) -> Judged:
        logits_BC = self.logits(model, params, batch, rng)
        found = of_classes(logits_BC, batch["labels"])
        return Judged(*found, batch["example_weights"], first_language(batch))

    def logits(self, model: Encoder, params: Params, batch: Batch, rng: Key = None) -> Array:
        """float32 logits_BC."""
        # Here and not in __post_init__: an objective meets its model at the first step.
        self._check(model.config)
        encode_rng, head_rng = split_key(rng)
        h_BLD = model.encode(params, batch, self.attention(), rng=encode_rng)
        if model.config.classifier == "decoder":
            decoder_rng, head_rng = split_key(head_rng)
            h_BLD = decoder_state(model, params, batch, h_BLD, decoder_rng)
        return model.classify(params, h_BLD, batch, rng=head_rng, task=self.task)

    def _check(self, config: ModelConfig) -> None:
        num_labels = config.labels_of(self.task)
        if num_labels != self.num_labels:
            raise UserError(
                f"model {config.name} has num_labels={num_labels} for {self.name} and the task has"
                f" {self.num_labels} labels: set the model's num_labels to the task's"
            )
        of_others = config.plugged_in or config.classifier in ("tagging", "spans")
        if of_others or self.apart != (config.classifier == "difference"):
            raise UserError(
                f"model {config.name} has classifier={config.classifier!r} and the"
                f" objective apart={self.apart}: set CLASSIFIER, which sets both, to xlm, xlmr or"
                " difference"
            )


def decoder_state(
    model: Encoder, params: Params, batch: Batch, memory_BLD: Array, rng: Key = None
) -> Array:
    """[B, 1, D]: the decoder's state behind the last word of the row's one example, which it reads
    as it read its targets in pretraining: what it begins with, then the words.

    memory_BLD: the encoder's states of the rows."""
    c = model.config
    used_BL = batch["pack_ids"] > 0
    # The token that ends the text is predicted and not read. Rows that only fill a batch have none.
    last_B1 = jnp.maximum(used_BL.sum(axis=1, keepdims=True) - 1, 0)
    starts_B1 = jnp.take_along_axis(batch["input_ids"], last_B1, axis=1)
    if c.language_tokens:
        starts_B1 = c.vocab_size - c.language_tokens + batch["language_ids"][:, :1]
    elif c.unseen is not None:
        starts_B1 = batch["input_ids"][:, :1]
    column_L = jnp.arange(used_BL.shape[1])
    reads_BL = used_BL & (column_L < last_B1)
    fields = {
        **batch,
        "decoder_ids": jnp.where(column_L == 0, starts_B1, batch["input_ids"]),
        "decoder_position_ids": batch["position_ids"],
        "decoder_language_ids": batch["language_ids"],
        "decoder_pack_ids": jnp.where(reads_BL, batch["pack_ids"], 0),
    }
    h_BLD = with_decoder(model, "classification").decode(params, fields, memory_BLD, rng=rng)
    return jnp.take_along_axis(h_BLD, jnp.maximum(last_B1 - 1, 0)[..., None], axis=1)


class OfColumns(LabelObjective):
    """What a classifier of every state, of `num_labels` outputs, predicts at the columns. Raises
    UserError unless the model has it."""

    classifier: str
    num_labels: int

    def logits(self, model: Encoder, params: Params, batch: Batch, rng: Key = None) -> Array:
        """float32 logits_BLC."""
        require_classifier(model.config, self.classifier, self.num_labels)
        encode_rng, head_rng = split_key(rng)
        h_BLD = model.encode(params, batch, self.attention(), rng=encode_rng)
        return model.classify(params, h_BLD, batch, rng=head_rng)


@dataclasses.dataclass(frozen=True)
class Tagging(OfColumns):
    """Mean cross-entropy per word of the model's tagger, read at the first piece of each word."""

    num_labels: int
    name = classifier = "tagging"
    reads = (*INPUTS, "tag_labels", "tag_weights")
    weighed_by = "tag_weights"

    def judged(self, model: Encoder, params: Params, batch: Batch, rng: Key) -> Judged:
        # Every column gets logits; pieces but the first of a word have weight 0.
        found = of_classes(self.logits(model, params, batch, rng), batch["tag_labels"])
        by_column = (*found, batch["tag_weights"], batch["language_ids"])
        return Judged(*(values_BL.reshape(-1) for values_BL in by_column))


@dataclasses.dataclass(frozen=True)
class SpanQA(OfColumns):
    """Mean per row of (cross-entropy of the answer's first column + that of its last) / 2, of a
    linear layer on every state (BERT §4.2; XTREME, XGLUE, ERNIE-M).

    Both distributions are over the row's `answer_columns`: the context's pieces, and the first
    token, at which an answer stands that the window does not hold. "accuracy": share of rows with
    both columns right. Rows of `example_weights` 0 count for nothing. A row's language is that of
    its first token. Raises UserError unless the model has classifier "spans" and num_labels 2.
    """

    name = "span_qa"
    classifier = "spans"
    num_labels = 2
    reads = (
        *INPUTS,
        "sides",
        "answer_columns",
        "start_positions",
        "end_positions",
        "example_weights",
    )

    def judged(self, model: Encoder, params: Params, batch: Batch, rng: Key) -> Judged:
        logits_BLC = self.logits(model, params, batch, rng)
        found = of_spans(logits_BLC, batch["start_positions"], batch["end_positions"])
        return Judged(*found, batch["example_weights"], first_language(batch))

    def logits(self, model: Encoder, params: Params, batch: Batch, rng: Key = None) -> Array:
        """float32 logits_BLC, of first and last column; far below all others outside
        `answer_columns`."""
        logits_BLC = super().logits(model, params, batch, rng)
        return at_columns(logits_BLC, batch["answer_columns"] > 0)
