"""Fine-tuning objectives: one labelled text, pair of texts, or tagged sentence per row."""

import dataclasses

import jax
import jax.numpy as jnp

from xlingjax.errors import UserError
from xlingjax.model.attention import AttentionSpec
from xlingjax.model.config import ModelConfig
from xlingjax.model.encoder import Encoder
from xlingjax.model.flops import decoder_flops_per_token
from xlingjax.model.layers import split_key
from xlingjax.model.masks import Mask, bidirectional, own_side, partner, same_side
from xlingjax.objectives.base import (
    INPUTS,
    Array,
    Batch,
    Loss,
    Objective,
    Params,
    Shapes,
    flops_of_labels,
    metrics_by_language,
)
from xlingjax.objectives.plugged import (
    first_columns,
    plugged_states,
    require_plugged_in,
    side_languages,
)
from xlingjax.objectives.translation import with_decoder


@dataclasses.dataclass(frozen=True)
class Classification(Objective):
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
    coefficients: dict[str, float] = dataclasses.field(
        default_factory=lambda: {"classification": 1.0}, hash=False
    )
    continues_encoder = False

    @classmethod
    def of_task(cls, task: str, num_labels: int, apart: bool = False) -> "Classification":
        """That of one of several tasks, which is called "classification_TASK"."""
        name = f"classification_{task}"
        return cls(num_labels, apart, task, name, coefficients={name: 1.0})

    def flops_per_token(self, config: ModelConfig, shapes: Shapes) -> float | None:
        if config.classifier == "decoder":
            # Each token is read twice, and no word is predicted.
            length = shapes["input_ids"][1]
            return 2 * decoder_flops_per_token(config, length, length, 0.0)
        return flops_of_labels(config, shapes)

    def attention(self) -> AttentionSpec:
        if self.apart:
            # No kernel is to take the row's length for the mask: the sides do not see each other.
            return AttentionSpec(bidirectional & same_side, packed=True)
        # One example to a row: a kernel may take its length for the mask.
        return AttentionSpec(bidirectional, packed=False)

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {self.name: batch["example_weights"].sum()}

    def loss(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int
    ) -> Loss:
        logits_BC = self.logits(model, params, batch, rng)
        # Not the chunked cross-entropy: a few classes fit into memory at once.
        log_p_BC = jax.nn.log_softmax(logits_BC)
        nll_B = -jnp.take_along_axis(log_p_BC, batch["labels"][:, None], axis=-1)[:, 0]
        right_B = logits_BC.argmax(-1) == batch["labels"]
        correct_B = right_B.astype(jnp.float32)
        weights_B = batch["example_weights"]
        metrics = metrics_by_language(
            self.name,
            {"loss": nll_B, "accuracy": correct_B},
            weights_B,
            batch["language_ids"][:, 0],
            languages,
        )
        return Loss(terms={self.name: (nll_B * weights_B).sum()}, metrics=metrics)

    def logits(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None = None
    ) -> Array:
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
            of_task = ""
            if self.task is not None:
                of_task = f" for {self.task!r}"
            raise UserError(
                f"model {config.name} has num_labels={num_labels}{of_task} and the task has "
                f"{self.num_labels} labels: set the model's num_labels to the task's"
            )
        if self.apart != (config.classifier == "difference"):
            raise UserError(
                f"model {config.name} has classifier={config.classifier!r} and the"
                f" objective apart={self.apart}: set CLASSIFIER, which sets both"
            )
        recipes = {
            "tagging": "runs/tagging.gin",
            "spans": "runs/span_qa.gin",
            "plug_in": "runs/plug_in.gin",
        }
        if config.plugged_in and config.classifier not in recipes:
            raise UserError(
                f"classifier={config.classifier!r} is of `xlingjax finetune --task` with"
                " --strategy plug_in; of a single labelled text or pair set CLASSIFIER to xlm, xlmr"
                " or difference"
            )
        if config.classifier in recipes:
            raise UserError(
                f"classifier={config.classifier!r} is not one of a single labelled text or"
                f" pair: add --gin_file gin/{recipes[config.classifier]}, or set CLASSIFIER to xlm,"
                " xlmr or difference"
            )


def decoder_state(
    model: Encoder, params: Params, batch: Batch, memory_BLD: Array, rng: Array | None = None
) -> Array:
    """[B, 1, D]: the decoder's state behind the last word of the row's one example, which it reads
    as it read its targets in pretraining: what it begins with, then the words.

    memory_BLD: the encoder's states of the rows."""
    c = model.config
    used_BL = batch["pack_ids"] > 0
    # The token that ends the text is predicted and not read. Rows that only fill a batch have none.
    last_B = jnp.maximum(used_BL.sum(axis=1) - 1, 0)
    last_B1 = last_B[:, None]
    starts_B1 = jnp.take_along_axis(batch["input_ids"], last_B1, axis=1)
    if c.language_tokens:
        first = c.vocab_size - c.language_tokens
        starts_B1 = first + batch["language_ids"][:, :1]
    is_first_L = jnp.arange(used_BL.shape[1]) == 0
    reads_BL = used_BL & (jnp.arange(used_BL.shape[1]) < last_B1)
    fields = {
        **batch,
        "decoder_ids": jnp.where(is_first_L, starts_B1, batch["input_ids"]),
        "decoder_position_ids": batch["position_ids"],
        "decoder_language_ids": batch["language_ids"],
        "decoder_pack_ids": jnp.where(reads_BL, batch["pack_ids"], 0),
    }
    decode = with_decoder(model, "classification").decode
    h_BLD = decode(params, fields, memory_BLD, rng=rng)
    column_B11 = jnp.maximum(last_B - 1, 0)[:, None, None]
    return jnp.take_along_axis(h_BLD, column_B11, axis=1)


