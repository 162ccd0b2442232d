"""Gin text as statements, read by gin's own parser: what is bound, imported and included, and in
which line."""

import functools
import math
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gin import config_parser

from xlingjax.errors import UserError

BINDING, IMPORT, INCLUDE = "binding", "import", "include"


@dataclass(frozen=True)
class Statement:
    kind: str
    """`BINDING`, `IMPORT` or `INCLUDE`."""
    name: str
    """What is bound, "MACRO" or "scope/name.parameter"; the module, "a.b" of `from a import b` too;
    the file."""
    line: int
    """From 1."""
    macros: frozenset[str]
    """Those that its value reads."""
    references: frozenset[str]
    """Those in its value, "scope/name"."""

    @property
    def is_macro(self) -> bool:
        return self.kind == BINDING and "." not in self.name


class _Names(config_parser.ParserDelegate):
    """Notes names where gin would look them up."""

    def __init__(self):
        self.macros: set[str] = set()
        self.references: set[str] = set()

    def configurable_reference(self, scoped_name: str, evaluate: bool) -> Any:
        self.references.add(scoped_name)
        return scoped_name

    def macro(self, name: str) -> Any:
        self.macros.add(name)
        return name


# A recipe's files are asked for several things, one after the other.
@functools.lru_cache(maxsize=1024)
def statements(text: str, where: str) -> tuple[Statement, ...]:
    """Raises UserError with the line for what is not gin syntax."""
    try:
        return tuple(_statements(text))
    except tokenize.TokenError as error:
        # It is found at the end of the text.
        line = _opened(text) or error.args[1][0]
        cause = "a bracket or string that is opened there is never closed"
    except SyntaxError as error:
        line = error.lineno
        cause = _meaning(str(error.msg))
    # A list as the key of a dict.
    except TypeError as error:
        line, cause = 0, str(error)
    except RecursionError:
        line, cause = 0, "brackets within brackets, too many"
    at = where
    # One line, of an override, needs no number.
    if line and "\n" in text:
        at = f"{where}, line {line}"
    raise UserError(f"{at}: not gin syntax: {cause}") from None


def gin_value(text: str) -> str:
    """A value typed in a shell, as gin reads it: what is no literal, reference or macro is a string
    and gets quotes."""
    text = text.strip()
    # Shells write them in lower case, and such a value would arrive as a string.
    if text.lower() in ("true", "false"):
        return text.capitalize()
    # Numbers of layers, shares, and ramps: gin would read the first number alone.
    numbers = r"[\d.]+([ ,]+[\d.]+)+"
    if re.fullmatch(rf"{numbers}|\d+:[^,]+(,\d+:[^,]+)*", text, re.ASCII):
        return repr(text)
    try:
        config_parser.ConfigParser(text, _Names()).parse_value()
    except SyntaxError:
        return repr(text)
    # A bracket or quote that is not closed: of a literal it is said where it is bound.
    except tokenize.TokenError:
        if not text.startswith(("(", "[", "{", "'", '"')):
            return repr(text)
    # What gin finds no value in for another cause is said where it is bound.
    except (ValueError, TypeError, RecursionError):
        pass
    return text


def gin_values(overrides: Sequence[str]) -> list[str]:
    """NAME=VALUE with every value as gin reads it."""
    written = []
    for override in overrides:
        name, _, value = override.partition("=")
        written.append(f"{name}={gin_value(value)}")
    return written


def _statements(text: str) -> Iterator[Statement]:
    names = _Names()
    for one in config_parser.ConfigParser(text, names):
        kind, name = _named(one)
        # The names of a block are all read when its first line is.
        if not kind:
            continue
        if kind == BINDING and not _is_finite(one.value):
            # gin would read it as infinite, and leave it out of what it says is bound.
            place = (None, one.location.line_num, None, None)
            raise SyntaxError("a number is too large", place)
        yield Statement(
            kind, name, one.location.line_num, frozenset(names.macros), frozenset(names.references)
        )
        names.macros.clear()
        names.references.clear()


def _named(one: Any) -> tuple[str, str]:
    if isinstance(one, config_parser.ImportStatement):
        return IMPORT, one.module
    if isinstance(one, config_parser.IncludeStatement):
        return INCLUDE, one.filename
    if not isinstance(one, config_parser.BindingStatement):
        return "", ""
    name = one.selector
    if one.scope:
        name = f"{one.scope}/{name}"
    if one.arg_name:
        name = f"{name}.{one.arg_name}"
    return BINDING, name


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _opened(text: str) -> int:
    """The line of the first bracket that is never closed; 0: there is none."""
    opened = []
    lines = iter(text.splitlines(keepends=True))
    try:
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            if token.type == tokenize.OP and token.string in "([{":
                opened.append(token.start[0])
            elif token.type == tokenize.OP and token.string in ")]}" and opened:
                opened.pop()
    except tokenize.TokenError:
        pass
    if opened:
        return opened[0]
    return 0


def _meaning(message: str) -> str:
    message = message.splitlines()[0]
    if message.startswith("malformed node") or "Unable to parse" in message:
        kinds = "a number, True, False, None, a string in quotes, a list, %MACRO or @name()"
        return f"a value is {kinds}"
    return re.sub(r" \(line \d+\)$", "", message)
