"""generation_config.json of an exported encoder-decoder: `model.generate` of transformers searches
as `xlingjax translate` does by default."""

from collections.abc import Sequence
from typing import Any

from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.model.config import ModelConfig
from xlingjax.model.decoding import Decoding

BEAMS = 5
"""As `xlingjax translate` has it by default."""


def start_of(
    config: ModelConfig, vocabulary: Vocabulary, language: int | None = None
) -> int | None:
    """What a decoder begins with, written in `language`; None: that depends on the language, and
    none is given."""
    if not config.language_tokens:
        return vocabulary.eos_id
    if config.language_tokens == 1:
        language = 0
    if language is None:
        return None
    return vocabulary.size + language


def generation_config(
    config: ModelConfig, vocabulary: Vocabulary, start: int | None, never: Sequence[int]
) -> dict[str, Any]:
    """start: see `start_of`; never: ids that no text has."""
    decoding = Decoding()
    longest = config.max_positions - config.position_offset
    fields = {
        # An n-stream decoder reads a position ahead.
        "max_new_tokens": longest - bool(config.streams),
        "num_beams": BEAMS,
        "early_stopping": False,
        "length_penalty": decoding.length_penalty,
        "pad_token_id": vocabulary.pad_id,
        "eos_token_id": vocabulary.eos_id,
        "suppress_tokens": [*never],
    }
    # Without one, and without a bos_token_id that would be taken for it, `generate` refuses, where
    # it would else write in whatever language.
    if start is not None:
        fields["decoder_start_token_id"] = start
    return fields
