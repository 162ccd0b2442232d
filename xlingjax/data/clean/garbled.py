"""Text decoded wrongly, or with entities of HTML: found, and repaired by ftfy (extra `clean`)."""

import functools
import html.entities
import importlib.util
import re
from typing import Any

from xlingjax.runtime.packages import package

# A first byte of UTF-8 and one that goes on, both read as Windows-1252, as in "h\u00c3\u00a4lt".
_TWICE = re.compile(
    "[\u00c2\u00c3\u00e2\u00d0\u00d1][\u0080-\u00bf\u0152-\u0192\u02c6\u02dc\u2018-\u2122\u20ac]"
)
_ENTITY = re.compile(r"&(#\d+;|#[xX][0-9a-fA-F]+;|\w+;)")


def has_entities(text: str) -> bool:
    found = _ENTITY.findall(text)
    return any(name.startswith("#") or name in html.entities.html5 for name in found)


def is_mojibake(text: str) -> bool:
    if text.isascii():
        return False
    if importlib.util.find_spec("ftfy") is None:
        return _TWICE.search(text) is not None
    import ftfy

    return ftfy.fix_encoding(text) != text


def repaired(text: str) -> str:
    """Raises UserError without ftfy."""
    return package("ftfy", "characters").fix_text(text, _config())


@functools.cache
def _config() -> Any:
    # What is rightly written so, as ligatures, curled quotes and wide letters, stays.
    return package("ftfy", "characters").TextFixerConfig(
        unescape_html=True,
        fix_latin_ligatures=False,
        fix_character_width=False,
        uncurl_quotes=False,
        fix_line_breaks=False,
        remove_control_chars=False,
        normalization=None,
    )
