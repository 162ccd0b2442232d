"""The languages of an exported encoder-decoder: their tokens, what its decoder begins with, and its
generation_config.json.

Language tokens are added tokens behind the vocabulary, in the order of a run's languages, named as
M2M100's are (`__de__`), or as mBART's where they are those. `model.generate` of transformers then
searches as `xlingjax translate` does by default.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.convert.formats.bart import CODES
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.tokenizer_files import read_object
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig
from xlingjax.model.decoding import Decoding

_OF_MBART = frozenset(code for codes in CODES.values() for code in codes)


def names_of(languages: Sequence[str], count: int) -> tuple[str, ...]:
    """Of so many tokens, index = language id."""
    for codes in CODES.values():
        ordered = sorted(codes)
        if [*languages] == [_code(name) for name in ordered]:
            return tuple(ordered)
    codes = [*languages]
    if len(codes) != count:
        # An import may have tokens whose languages it does not name.
        codes = [str(number) for number in range(count)]
    return tuple(f"__{code}__" for code in codes)


def require_free(names: Sequence[str], vocabulary: Vocabulary) -> None:
    """Raises UserError where a piece has the name of a language token."""
    pieces = {*vocabulary.pieces(range(vocabulary.size))}
    for name in names:
        if name in pieces:
            raise UserError(
                f"the vocabulary has a piece {name!r}, which would be the name of a language's"
                " token: train a vocabulary without it"
            )


def written(folder: Path, vocabulary: Vocabulary) -> tuple[str, ...]:
    """The languages, index = id, whose tokens an export of ours wrote behind the vocabulary; none
    where it is another folder."""
    names = [name for number, name in sorted(_added(folder).items()) if number >= vocabulary.size]
    codes = []
    for name in names:
        of_ours = name.startswith("__") and name.endswith("__")
        if not of_ours and name not in _OF_MBART:
            return ()
        codes.append(_code(name))
    return tuple(codes)


def _code(name: str) -> str:
    if name in _OF_MBART:
        # Without the region: runs name languages by the code alone.
        return name.partition("_")[0]
    return name.removeprefix("__").removesuffix("__")


def _added(folder: Path) -> dict[int, str]:
    """{id: added token}."""
    try:
        found = _tokens(folder)
        return {int(number): str(name) for number, name in found}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            f"{folder}: tokenizer.json or tokenizer_config.json is not whole; fetch it again"
        ) from None


def _tokens(folder: Path) -> list[tuple[Any, Any]]:
    tokens = read_object(folder / "tokenizer.json").get("added_tokens") or ()
    found = [(token["id"], token["content"]) for token in tokens]
    if found:
        return found
    # Tokenizers without a tokenizer.json name them in their configuration.
    config = read_object(folder / "tokenizer_config.json")
    table = config.get("added_tokens_decoder") or {}
    return [(number, token["content"]) for number, token in table.items()]


# ---- what is written ----


@dataclasses.dataclass(frozen=True)
class Writing:
    """How an exported encoder-decoder writes."""

    start: int | None
    """What its decoder begins with; None: the token of the language, given with every call."""
    tokens: tuple[str, ...]
    """Of its languages, in the order of their ids."""
    first: int
    """The id of the first of them."""

    @property
    def starts(self) -> tuple[int, ...]:
        if self.start is not None:
            return (self.start,)
        return tuple(range(self.first, self.first + len(self.tokens)))

    def notes(self) -> list[str]:
        if not self.tokens:
            return []
        named = f"language tokens {', '.join(self.tokens)}"
        if self.start is not None:
            begun = self.tokens[self.start - self.first]
            return [f"{named}; `generate` begins with {begun}"]
        return [
            f"{named}; `generate` wants one of them as decoder_start_token_id, or export it for a"
            " language: --language CODE"
        ]


def writing_of(
    config: ModelConfig, vocabulary: Vocabulary, languages: Sequence[str], language: str, run: str
) -> Writing:
    """languages: of the run, index = id; language: that it is exported for, or a direction. Raises
    UserError for a language that is not the run's, and for a piece with the name of a language
    token."""
    tokens = ()
    if config.language_tokens:
        tokens = names_of(languages, config.language_tokens)
        require_free(tokens, vocabulary)
    written = None
    if language:
        _, written = direction_of(language, languages, run)
    start = start_of(config, vocabulary, written)
    return Writing(start, tokens, vocabulary.size)


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
    return None if language is None else vocabulary.size + language


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
