"""Plug-in fine-tuning (VECO §3.1): an instance in two languages, x and y, the sides of a row, each
predicted from [H; S] of its own tokens."""

import dataclasses
from typing import Any

import jax.numpy as jnp

from xlingjax.errors import UserError
from xlingjax.model.encoder import Encoder
from xlingjax.model.layers import split_key
from xlingjax.model.masks import Mask, own_side, partner
from xlingjax.objectives.base import (
    INPUTS,
    Array,
    Batch,
    Judged,
    Key,
    LabelObjective,
    Params,
)
from xlingjax.objectives.finetuning import (
    SpanQA,
    Tagging,
    at_columns,
    of_classes,
    of_spans,
    require_classifier,
)
from xlingjax.objectives.veco import VECO


class _Plugged(LabelObjective):
    """What plug-in fine-tuning has in common, whatever it predicts.

    The other side's H is a constant, as in pretraining; stop_gradient False lets gradients through.
    """

    stop_gradient: bool
    num_labels: int
    adds = ("cross_attention",)

    def attention(self) -> Mask:
        # Plugged in, a side knows of the other through the cross-attention alone.
        return own_side

    def masks(self) -> dict[str, Mask]:
        return {"self-attention": own_side, "cross-attention": partner}

    def states(self, model: Encoder, params: Params, batch: Batch, keys) -> Array:
        """[H; S]_BLE of both sides, of twice the model's width. Raises UserError unless the model
        has the objective's classifier and a cross-attention."""
        config = model.config
        require_classifier(config, self.name, self.num_labels)
        if not config.cross_attention:
            raise UserError(
                f"model {config.name} has no cross-attention, which plug-in fine-tuning goes"
                " through: let INIT_FROM be a VECO run, or what `xlingjax plug in RUN --source"
                " VECO_RUN` writes"
            )
        veco = VECO(stop_gradient=self.stop_gradient, query=config.cross_attention_query)
        # A side has half of the columns, and may fill the model's positions.
        h_BLD, s_BLD = veco.states(model, params, batch, keys[0], keys[1], texts=2)
        return jnp.concatenate([h_BLD, s_BLD], axis=-1)

    def logits(self, model: Encoder, params: Params, batch: Batch, rng: Key = None) -> Any:
        """float32 logits_BLC, of both sides."""
        keys = split_key(rng, 3)
        both_BLE = self.states(model, params, batch, keys)
        return model.classify(params, both_BLE, batch, rng=keys[2])


def first_columns(batch: Batch) -> tuple[Array, Array]:
    """([B, 1], [B, 1]): the first column of each side."""
    # `argmax` gives the first of equal values.
    second_B1 = batch["sides"].argmax(axis=1)[:, None]
    return jnp.zeros_like(second_B1), second_B1


def both_sides(x: tuple[Array, Array], y: tuple[Array, Array], batch: Batch) -> Judged:
    """What is paid for the predictions of both sides, each for the language of its first token."""
    languages = [
        jnp.take_along_axis(batch["language_ids"], column_B1, axis=1)[:, 0]
        for column_B1 in first_columns(batch)
    ]
    loss_T, correct_T = (jnp.concatenate(values) for values in zip(x, y, strict=True))
    weights_T = jnp.tile(batch["example_weights"], 2)
    return Judged(loss_T, correct_T, weights_T, jnp.concatenate(languages))


@dataclasses.dataclass(frozen=True)
class PlugIn(_Plugged):
    """Classification: each side from [H; S] of its first state, mean cross-entropy over both."""

    num_labels: int
    stop_gradient: bool = True
    name = "plug_in"
    reads = (*INPUTS, "sides", "labels", "example_weights")

    def weights(self, batch: Batch) -> dict[str, Array]:
        # Both sides of a row are predictions.
        return {self.name: 2 * batch["example_weights"].sum()}

    def judged(self, model: Encoder, params: Params, batch: Batch, rng: Key) -> Judged:
        x_BC, y_BC = self.logits(model, params, batch, rng)
        # Both sides of a row are the same example.
        labels_B = batch["labels"]
        return both_sides(of_classes(x_BC, labels_B), of_classes(y_BC, labels_B), batch)

    def logits(
        self, model: Encoder, params: Params, batch: Batch, rng: Key = None
    ) -> tuple[Array, Array]:
        """float32 logits_BC of x and of y."""
        keys = split_key(rng, 4)
        both_BLE = self.states(model, params, batch, keys)
        logits = []
        for column_B1, key in zip(first_columns(batch), keys[2:], strict=True):
            first_B1E = jnp.take_along_axis(both_BLE, column_B1[..., None], axis=1)
            logits.append(model.classify(params, first_B1E, batch, rng=key))
        x_BC, y_BC = logits
        return x_BC, y_BC


@dataclasses.dataclass(frozen=True)
class PlugInTagging(_Plugged, Tagging):
    """Tagging of a sentence and of its translation: each word from [H; S] of its first piece, mean
    cross-entropy per tagged word of both.

    A side without tags has weight 0: it is read by the other alone.
    """

    stop_gradient: bool = True
    name = "plug_in_tagging"
    reads = (*INPUTS, "sides", "tag_labels", "tag_weights")


@dataclasses.dataclass(frozen=True)
class PlugInSpans(_Plugged):
    """`SpanQA` of a question in two languages: where the answer begins and ends on each side, from
    [H; S] of its tokens. The mean over both sides, each with the loss that `SpanQA` has of it
    alone.

    Each side's distributions are over its own `answer_columns`. An answer that a side's window does
    not hold stands at the side's first token.
    """

    stop_gradient: bool = True
    name = "plug_in_spans"
    num_labels = 2
    reads = (*SpanQA.reads, "beside_start_positions", "beside_end_positions")
    weights = PlugIn.weights

    def judged(self, model: Encoder, params: Params, batch: Batch, rng: Key) -> Judged:
        logits_BLC = self.logits(model, params, batch, rng)
        sides = []
        for side, prefix in ((0, ""), (1, "beside_")):
            # A distribution of each side's own: the other has an answer too.
            of_side_BLC = at_columns(logits_BLC, batch["sides"] == side)
            ends = batch[f"{prefix}start_positions"], batch[f"{prefix}end_positions"]
            sides.append(of_spans(of_side_BLC, *ends))
        return both_sides(*sides, batch)

    def logits(self, model: Encoder, params: Params, batch: Batch, rng: Key = None) -> Array:
        """float32 logits_BLC, of first and last column on both sides; far below all others outside
        `answer_columns`."""
        logits_BLC = super().logits(model, params, batch, rng)
        return at_columns(logits_BLC, batch["answer_columns"] > 0)
