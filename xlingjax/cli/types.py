"""Kinds of value that options take. Each raises `ArgumentTypeError`, which names the value and what
is wanted."""

import argparse
from collections.abc import Callable

from xlingjax.runtime.numerals import is_number, is_whole

# Those of inference/encode.py, which imports JAX: --help has to answer at once.
POOLINGS = ("mean", "mean_no_special", "first")


def _refused(text: str, needed: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{text!r} {needed}")


def _whole(needed: str, low: int = 0, high: float = float("inf")) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not is_whole(text) or not low <= int(text) <= high:
            raise _refused(text, needed)
        return int(text)

    return read


def _number(needed: str, low: float = float("-inf"), high: float = float("inf")):
    def read(text: str) -> float:
        if not is_number(text) or not low <= float(text) <= high:
            raise _refused(text, needed)
        return float(text)

    return read


positive = _whole("is not a whole number above 0", 1)
count = _whole("is not a whole number, 0 or more")
# The special pieces alone are 14, and SentencePiece's own number has 32 bits.
vocabulary_size = _whole(
    "is no size of a vocabulary, a whole number from 16 to 10000000", 16, 10_000_000
)
sentinels = _whole("is not a whole number from 1 to 10000", 1, 10_000)
# JAX, NumPy and TensorFlow all take this many.
seed = _whole("is not a seed, a whole number from 0 to 2147483647", 0, 2**31 - 1)
# Those that SentencePiece takes.
coverage = _number("is not a share from 0.98 to 1", 0.98, 1)
number = _number("is not a number")
not_negative = _number("is not a number, 0 or more", 0)
# The least of what Python counts with.
above_zero = _number("is not a number above 0", 5e-324)
share = _number("is not a share from 0 to 1", 0, 1)


def place(text: str) -> str:
    """Where something is written."""
    if not text:
        raise _refused(text, "names no file and no folder")
    return text


def whole(text: str) -> int:
    """Below 0, too: layers counted from the top."""
    if not is_whole(text.removeprefix("-")):
        raise _refused(text, "is not a whole number")
    return int(text)


def layer(text: str) -> int | str:
    if text == "all":
        return text
    return _whole("is no layer: a whole number from 0, the embeddings, on, or all")(text)


def steps(text: str) -> list[int]:
    words = text.replace(",", " ").split()
    if not words or not all(map(is_whole, words)):
        raise _refused(text, "is not a list of steps like 1000,2000")
    return [int(word) for word in words]


def at_most(text: str) -> tuple[float, int]:
    scale, _, more = text.partition(",")
    if not is_number(scale) or not is_whole(more):
        raise _refused(text, "is not A,B, like 1.5,10")
    return float(scale), int(more)


def shard(text: str) -> tuple[int, int]:
    index, _, several = text.partition("/")
    if is_whole(index) and is_whole(several) and 1 <= int(index) <= int(several):
        return int(index), int(several)
    raise _refused(text, "is not I/N, from 1/N to N/N")
