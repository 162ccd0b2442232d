"""Online back-translation: a text from the model's own translation of it (XLM §4.2)."""

import dataclasses
from typing import Any

import jax.numpy as jnp

from xlingjax.data.features import DECODER_FIELDS
from xlingjax.model.decoding import Decoding, Ids
from xlingjax.model.encoder import Encoder
from xlingjax.model.generation import generate
from xlingjax.objectives.base import INPUTS, Array, Batch, Key, Params, Predictions
from xlingjax.objectives.translation import Translation, with_decoder


@dataclasses.dataclass(frozen=True)
class BackTranslation(Translation):
    """`Translation` of the target from a source that the model of this very step has written: the
    target's translation into the row's pivot language, without dropout and without gradient.

    It has at most 1.3 * (tokens of the text) + 5 tokens, the likeliest ones. The rows hold one text
    each.
    """

    name: str = "back_translation"
    reads = (*INPUTS, *DECODER_FIELDS, "special_ids", "edge_ids", "pivot_languages")

    def predictions(
        self,
        model: Encoder,
        params: Params,
        batch: Batch,
        rng: Key = None,
        shift_BLD: Array | None = None,
    ) -> dict[str, Predictions]:
        _, translated = self.as_read(model, params, batch, rng)
        return super().predictions(model, params, translated, rng, shift_BLD)

    def as_read(
        self, model: Encoder, params: Params, batch: Batch, rng: Key = None
    ) -> tuple[Translation, dict[str, Any]]:
        """(the objective of the second pass, the batch that it reads: its source written by the
        model)."""
        # From here on an ordinary translation; the text that was written is a constant to it.
        second = Translation(self.name, self.smoothing, self.factor, self.chunk)
        return second, {**batch, **self.translated(model, params, batch)}

    def translated(self, model: Encoder, params: Params, batch: Batch) -> dict[str, Array]:
        """The source's fields [B, L] for the second pass."""
        model = with_decoder(model, self.name)
        rows, length = batch["input_ids"].shape
        # A vocabulary's special ids are fields of the batch: an objective knows no vocabulary.
        first, end, pad = (batch["edge_ids"][0, column] for column in range(3))
        # All rows carry the same ids: a field of a batch has an axis of rows.
        special_Z = batch["special_ids"][0]
        # Without `</s>` no text would end.
        banned_Z = jnp.where(special_Z == end, pad, special_Z)
        pivot_B = batch["pivot_languages"]
        language_tokens = model.config.language_tokens
        if language_tokens:
            # Tokens of languages are the last rows of the vocabulary.
            start_B = pivot_B + model.config.vocab_size - language_tokens
        else:
            start_B = jnp.broadcast_to(end if model.config.unseen is None else pad, rows)
        # One column less than a row has: its source opens with a token of its own.
        texts = generate(
            model,
            params,
            batch,
            start_B,
            pivot_B,
            Ids(end, pad, banned_Z),
            Decoding(max_length=(1.3, 5)),
            length - 1,
        )
        # The best of the beam; greedy decoding has one.
        ids_BT = texts.ids[:, 0]
        lengths_B = texts.lengths[:, 0]
        # A text that was cut at its longest ends in `</s>` too.
        last_BT = jnp.arange(length - 1) == lengths_B[:, None] - 1
        ids_BT = jnp.where(last_BT, end, ids_BT)
        # Not a row that only fills the batch.
        real_B = batch["pack_ids"][:, 0] > 0
        # "<=", since the token that opens the source is no part of the length.
        used_BL = (jnp.arange(length) <= lengths_B[:, None]) & real_B[:, None]
        ids_BL = jnp.concatenate([jnp.broadcast_to(first, (rows, 1)), ids_BT], axis=1)
        return {
            "input_ids": jnp.where(used_BL, ids_BL, pad).astype(jnp.int32),
            "position_ids": jnp.where(used_BL, jnp.arange(length), 0).astype(jnp.int32),
            "language_ids": jnp.where(used_BL, pivot_B[:, None], 0),
            "pack_ids": used_BL.astype(jnp.int32),
        }