@dataclasses.dataclass(frozen=True)
class Tagging(Objective):
    """Mean cross-entropy per word of the model's tagger, read at the first piece of each word."""

    num_labels: int
    name: str = "tagging"
    reads: tuple[str, ...] = (*INPUTS, "tag_labels", "tag_weights")
    coefficients: dict[str, float] = dataclasses.field(
        default_factory=lambda: {"tagging": 1.0}, hash=False
    )
    continues_encoder = False

    def flops_per_token(self, config: ModelConfig, shapes: Shapes) -> float | None:
        return flops_of_labels(config, shapes)

    def attention(self) -> AttentionSpec:
        return AttentionSpec(bidirectional, packed=False)

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {self.name: batch["tag_weights"].sum()}

    def loss(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int
    ) -> Loss:
        # Every column gets logits; pieces but the first of a word have weight 0.
        log_p_BLC = jax.nn.log_softmax(self.logits(model, params, batch, rng))
        nll_BL = -jnp.take_along_axis(log_p_BLC, batch["tag_labels"][..., None], axis=-1)[..., 0]
        right_BL = log_p_BLC.argmax(-1) == batch["tag_labels"]
        correct_BL = right_BL.astype(jnp.float32)
        # Flat, as `metrics_by_language` reads words.
        weights_T = batch["tag_weights"].reshape(-1)
        values = {"loss": nll_BL.reshape(-1), "accuracy": correct_BL.reshape(-1)}
        metrics = metrics_by_language(
            self.name, values, weights_T, batch["language_ids"].reshape(-1), languages
        )
        return Loss(terms={self.name: (values["loss"] * weights_T).sum()}, metrics=metrics)

    def logits(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None = None
    ) -> Array:
        """float32 logits_BLC."""
        config = model.config
        if config.num_labels != self.num_labels or config.classifier != "tagging":
            raise UserError(
                f"model {config.name} has num_labels={config.num_labels},"
                f" classifier={config.classifier!r}; the task has {self.num_labels} tags and"
                ' needs classifier="tagging"'
            )
        encode_rng, head_rng = split_key(rng)
        h_BLD = model.encode(params, batch, self.attention(), rng=encode_rng)
        return model.classify(params, h_BLD, batch, rng=head_rng)


@dataclasses.dataclass(frozen=True)
class PlugIn(Objective):
    """Classification of an instance that is given in two languages, x and y, the sides of a row
    (VECO §3.1, plug-in fine-tuning): each side from [H; S] of its first state, mean cross-entropy
    over both.

    The other side's H is a constant, as in pretraining; stop_gradient False lets gradients through.
    """

    num_labels: int
    stop_gradient: bool = True
    name: str = "plug_in"
    reads: tuple[str, ...] = (*INPUTS, "sides", "labels", "example_weights")
    coefficients: dict[str, float] = dataclasses.field(
        default_factory=lambda: {"plug_in": 1.0}, hash=False
    )

    adds = ("cross_attention",)
    continues_encoder = False

    def attention(self) -> AttentionSpec:
        # Plugged in, a side knows of the other through the cross-attention alone.
        return AttentionSpec(own_side)

    def masks(self) -> dict[str, Mask]:
        return {"self-attention": own_side, "cross-attention": partner}

    def weights(self, batch: Batch) -> dict[str, Array]:
        # Both sides of a row are predictions.
        return {"plug_in": 2 * batch["example_weights"].sum()}

    def loss(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int
    ) -> Loss:
        logits_TC = jnp.concatenate(self.logits(model, params, batch, rng))
        # Both sides of a row are the same example.
        labels_T = jnp.tile(batch["labels"], 2)
        weights_T = jnp.tile(batch["example_weights"], 2)
        log_p_TC = jax.nn.log_softmax(logits_TC)
        nll_T = -jnp.take_along_axis(log_p_TC, labels_T[:, None], axis=-1)[:, 0]
        correct_T = (logits_TC.argmax(-1) == labels_T).astype(jnp.float32)
        values = {"loss": nll_T, "accuracy": correct_T}
        metrics = metrics_by_language(
            self.name,
            values,
            weights_T,
            # Each prediction counts for the language of its side.
            side_languages(batch),
            languages,
        )
        return Loss(terms={"plug_in": (nll_T * weights_T).sum()}, metrics=metrics)

    def logits(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None = None
    ) -> tuple[Array, Array]:
        """float32 logits_BC of x and of y."""
        require_plugged_in(model.config, "plug_in", self.num_labels, "labels")
        keys = split_key(rng, 4)
        both_BLE = plugged_states(model, params, batch, keys[0], keys[1], self.stop_gradient)
        logits = []
        for column_B1, key in zip(first_columns(batch), keys[2:], strict=True):
            first_B1E = jnp.take_along_axis(both_BLE, column_B1[..., None], axis=1)
            logits.append(model.classify(params, first_B1E, batch, rng=key))
        x_BC, y_BC = logits
        return x_BC, y_BC
