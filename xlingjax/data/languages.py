"""Codes of languages as people write them: zh-TW and zh_TW, de, DE and deu, he and the retired iw
are one language each (BCP 47 and its table of aliases, by langcodes)."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable

import langcodes

from xlingjax.errors import UserError


@functools.cache
def standard_code(code: str) -> str:
    """The code that BCP 47 prefers: "zh-TW" of "zh_TW", "de" of "deu", "he" of "iw"; or `code`."""
    try:
        return langcodes.standardize_tag(code)
    except ValueError:
        return code


@functools.cache
def language_of(code: str) -> langcodes.Language:
    """What a code means; one that is none is a language that nothing is known of."""
    try:
        return langcodes.get(code)
    except ValueError:
        return langcodes.get("und")


def base_language(code: str) -> str:
    """A language's shortest code, without script and region: "zh" of "zho_Hans" and "cmn"."""
    found = language_of(code).prefer_macrolanguage().language
    return code if found in (None, "und") else found


def known_as(code: str, codes: Collection[str]) -> str | None:
    """The one of `codes` that means the same language, itself if it is there; None: none does."""
    if code in codes:
        return code
    wanted = standard_code(code)
    for known in codes:
        if standard_code(known) == wanted:
            return known
    return None


def spelled_twice(codes: Iterable[str]) -> list[tuple[str, ...]]:
    """The codes that mean one language, sorted, for each language that has several."""
    spellings: dict[str, set[str]] = {}
    for code in codes:
        spellings.setdefault(standard_code(code), set()).add(code)
    return [tuple(sorted(found)) for found in spellings.values() if len(found) > 1]


def twice(codes: Collection[str]) -> str:
    """What is said of a language with these codes."""
    return (
        f"{' and '.join(codes)} are one language, {standard_code(min(codes))}: give all of its"
        f" files the same code, by their names or before the pattern, like {min(codes)}=path"
    )


def check_spellings(codes: Iterable[str]) -> None:
    """Raises UserError for a language that is spelled in two ways."""
    for found in spelled_twice(codes):
        raise UserError(twice(found))
