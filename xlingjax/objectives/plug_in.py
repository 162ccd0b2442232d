"""Plug-in fine-tuning of tags and of answers as spans: every token's [H; S] (VECO §3.1)."""

import dataclasses

import jax
import jax.numpy as jnp

from xlingjax.model.attention import AttentionSpec
from xlingjax.model.config import ModelConfig
from xlingjax.model.encoder import Encoder
from xlingjax.model.layers import split_key
from xlingjax.model.masks import Mask, own_side, partner
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
from xlingjax.objectives.finetuning import Tagging
from xlingjax.objectives.plugged import plugged_states, require_plugged_in, side_languages


@dataclasses.dataclass(frozen=True)
class PlugInTagging(Tagging):
    """Tagging of a sentence and of its translation, the sides of a row: each word from [H; S] of
    its first piece, mean cross-entropy per tagged word of both.

    A side without tags has weight 0: it is read by the other alone. The other side's H is a
    constant, as in pretraining; stop_gradient False lets gradients through.
    """

    stop_gradient: bool = True
    name: str = "plug_in_tagging"
    coefficients: dict[str, float] = dataclasses.field(
        default_factory=lambda: {"plug_in_tagging": 1.0}, hash=False
    )
    reads: tuple[str, ...] = (*INPUTS, "sides", "tag_labels", "tag_weights")
    adds = ("cross_attention",)

    def flops_per_token(self, config: ModelConfig, shapes: Shapes) -> float | None:
        # Of two passes, which the formula of one does not count.
        return None

    def attention(self) -> AttentionSpec:
        return AttentionSpec(own_side)

    def masks(self) -> dict[str, Mask]:
        return {"self-attention": own_side, "cross-attention": partner}

    def logits(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None = None
    ) -> Array:
        """float32 logits_BLC, of both sides."""
        require_plugged_in(model.config, "plug_in_tagging", self.num_labels, "tags")
        keys = split_key(rng, 3)
        both_BLE = plugged_states(model, params, batch, keys[0], keys[1], self.stop_gradient)
        return model.classify(params, both_BLE, batch, rng=keys[2])


@dataclasses.dataclass(frozen=True)
class PlugInSpans(Objective):
    """`SpanQA` of a question that is given in two languages, x and y, the sides of a row: where the
    answer begins and ends on each side, from [H; S] of its tokens. The mean over both sides, each
    with the loss that `SpanQA` has of it alone.

    Each side's distributions are over its own `answer_columns`. An answer that a side's window does
    not hold stands at the side's first token. The other side's H is a constant, as in pretraining;
    stop_gradient False lets gradients through.
    """

    stop_gradient: bool = True
    name: str = "plug_in_spans"
    reads: tuple[str, ...] = (
        *INPUTS,
        "sides",
        "answer_columns",
        "start_positions",
        "end_positions",
        "beside_start_positions",
        "beside_end_positions",
        "example_weights",
    )
    coefficients: dict[str, float] = dataclasses.field(
        default_factory=lambda: {"plug_in_spans": 1.0}, hash=False
    )
    adds = ("cross_attention",)
    continues_encoder = False

    def attention(self) -> AttentionSpec:
        return AttentionSpec(own_side)

    def masks(self) -> dict[str, Mask]:
        return {"self-attention": own_side, "cross-attention": partner}

    def weights(self, batch: Batch) -> dict[str, Array]:
        # Both sides of a row are predictions.
        return {self.name: 2 * batch["example_weights"].sum()}

    def loss(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int
    ) -> Loss:
        logits_BLC = self.logits(model, params, batch, rng)
        losses = []
        correct = []
        for side, prefix in ((0, ""), (1, "beside_")):
            # A distribution of each side's own: the other has an answer too.
            logits_of_side_BLC = _at_columns(logits_BLC, batch["sides"] == side)
            targets_BC = jnp.stack(
                [batch[f"{prefix}start_positions"], batch[f"{prefix}end_positions"]], axis=-1
            )
            log_p_BLC = jax.nn.log_softmax(logits_of_side_BLC, axis=1)
            nll_B1C = -jnp.take_along_axis(log_p_BLC, targets_BC[:, None], axis=1)
            # The mean of both, as BERT's run_squad.py has it.
            losses.append(nll_B1C[:, 0].mean(-1))
            found_BC = logits_of_side_BLC.argmax(1)
            correct.append((found_BC == targets_BC).all(-1))
        loss_T = jnp.concatenate(losses)
        correct_T = jnp.concatenate(correct).astype(jnp.float32)
        weights_T = jnp.tile(batch["example_weights"], 2)
        metrics = metrics_by_language(
            self.name,
            {"loss": loss_T, "accuracy": correct_T},
            weights_T,
            side_languages(batch),
            languages,
        )
        return Loss(terms={self.name: (loss_T * weights_T).sum()}, metrics=metrics)

    def logits(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None = None
    ) -> Array:
        """float32 logits_BLC, of first and last column on both sides; far below all others outside
        `answer_columns`."""
        require_plugged_in(model.config, "plug_in_spans", 2, "ends of a span")
        keys = split_key(rng, 3)
        both_BLE = plugged_states(model, params, batch, keys[0], keys[1], self.stop_gradient)
        logits_BLC = model.classify(params, both_BLE, batch, rng=keys[2])
        return _at_columns(logits_BLC, batch["answer_columns"] > 0)


def _at_columns(logits_BLC: Array, allowed_BL: Array) -> Array:
    # Not -inf: a row that only fills the batch has no column at all, and 0 times NaN is NaN.
    return jnp.where(allowed_BL[..., None], logits_BLC, jnp.finfo(jnp.float32).min)
