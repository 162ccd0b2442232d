"""Characters of a line, as text is read: composed, without what no one sees."""

from __future__ import annotations

import re
import unicodedata

# Control characters, soft hyphens, marks of direction and of byte order. Joiners stay (U+200C,
# U+200D): Persian, Hindi and emoji are written with them.
_UNSEEN = re.compile(
    "[\u0000-\u0008\u000e-\u001f\u007f-\u009f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064"
    "\u2066-\u206f\ufeff\ufff9-\ufffb]"
)
# What replaces bytes that a program could not decode.
REPLACEMENT = "\ufffd"


def normal_characters(text: str) -> str:
    """NFC (as CCNet's and XLM-R's text is, and not NFKC, which changes what is written), control
    characters and invisible marks removed, every run of white space one space."""
    text = unicodedata.normalize("NFC", text)
    text = _UNSEEN.sub("", text)
    return " ".join(text.split())
