"""Pairs and sentences that no row of an objective has room for: a run says how many they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

FEW = 0.05
"""Of the pairs and of their tokens: that many are left out without a word."""


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """How many of `pairs`, with text on both sides, or sentences are too long for a row; the same
    of their tokens, which are more: long ones are left out."""

    left: int = 0
    pairs: int = 0
    left_tokens: int = 0
    tokens: int = 0

    @classmethod
    def of(
        cls,
        whole: np.ndarray,
        read: np.ndarray,
        tokens: np.ndarray,
    ) -> LeftOut:
        """Of examples: bool [E] which have text, and which stand in rows; [E] how many tokens."""
        left = whole & ~read
        return cls(
            int(left.sum()),
            int(whole.sum()),
            int(tokens[left].sum()),
            int(tokens[whole].sum()),
        )

    def __add__(self, other: LeftOut) -> LeftOut:
        mine, others = map(dataclasses.astuple, (self, other))
        return LeftOut(*map(sum, zip(mine, others, strict=True)))

    @property
    def share(self) -> float:
        """Of the pairs or of their tokens, whichever is more."""
        return max(
            self.left / max(self.pairs, 1),
            self.left_tokens / max(self.tokens, 1),
        )

    def __str__(self) -> str:
        of_pairs = self.left / max(self.pairs, 1)
        of_tokens = self.left_tokens / max(self.tokens, 1)
        return f"{of_pairs:.1%}, and {of_tokens:.1%} of their tokens"


def message(
    stage: str,
    length: int,
    left_out: Mapping[str, LeftOut],
) -> str:
    """What a run says of it; "": of few or none. stage: of an objective, with rows of `length`
    tokens; left_out: {text: of it}."""
    total = sum(left_out.values(), LeftOut())
    most = max(
        left_out,
        key=lambda name: left_out[name].share,
        default="",
    )
    # One language may lose much of its text where all together lose little.
    if not most or left_out[most].share <= FEW:
        return ""
    return (
        f"{stage}: {total.left:,} of {total.pairs:,} examples ({total}; of {most}"
        f" {left_out[most]}) do not fit rows of {length} tokens, or are of more than MAX_PIECES,"
        " and are left out: raise LENGTH, or the objective's own, or MAX_PIECES"
    )
