"""The languages of an exported encoder-decoder: their tokens, what its decoder begins with, and its
generation_config.json.

Language tokens are added tokens behind the vocabulary, in the order of a run's languages, named as
M2M100's are (`__de__`), or as mBART's where they are those. `model.generate` of transformers then
searches as `xlingjax translate` does by default.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from xlingjax.convert.formats.bart import CODES, NLLB
from xlingjax.data.vocabulary.sentencepiece import Vocabulary, start_id
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig
from xlingjax.model.decoding import Decoding


def names_of(languages: Sequence[str]) -> tuple[str, ...]:
    """Of the tokens, index = language id."""
    names = tuple(code if NLLB.fullmatch(code) else f"__{code}__" for code in languages)
    for codes in CODES.values():
        # Without the region: runs name languages by the code alone.
        if [*languages] == [name.partition("_")[0] for name in sorted(codes)]:
            names = tuple(sorted(codes))
    return names


@dataclasses.dataclass(frozen=True)
class Writing:
    """How an exported encoder-decoder writes."""

    start: int | None  # what its decoder begins with; None: the language's token, given with calls
    tokens: tuple[str, ...]  # of its languages, in the order of their ids
    first: int  # the id of the first of them
    source: str = ""  # what sources begin with, if not bos
    forced: int | None = None  # what a text begins with behind `start`

    def notes(self) -> list[str]:
        if not self.tokens:
            return []
        named = f"language tokens {', '.join(self.tokens)}"
        if len(self.tokens) > 60:
            named = f"{len(self.tokens)} language tokens, {self.tokens[0]} to {self.tokens[-1]}"
        begun = self.start if self.forced is None else self.forced
        if begun is not None and begun >= self.first:
            return [f"{named}; `generate` begins with {self.tokens[begun - self.first]}"]
        given = "decoder_start_token_id"
        if self.start is not None:
            given = "forced_bos_token_id, and another for <s> before sources"
        return [
            f"{named}; `generate` wants one of them as {given}, or export it for a language:"
            " --language CODE"
        ]


def writing_of(
    config: ModelConfig, vocabulary: Vocabulary, languages: Sequence[str], language: str, run: str
) -> Writing:
    """languages: of the run, index = id; language: that it is exported for, or a direction. Raises
    UserError for a language that is not the run's."""
    if not config.language_tokens:
        return Writing(start_id(vocabulary), (), vocabulary.size)
    names = names_of(languages)
    start, source = None, ""
    if language or config.language_tokens == 1:
        read, written = direction_of(language, languages, run) if language else (0, 0)
        start, source = vocabulary.size + written, names[read]
    if config.source_tokens:
        return Writing(vocabulary.eos_id, names, vocabulary.size, source, start)
    return Writing(start, names, vocabulary.size)


def direction_of(language: str, languages: Sequence[str], run: str) -> tuple[int, int]:
    """The numbers of the language that is read and of the one that is written. Raises UserError."""
    codes = list(languages)
    if language in codes:
        return codes.index(language), codes.index(language)
    for source in codes:
        target = language.removeprefix(f"{source}-")
        if target != language and target in codes:
            return codes.index(source), codes.index(target)
    raise UserError(
        f"--language {language}: {run} has the languages {', '.join(codes)}; give one of them, or"
        " two as en-de, read and written"
    )


def generation_config(
    config: ModelConfig, vocabulary: Vocabulary, writing: Writing, never: Sequence[int]
) -> dict[str, Any]:
    """never: ids that no text has."""
    longest = config.max_positions - config.position_offset
    fields = {
        # An n-stream decoder reads a position ahead.
        "max_new_tokens": longest - bool(config.streams),
        # As `xlingjax translate` has it by default.
        "num_beams": 5,
        "early_stopping": False,
        "length_penalty": Decoding().length_penalty,
        "pad_token_id": vocabulary.pad_id,
        "eos_token_id": vocabulary.eos_id,
        "suppress_tokens": [one for one in never if one != writing.forced],
    }
    if writing.forced is not None:
        fields["forced_bos_token_id"] = writing.forced
    # Without one and without a bos_token_id, `generate` refuses to write in whatever language.
    if writing.start is not None:
        fields["decoder_start_token_id"] = writing.start
    return fields
