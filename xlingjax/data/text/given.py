"""What users and programs bring, JSON and lists of texts: Unicode, or an error saying where."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from xlingjax.errors import UserError


def parse_json(content: str, where: str) -> Any:
    """`json.loads`. where: it stands, for messages.

    Raises ValueError for what is no JSON, brackets nested too deep among it; UserError for an
    escape in it that is no character: half a surrogate pair (as of text cut at 16 bits), a NUL.
    """
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deep") from None
    # Text that came as UTF-8 can hold neither but by an escape.
    if "\\u" not in content:
        return value
    for text in _texts(value):
        if "\0" in text:
            raise UserError(f"{where}: the escape \\u0000 is a NUL, which no text has; remove it")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            half = f"\\u{ord(text[error.start]):04x}"
            raise UserError(
                f"{where}: {half} is half of a surrogate pair and no character; remove it, or write"
                " the other half behind it"
            ) from None
    return value


def parse_object(line: str, where: str) -> dict:
    """The object of a line of JSON lines. Raises UserError, also as `parse_json` does."""
    try:
        value = parse_json(line, where)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UserError(f"{where}: not a JSON object; jsonl has one object per line")
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield name
            yield from _texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)


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
