"""Pairs that no row of an objective has room for: a run says how many they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

FEW = 0.05
"""Of the pairs: that many are left out without a word."""


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """How many of `pairs`, with text on both sides, are left out."""

    left: int
    pairs: int

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
    total = LeftOut(
        sum(text.left for text in left_out.values()),
        sum(text.pairs for text in left_out.values()),
    )
    if total.share <= FEW:
        return ""
    most = max(left_out, key=lambda name: left_out[name].share)
    return (
        f"{stage}: {total.left:,} of {total.pairs:,} pairs ({total.share:.1%}; of {most}"
        f" {left_out[most].share:.1%}) do not fit rows of {length} tokens, or have a side of more"
        f" than MAX_PIECES, and are left out: raise LENGTH, or the objective's own, or MAX_PIECES"
    )
