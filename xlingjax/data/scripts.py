"""Which script a language is written in, and which script a line is in."""

from __future__ import annotations

import re

from xlingjax.data.languages import language_of

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
_NAMES = {
    "Latn": "Latin", "Cyrl": "Cyrillic", "Grek": "Greek", "Arab": "Arabic", "Aran": "Arabic", "Hebr": "Hebrew",
    "Deva": "Devanagari", "Beng": "Bengali", "Guru": "Gurmukhi", "Gujr": "Gujarati", "Taml": "Tamil", "Telu": "Telugu",
    "Knda": "Kannada", "Mlym": "Malayalam", "Sinh": "Sinhala", "Thai": "Thai", "Laoo": "Lao", "Mymr": "Myanmar",
    "Geor": "Georgian", "Ethi": "Ethiopic", "Khmr": "Khmer", "Armn": "Armenian", "Hang": "Hangul", "Kore": "Hangul",
    "Hans": "Han", "Hant": "Han", "Hani": "Han", "Jpan": "Han",
}
"""By the codes of ISO 15924."""
# fmt: on
_SEVERAL = frozenset(
    ["az", "bs", "kk", "ks", "ku", "ms", "pa", "sd", "sh", "sr", "tg", "tk", "ug", "uz"]
)
"""Languages that are written in several scripts."""
_UNSPACED = frozenset(["Hans", "Hant", "Hani", "Jpan", "Thai", "Laoo", "Khmr", "Mymr"])
_PATTERNS = {script: re.compile(f"[{ranges}]") for script, ranges in _RANGES.items()}


def script_of_language(code: str) -> str | None:
    """The script `code` is written in (Japanese counts as Han), the one that it names itself first:
    sr_Latn is Latin. None if unknown or if the language has several."""
    language = language_of(code)
    if language.script is None and (language.language in _SEVERAL or not language.is_valid()):
        return None
    return _NAMES.get(language.maximize().script or "")


def is_unspaced(code: str) -> bool:
    """Whether the language is written without spaces between words: zh, zho_Hans, yue, ja, th ..."""
    return language_of(code).maximize().script in _UNSPACED


def ranges(*scripts: str) -> str:
    """Their letters, as within the brackets of a regular expression."""
    return "".join(_RANGES[script] for script in scripts)


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
