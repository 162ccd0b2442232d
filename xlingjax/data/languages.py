"""Codes of languages as people write them: zh-TW and zh_TW, de, DE and deu, he and the retired iw
are one language each (BCP 47 and its table of aliases, by langcodes)."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable

import langcodes

from xlingjax.errors import UserError

_ALSO_PARTS = {"nb": "no"}
"""Part -> whole, of ISO 639-3, where langcodes keeps them apart."""

ENGLISH_NAMES = frozenset(
    re.findall(
        "[a-z]+",
        "afrikaans albanian amharic arabic armenian assamese azerbaijani basque belarusian "
        "bengali bosnian breton bulgarian burmese catalan cebuano chinese croatian czech danish "
        "dutch english esperanto estonian filipino finnish french galician georgian german "
        "greek gujarati hausa hebrew hindi hungarian icelandic igbo indonesian irish italian "
        "japanese javanese kannada kazakh khmer kinyarwanda korean kurdish kyrgyz lao latin "
        "latvian lingala lithuanian luxembourgish macedonian malagasy malay malayalam maltese "
        "mandarin maori marathi mongolian nepali norwegian occitan odia oriya oromo pashto "
        "persian polish portuguese punjabi quechua romanian russian sanskrit serbian sindhi "
        "sinhala slovak slovene slovenian somali spanish sundanese swahili swedish tagalog "
        "tajik tamil tatar telugu thai tibetan tigrinya turkish turkmen ukrainian urdu uyghur "
        "uzbek vietnamese welsh wolof xhosa yiddish yoruba zulu",
    )
)
"""What languages are called in English, in small letters, as headers of tables have it."""


@functools.cache
def standard_code(code: str, macro: bool = False) -> str:
    """The code that BCP 47 prefers: "zh-TW" of "zh_TW", "de" of "deu", "he" of "iw"; `code` itself
    where it is none. macro: of the language that it is part of ("no" of "nb", "zh" of "cmn")."""
    try:
        standard = langcodes.standardize_tag(code, macro=macro)
    except ValueError:
        return code
    if macro:
        return _ALSO_PARTS.get(standard, standard)
    return standard


def known_as(code: str, codes: Collection[str]) -> str | None:
    """The one of `codes` that means the same language: itself where it is there; None: none
    does."""
    if code in codes:
        return code
    wanted = standard_code(code)
    for known in codes:
        if standard_code(known) == wanted:
            return known
    return None


def spelled_twice(codes: Iterable[str], macro: bool = False) -> list[tuple[str, ...]]:
    """The codes that mean one language, sorted, for each language that has several."""
    spellings: dict[str, set[str]] = {}
    for code in codes:
        spellings.setdefault(standard_code(code, macro), set()).add(code)
    return [tuple(sorted(found)) for found in spellings.values() if len(found) > 1]


def twice(codes: Collection[str]) -> str:
    """What is said of a language with these codes."""
    return (
        f"{' and '.join(codes)} are one language, {standard_code(min(codes))}, and would be learnt"
        " as several: give all of its files the same code, by their names or, of text, before the"
        f" pattern, like {min(codes)}=path"
    )


def check_spellings(codes: Iterable[str]) -> None:
    """Raises UserError for a language that is spelled in two ways."""
    for found in spelled_twice(codes):
        raise UserError(twice(found))
