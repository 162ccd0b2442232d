"""The languages of an exported encoder-decoder: what it reads, and what its decoder begins with."""

import dataclasses
from collections.abc import Sequence

from xlingjax.convert.formats.generation_config import start_of
from xlingjax.convert.formats.language_tokens import names_of, require_free
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig


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
