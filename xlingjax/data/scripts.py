"""Which script a language is written in, and which script a line is in."""

from __future__ import annotations

import re

# fmt: off
_RANGES = {
    "Latin": "A-Za-z\u00c0-\u024f\u1e00-\u1eff", "Cyrillic": "\u0400-\u052f", "Greek": "\u0370-\u03ff\u1f00-\u1fff",
    "Arabic": "\u0600-\u06ff\u0750-\u077f", "Hebrew": "\u0590-\u05ff", "Devanagari": "\u0900-\u097f",
    "Bengali": "\u0980-\u09ff", "Gurmukhi": "\u0a00-\u0a7f", "Gujarati": "\u0a80-\u0aff", "Tamil": "\u0b80-\u0bff",
    "Telugu": "\u0c00-\u0c7f", "Kannada": "\u0c80-\u0cff", "Malayalam": "\u0d00-\u0d7f", "Sinhala": "\u0d80-\u0dff",
    "Thai": "\u0e00-\u0e7f", "Lao": "\u0e80-\u0eff", "Myanmar": "\u1000-\u109f", "Georgian": "\u10a0-\u10ff",
    "Ethiopic": "\u1200-\u137f", "Khmer": "\u1780-\u17ff", "Armenian": "\u0530-\u058f", "Hangul": "\uac00-\ud7af",
    # With kana, since Japanese text mixes both.
    "Han": "\u3400-\u4dbf\u4e00-\u9fff\u3040-\u30ff",
}
_LANGUAGES = {
    "Cyrillic": "ab av ba be bg ce cv kk kv ky mk mn os ru tg tt uk", "Greek": "el", "Arabic": "ar fa ps sd ug ur",
    "Hebrew": "he yi", "Devanagari": "hi mr ne sa", "Bengali": "as bn", "Gurmukhi": "pa", "Gujarati": "gu",
    "Tamil": "ta", "Telugu": "te", "Kannada": "kn", "Malayalam": "ml", "Sinhala": "si", "Thai": "th", "Lao": "lo",
    "Myanmar": "my", "Georgian": "ka", "Ethiopic": "am ti", "Khmer": "km", "Armenian": "hy", "Hangul": "ko",
    "Han": "ja zh",
    "Latin": "af ca cs cy da de en es et eu fi fr ga gl ha hr hu id ig is it lb lt lv mg ms mt nl nn no pl pt ro rw "
             "sk sl so sq sv sw tl tr vi wo xh yo zu",
}
_TAGS = {
    "Latn": "Latin", "Cyrl": "Cyrillic", "Grek": "Greek", "Arab": "Arabic", "Hebr": "Hebrew", "Deva": "Devanagari",
    "Beng": "Bengali", "Hans": "Han", "Hant": "Han", "Jpan": "Han", "Hang": "Hangul", "Thai": "Thai",
}
# fmt: on
_SCRIPT_OF = {}
for _script, _codes in _LANGUAGES.items():
    _SCRIPT_OF |= dict.fromkeys(_codes.split(), _script)
_PATTERNS = {script: re.compile(f"[{ranges}]") for script, ranges in _RANGES.items()}


def script_of_language(code: str) -> str | None:
    """The script `code` is written in (Japanese counts as Han); None if unknown or if the language
    has several."""
    # A tag goes before the language's usual script: sr_Latn is not Cyrillic.
    language, *tags = re.split("[_-]", code)
    for tag in tags:
        if tag in _TAGS:
            return _TAGS[tag]
    return _SCRIPT_OF.get(language)


def letters_in(script: str, text: str) -> int:
    """How many letters of `script` the text has."""
    return len(_PATTERNS[script].findall(text))


def main_script(text: str) -> str | None:
    """The script of most of the letters; None without letters."""
    counts = {script: letters_in(script, text) for script in _PATTERNS}
    best = max(counts, key=counts.get)
    if not counts[best]:
        return None
    return best
