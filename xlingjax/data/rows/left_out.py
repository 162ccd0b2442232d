"""How much text stands in no row, since none has room for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

FEW = 0.05  # of the text and of its tokens: that much is left out without a word


@dataclass(frozen=True)
class LeftOut:
    """How many of `pairs`, with text on both sides, or sentences stand in no row; the same of their
    tokens, which are more: long ones are left out."""

    left: int = 0
    pairs: int = 0
    left_tokens: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, whole: np.ndarray, read: np.ndarray, tokens: np.ndarray) -> LeftOut:
        """Of examples: bool [E] which have text, and which stand in rows; [E] how many tokens."""
        left = whole & ~read
        counts = left.sum(), whole.sum(), tokens[left].sum(), tokens[whole].sum()
        return cls(*map(int, counts))

    def __add__(self, other: LeftOut) -> LeftOut:
        both = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return LeftOut(*(one + two for one, two in both))

    @property
    def shares(self) -> tuple[float, float]:
        """Of the pairs, and of their tokens."""
        return self.left / max(self.pairs, 1), self.left_tokens / max(self.tokens, 1)

    def __str__(self) -> str:
        of_pairs, of_tokens = self.shares
        return f"{of_pairs:.1%}, and {of_tokens:.1%} of their tokens"


def message(stage: str, source: Any) -> str:
    """What a run or `inspect` says of the text that an open `BatchSource` leaves out; "": of few or
    none. stage: of an objective."""
    left_out: Mapping[str, LeftOut] = getattr(source, "left_out", None) or {}
    most = max(left_out, key=lambda name: max(left_out[name].shares), default="")
    # One language may lose much of its text where all together lose little.
    if not most or max(left_out[most].shares) <= FEW:
        return ""
    total = sum(left_out.values(), LeftOut())
    return (
        f"{stage}: {total.left:,} of {total.pairs:,} examples ({total}; of {most}"
        f" {left_out[most]}) do not fit rows of {source.identity['length']} tokens, or are of more"
        " than MAX_PIECES, and are left out: raise LENGTH, or the objective's own, or MAX_PIECES"
    )
