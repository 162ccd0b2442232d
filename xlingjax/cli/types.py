"""Kinds of value that options take. Each raises `ArgumentTypeError`, which names the value and what
is wanted."""

import argparse

from xlingjax.runtime.numerals import is_number, is_whole

# Those of inference/encode.py, which imports JAX: --help has to answer at once.
POOLINGS = ("mean", "mean_no_special", "first")


def place(text: str) -> str:
    """Where something is written."""
    if not text:
        raise argparse.ArgumentTypeError("'' names no file and no folder")
    return text


def positive(text: str) -> int:
    if not is_whole(text) or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def count(text: str) -> int:
    if not is_whole(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)


def vocabulary_size(text: str) -> int:
    # The special pieces alone are 14, and SentencePiece's own number has 32 bits.
    if not is_whole(text) or not 16 <= int(text) <= 10_000_000:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no size of a vocabulary, a whole number from 16 to 10000000"
        )
    return int(text)


def sentinels(text: str) -> int:
    if not is_whole(text) or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 10000")
    return int(text)


def coverage(text: str) -> float:
    # Those that SentencePiece takes.
    if not is_number(text) or not 0.98 <= float(text) <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0.98 to 1")
    return float(text)


def seed(text: str) -> int:
    # JAX, NumPy and TensorFlow all take this many.
    if not is_whole(text) or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a seed, a whole number from 0 to 2147483647"
        )
    return int(text)


def whole(text: str) -> int:
    """Below 0, too: layers counted from the top."""
    if not is_whole(text.removeprefix("-")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def number(text: str) -> float:
    if not is_number(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return float(text)


def not_negative(text: str) -> float:
    if not is_number(text) or float(text) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, 0 or more")
    return float(text)


def above_zero(text: str) -> float:
    if not is_number(text) or float(text) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return float(text)


def layer(text: str) -> int | str:
    if text == "all":
        return text
    if not is_whole(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no layer: a whole number from 0, the embeddings, on, or all"
        )
    return int(text)


def steps(text: str) -> list[int]:
    words = text.replace(",", " ").split()
    if not words or not all(map(is_whole, words)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of steps like 1000,2000")
    return [int(word) for word in words]


def share(text: str) -> float:
    if not is_number(text) or not 0 <= float(text) <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to 1")
    return float(text)


def at_most(text: str) -> tuple[float, int]:
    scale, _, more = text.partition(",")
    if not is_number(scale) or not is_whole(more):
        raise argparse.ArgumentTypeError(f"{text!r} is not A,B, like 1.5,10")
    return float(scale), int(more)


def shard(text: str) -> tuple[int, int]:
    index, _, several = text.partition("/")
    two = is_whole(index) and is_whole(several)
    if two and 1 <= int(index) <= int(several):
        return int(index), int(several)
    raise argparse.ArgumentTypeError(f"{text!r} is not I/N, from 1/N to N/N")
