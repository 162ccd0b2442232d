"""Kinds of value that options take. Each raises `ArgumentTypeError`, which names the value and what
is wanted."""

import argparse

# Those of inference/encode.py, which imports JAX: --help has to answer at once.
POOLINGS = ("mean", "mean_no_special", "first")


def positive(text: str) -> int:
    # Digits alone: int() would take "1_000" and " 1".
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number above 0",
        )
    return int(text)


def layer(text: str) -> int | str:
    if text != "all" and not text.isdigit():
        raise argparse.ArgumentTypeError(
            f"{text!r} is no layer: a whole number from 0, the embeddings, on, or all",
        )
    if text == "all":
        return text
    return int(text)


def minutes(text: str) -> float:
    try:
        # Not true of nan, which is refused below.
        if float(text) >= 0:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(
        f"{text!r} is not a number of minutes, 0 or more",
    )


def steps(text: str) -> list[int]:
    words = text.replace(",", " ").split()
    if not words or not all(word.isdigit() for word in words):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of steps like 1000,2000",
        )
    return [int(word) for word in words]


def share(text: str) -> float:
    try:
        # Not true of nan, which is refused below.
        if 0 <= float(text) <= 1:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to 1")


def at_most(text: str) -> tuple[float, int]:
    scale, _, more = text.partition(",")
    try:
        return float(scale), int(more)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not A,B, like 1.5,10",
        ) from None


def shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count):
        return int(index), int(count)
    raise argparse.ArgumentTypeError(f"{text!r} is not I/N, from 1/N to N/N")
