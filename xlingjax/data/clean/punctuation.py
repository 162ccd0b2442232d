"""Moses' normalize-punctuation.perl, per language, by sacremoses."""

from __future__ import annotations

import functools
from collections.abc import Callable

from xlingjax.data.clean.extras import package


@functools.cache
def normalizer(language: str) -> Callable[[str], str]:
    """str -> str. Quotes and numbers are those of the language (`de`, `fr`, `cs` ...); languages
    without rules of their own have Moses' common ones. Raises UserError without sacremoses."""
    moses = package("sacremoses", "--punctuation")
    code = language.replace("_", "-").partition("-")[0]
    return moses.MosesPunctNormalizer(lang=code).normalize
