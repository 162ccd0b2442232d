"""Encoder-decoders: a target from its source, by teacher forcing (XLM §4.2-4.3, XGLUE §4.1)."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from xlingjax.data.features import DECODER_FIELDS
from xlingjax.errors import UserError, require_numbers, require_whole
from xlingjax.model.encoder import Encoder
from xlingjax.model.layers import split_key
from xlingjax.model.masks import Mask, prefix
from xlingjax.model.seq2seq import Seq2Seq, decoder_side
from xlingjax.objectives.base import (
    CHUNK,
    INPUTS,
    Array,
    Batch,
    Head,
    Key,
    Params,
    Predictions,
    TokenObjective,
    at_all,
)
from xlingjax.objectives.ramp import Ramp


@dataclasses.dataclass(frozen=True)
class Translation(TokenObjective):
    """Mean cross-entropy of every word of the target, its end included, from the words before it
    and the source.

    The source may be a text in another language (translation), with noise (denoising: XLM §4.2,
    xDAE), or longer (a title, a question). smoothing: of the labels. factor: of the loss, a ramp by
    the step of the run (XLM's lambda).
    """

    name: str = "translation"
    smoothing: float = 0.0
    factor: str | float = 1.0
    chunk: int = CHUNK
    reads = INPUTS + DECODER_FIELDS
    weighed_by = "decoder_weights"
    continues_encoder = False

    def __post_init__(self):
        # What is wrong with it is said now, not at the first step.
        factor = {"factor": Ramp.parse(self.factor).values}
        require_numbers(factor, "[0, inf)", "factor", f"{self.name}: ")
        require_numbers(self, "[0, 1)", "smoothing", f"{self.name}: ")
        require_whole(self, "[0, inf)", "chunk", f"{self.name}: ")

    @property
    def coefficients(self) -> dict[str, float | Ramp]:
        return {self.name: Ramp.coefficient(self.factor)}

    def masks(self) -> dict[str, Mask]:
        """Over the columns of `words`: the encoder's, the decoder's, and the decoder's of the
        encoder. The decoder's masks are the model's own (`seq2seq.SELF`, `CROSS`)."""
        return {"attention": prefix}

    def evidence(self) -> dict[str, Mask]:
        """Over the columns of `words`."""
        return {self.name: prefix}

    def words(self, batch: Batch) -> dict[str, Any]:
        """The token fields of the source's columns, then of the decoder's."""
        target = decoder_side(batch)
        both = {name: jnp.concatenate([batch[name], target[name]], axis=1) for name in INPUTS}
        shape = both["input_ids"].shape
        is_target = jnp.arange(shape[1]) >= batch["input_ids"].shape[1]
        return {
            **both,
            # `prefix` tells source from target by the side.
            "sides": jnp.broadcast_to(is_target, shape).astype(jnp.int32),
        }

    def head(self, model: Encoder) -> Head:
        return with_decoder(model, self.name).decoder_head

    def predictions(
        self,
        model: Encoder,
        params: Params,
        batch: Batch,
        rng: Key = None,
        shift_BLD: Array | None = None,
    ) -> dict[str, Predictions]:
        """shift_BLD: of the columns of `words`."""
        decode = with_decoder(model, self.name).decode
        h_BTD = self.decoded(decode, model, params, batch, rng, shift_BLD)
        return {self.name: at_target(h_BTD, batch, batch["decoder_weights"])}

    def decoded(
        self,
        decode: Callable[..., Array],
        model: Encoder,
        params: Params,
        batch: Batch,
        rng: Key,
        shift_BLD,
    ) -> Array:
        """The states that `decode`, a method of the model, makes of the source's."""
        keys = split_key(rng)
        # A shift is of all words that are read, the source's columns first (`words`).
        shifts = (None, None)
        if shift_BLD is not None:
            shifts = jnp.split(shift_BLD, [batch["input_ids"].shape[1]], axis=1)
        memory_BSD = model.encode(params, batch, self.attention(), rng=keys[0], shift_BLD=shifts[0])
        return decode(params, batch, memory_BSD, rng=keys[1], shift_BTD=shifts[1])


def at_target(h_BTD: Array, batch: Batch, weights_BT: Array) -> Predictions:
    """A prediction at every column of the decoder; these are counted behind the source's."""
    found = at_all(h_BTD, batch["decoder_targets"], weights_BT, batch["decoder_language_ids"])
    return dataclasses.replace(found, columns=found.columns + batch["input_ids"].shape[1])


def with_decoder(model: Encoder, name: str) -> Seq2Seq:
    """The model. Raises UserError for one without a decoder."""
    if not isinstance(model, Seq2Seq):
        raise UserError(
            f"objective {name} needs a decoder and model {model.config.name} has none: set"
            " DECODER_LAYERS, or give an encoder-decoder"
        )
    return model
