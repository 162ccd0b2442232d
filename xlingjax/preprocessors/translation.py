"""Features of encoder-decoders: pairs to translate (XLM §4.3), texts to restore from noise (XLM §4.2, XGLUE §4.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xlingjax.data.converters import Rows
from xlingjax.data.corpus import Records
from xlingjax.data.features import DECODER_FIELDS, TOKEN_FIELDS
from xlingjax.data.targets import block_rows, decoder_fields, sentence_rows, side, translation_rows
from xlingjax.data.vocabulary import Vocabulary
from xlingjax.errors import UserError
from xlingjax.preprocessors.noise import Examples, Noise, Noiser, Text

Batch = dict[str, Any]


def start_ids(language_ids: Any, vocabulary: Vocabulary, language_tokens: bool) -> Any:
    """What the decoder begins with: `</s>`, which leaves the language to its embedding (XLM), or the token of the
    target's language, a row behind the vocabulary's (XGLUE §4.1)."""
    import tensorflow as tf

    return vocabulary.size + language_ids if language_tokens else tf.fill(language_ids.shape, vocabulary.eos_id)


@dataclass(frozen=True)
class TranslationFeatures:
    """Pairs, source and target; the switches are those of `targets.translation_rows` and `start_ids`."""

    directions: tuple[str, ...] = ()
    max_pieces: int = 100
    packing: bool = True
    language_tokens: bool = False
    name = "translation"
    sides = 2
    fields = TOKEN_FIELDS[:4] + DECODER_FIELDS

    def slots(self, length: int) -> int:
        return 0

    def columns(self, length: int) -> int:
        return 2 * length

    def rows(self, records: Records, bases: Sequence[int], length: int, vocabulary: Vocabulary) -> Rows:
        return translation_rows(
            records,
            bases,
            length,
            directions=self.directions,
            max_pieces=self.max_pieces,
            packing=self.packing,
        )

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> Callable[[Batch, Any], Batch]:
        def divided(batch: Batch, draws: Any) -> Batch:
            source, target = (side(batch, number, length, vocabulary.pad_id) for number in (0, 1))
            starts = start_ids(target["language_ids"], vocabulary, self.language_tokens)
            return {**source, **decoder_fields(target, starts, vocabulary.pad_id)}

        return divided


@dataclass(frozen=True)
class DenoisingFeatures:
    """Text and, as its source, what `noise` makes of it. unit: "sentences", or "blocks" of as many consecutive ones as
    fit in a row. languages: of the run, sorted (it tells how their words are written)."""

    noise: Noise = field(default_factory=Noise)
    unit: str = "blocks"
    max_pieces: int = 100
    packing: bool = True
    language_tokens: bool = False
    languages: tuple[str, ...] | None = None
    name: str = "xdae"
    sides = 1
    fields = TOKEN_FIELDS[:4] + DECODER_FIELDS

    def __post_init__(self):
        if self.unit not in ("sentences", "blocks"):
            raise UserError(f"{self.name}: unit {self.unit!r} is neither sentences nor blocks")

    def slots(self, length: int) -> int:
        return 0

    def rows(self, records: Records, bases: Sequence[int], length: int, vocabulary: Vocabulary) -> Rows:
        if self.unit == "blocks":
            return block_rows(records, bases[0], length)
        return sentence_rows(records, bases[0], length, max_pieces=self.max_pieces, packing=self.packing)

    def map(self, vocabulary: Vocabulary, counts: np.ndarray, length: int) -> Callable[[Batch, Any], Batch]:
        import tensorflow as tf

        noiser = Noiser(self.noise, vocabulary, self.languages or ())
        special_V = tf.constant(np.isin(np.arange(vocabulary.size), sorted(vocabulary.special_ids)))

        def noised(batch: Batch, draws: Any) -> Batch:
            real = batch["pack_ids"] > 0
            content = real & ~tf.gather(special_V, batch["input_ids"])
            text = Text(batch["input_ids"], batch["pack_ids"], batch["language_ids"], content)
            source = noiser(text, draws)
            position = Examples(source.pack).before(tf.ones_like(source.pack))
            starts = start_ids(batch["language_ids"], vocabulary, self.language_tokens)
            return {
                "input_ids": source.ids,
                "position_ids": tf.where(source.pack > 0, position, 0),
                "language_ids": source.language,
                "pack_ids": source.pack,
                **decoder_fields(batch, starts, vocabulary.pad_id),
            }

        return noised
