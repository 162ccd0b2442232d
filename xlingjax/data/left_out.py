"""Pairs that no row of an objective has room for: a run says how many they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

FEW = 0.05
"""Of the pairs: that many are left out without a word."""


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """How many of `pairs`, with text on both sides, are too long for a row."""

    left: int = 0
    pairs: int = 0

    def __add__(self, other: LeftOut) -> LeftOut:
        return LeftOut(self.left + other.left, self.pairs + other.pairs)

    @property
    def share(self) -> float:
        return self.left / max(self.pairs, 1)


def message(
    stage: str,
    length: int,
    left_out: Mapping[str, LeftOut],
) -> str:
    """What a run says of it; "": of few or none. stage: of an objective, with rows of `length`
    tokens; left_out: {text: of it}."""
    total = sum(left_out.values(), LeftOut())
    if total.share <= FEW:
        return ""
    most = max(left_out, key=lambda name: left_out[name].share)
    return (
        f"{stage}: {total.left:,} of {total.pairs:,} pairs ({total.share:.1%}; of {most}"
        f" {left_out[most].share:.1%}) do not fit rows of {length} tokens, or have a side of more"
        " than MAX_PIECES, and are left out: raise LENGTH, or the objective's own, or MAX_PIECES"
    )
