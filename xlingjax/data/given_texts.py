"""Texts that a Python program gives, where a list of them is meant."""

from __future__ import annotations

from collections.abc import Iterable

from xlingjax.errors import UserError


def require_list(texts: Iterable[object], name: str) -> None:
    """Raises UserError for one text in place of a list: a string is a sequence, too, and each of
    its letters would be taken for a text. name: of the argument."""
    if isinstance(texts, str | bytes):
        raise UserError(f"{name} is one text, {texts[:40]!r}: give a list of texts, [text]")


def require_texts(texts: Iterable[object], name: str) -> None:
    """As `require_list`, and for what is no text or no Unicode among them."""
    require_list(texts, name)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(
                f"{name}[{number}] is {type(text).__name__}, not text: {str(text)[:40]!r}"
            )
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(
                f"{name}[{number}] has half of a surrogate pair, which is no character:"
                f" {text[:40]!r}"
            ) from None
