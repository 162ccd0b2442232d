"""Kinds of value that options take. Each raises `ArgumentTypeError`: the value, what fits."""

import argparse
from collections.abc import Callable
from typing import Any

from xlingjax.runtime.numerals import is_number, is_whole

# Those of inference/encode.py, which imports JAX: --help has to answer at once.
POOLINGS = ("mean", "mean_no_special", "first")
INFINITY = float("inf")


def _refused(text: str, needed: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{text!r} is not {needed}")


def _whole(needed: str, low: float = -INFINITY, high: float = INFINITY) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not is_whole(text.removeprefix("-")) or not low <= int(text) <= high:
            raise _refused(text, needed)
        return int(text)

    return read


def _number(needed: str, low: float = -INFINITY, high: float = INFINITY) -> Callable[[str], float]:
    def read(text: str) -> float:
        if not is_number(text) or not low <= float(text) <= high:
            raise _refused(text, needed)
        return float(text)

    return read


def _two(needed: str, first: Callable[[str], Any], second: Callable[[str], Any]):
    def read(text: str) -> tuple[Any, Any]:
        low, _, high = text.partition(",")
        try:
            return first(low), second(high)
        except argparse.ArgumentTypeError:
            raise _refused(text, needed) from None

    return read


def or_word(word: str, kind: Callable[[str], Any], value: Any) -> Callable[[str], Any]:
    """`kind`, or a word that stands for `value`."""
    return lambda text: value if text == word else kind(text)


# Below 0, too: layers counted from the top.
whole = _whole("a whole number")
count = _whole("a whole number, 0 or more", 0)
positive = _whole("a whole number above 0", 1)
# JAX, NumPy and TensorFlow all take this many.
seed = _whole("a seed, a whole number from 0 to 2147483647", 0, 2**31 - 1)
# The special pieces alone are 14, and SentencePiece's own number has 32 bits.
vocabulary_size = _whole("a size from 16 to 10000000", 16, 10_000_000)
number = _number("a number")
not_negative = _number("a number, 0 or more", 0)
# The least of what Python counts with.
above_zero = _number("a number above 0", 5e-324)
share = _number("a share from 0 to 1", 0, 1)
# Those that SentencePiece takes.
coverage = _number("a share from 0.98 to 1", 0.98, 1)
layer = or_word("all", count, "all")
at_most = _two("A,B, like 1.5,10", number, count)
limits = or_word("none", _two("MIN,MAX, like 1,250, or none", count, count), None)
number_or_none = or_word("none", above_zero, None)


def place(text: str) -> str:
    """Where something is written."""
    if not text:
        raise argparse.ArgumentTypeError(f"{text!r} names no file and no folder")
    return text


def assigned(form: str, kind: Callable[[str], Any] = str) -> Callable[[str], tuple[str, Any]]:
    """(name, value) of NAME=VALUE. form: how it is written, for the message."""

    def read(text: str) -> tuple[str, Any]:
        name, _, value = text.partition("=")
        if not name or not value:
            raise argparse.ArgumentTypeError(f"{text!r}: write {form}")
        return name, kind(value)

    return read
