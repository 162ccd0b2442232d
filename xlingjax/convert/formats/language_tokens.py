"""Language tokens in the tokenizer of an exported folder: added tokens behind the vocabulary, in
the order of a run's languages, named as M2M100's are (`__de__`), or as mBART's where they are
those."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.convert.formats.mbart import CODES
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.tokenizer_files import read_object
from xlingjax.errors import UserError

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
    names = []
    for number, name in sorted(_added(folder).items()):
        if number >= vocabulary.size:
            names.append(name)
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
