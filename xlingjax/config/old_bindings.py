"""Recipes and runs of older versions: when each objective had its text's settings, and what they
did where they say nothing."""

import re
from collections.abc import Collection

SCATTERED = "scattered"
"""How runs placed their pseudo tokens that do not say it; objectives/btmlm.gin does."""
_OF_TEXT = "corpus|sampling|seed|mixture|tasks|use_cached|holdout|data_shards|threads|prefetch"


def renewed(text: str, objectives: Collection[str]) -> str:
    """gin text in which each of `objectives` that binds its own corpus has a text of its own,
    NAME/text, with the same settings; what binds none is left alone. Lines keep their numbers."""
    for name in objectives:
        if not re.search(rf"^{name}\.corpus\s*=", text, re.MULTILINE):
            continue
        bound = re.compile(rf"^{name}\.({_OF_TEXT})(\s*=)", re.MULTILINE)
        text = bound.sub(rf"{name}/text.\1\2", text)
        text += f"\n{name}.text = @{name}/text()"
    return text
