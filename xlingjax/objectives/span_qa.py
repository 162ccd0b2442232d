"""Extractive question answering: where in a row's context the answer begins and where it ends."""

import dataclasses

import jax
import jax.numpy as jnp

from xlingjax.errors import UserError
from xlingjax.model.attention import AttentionSpec
from xlingjax.model.config import ModelConfig
from xlingjax.model.encoder import Encoder
from xlingjax.model.layers import split_key
from xlingjax.model.masks import bidirectional
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


@dataclasses.dataclass(frozen=True)
class SpanQA(Objective):
    """Mean per row of (cross-entropy of the answer's first column + that of its last) / 2, of a
    linear layer on every state (BERT §4.2; XTREME, XGLUE, ERNIE-M).

    Both distributions are over the row's `answer_columns`: the context's pieces, and the first
    token, at which an answer stands that the window does not hold. "accuracy": share of rows with
    both columns right. Rows of `example_weights` 0 count for nothing. A row's language is that of
    its first token. Raises UserError unless the model has classifier "spans" and num_labels 2.
    """

    name: str = "span_qa"
    reads: tuple[str, ...] = (
        *INPUTS,
        "sides",
        "answer_columns",
        "start_positions",
        "end_positions",
        "example_weights",
    )
    coefficients: dict[str, float] = dataclasses.field(
        default_factory=lambda: {"span_qa": 1.0}, hash=False
    )
    continues_encoder = False

    def flops_per_token(self, config: ModelConfig, shapes: Shapes) -> float | None:
        return flops_of_labels(config, shapes)

    def attention(self) -> AttentionSpec:
        return AttentionSpec(bidirectional, packed=False)

    def weights(self, batch: Batch) -> dict[str, Array]:
        return {"span_qa": batch["example_weights"].sum()}

    def loss(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None, languages: int
    ) -> Loss:
        logits_BLC = self.logits(model, params, batch, rng)
        targets_BC = jnp.stack([batch["start_positions"], batch["end_positions"]], axis=-1)
        # Over the columns of a row: where, not which class.
        log_p_BLC = jax.nn.log_softmax(logits_BLC, axis=1)
        nll_BC = -jnp.take_along_axis(log_p_BLC, targets_BC[:, None], axis=1)[:, 0]
        weights_B = batch["example_weights"]
        # The mean of both, as BERT's run_squad.py has it.
        loss_B = nll_BC.mean(-1)
        correct_B = (logits_BLC.argmax(1) == targets_BC).all(-1).astype(jnp.float32)
        values = {"loss": loss_B, "accuracy": correct_B}
        metrics = metrics_by_language(
            self.name, values, weights_B, batch["language_ids"][:, 0], languages
        )
        return Loss(terms={"span_qa": (loss_B * weights_B).sum()}, metrics=metrics)

    def logits(
        self, model: Encoder, params: Params, batch: Batch, rng: Array | None = None
    ) -> Array:
        """float32 logits_BLC, of first and last column; far below all others outside
        `answer_columns`."""
        config = model.config
        if config.num_labels != 2 or config.classifier != "spans":
            raise UserError(
                f"model {config.name} has num_labels={config.num_labels}, "
                f"classifier={config.classifier!r}; answers as spans need num_labels=2 and"
                ' classifier="spans": '
                "add --gin_file gin/runs/span_qa.gin"
            )
        encode_rng, head_rng = split_key(rng)
        h_BLD = model.encode(params, batch, self.attention(), rng=encode_rng)
        logits_BLC = model.classify(params, h_BLD, batch, rng=head_rng)
        allowed_BL1 = batch["answer_columns"][..., None] > 0
        # Not -inf: a row that only fills the batch has no column at all, and 0 times NaN is NaN.
        return jnp.where(allowed_BL1, logits_BLC, jnp.finfo(jnp.float32).min)
