"""Text that no row of an objective has room for: a run says how much it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

FEW = 0.05
"""Of the text and of its tokens: that much is left out without a word."""
WHY = {
    "long": (
        "examples",
        "do not fit rows of {length} tokens, or are of more than MAX_PIECES, and are left out:"
        " raise LENGTH, or the objective's own, or MAX_PIECES",
    ),
    "truncated": (
        "sentences",
        "stand behind the first {length} tokens of their document, or alone within them, and are"
        " left out: raise LENGTH, or the objective's own; with CL_MLM_TRUNCATE=False a document"
        " goes on in other rows",
    ),
    "alone": (
        "sentences",
        "stand alone in rows of {length} tokens, in one language, and are left out: raise LENGTH,"
        " or the objective's own",
    ),
}
"""Of each reason: what is left out, and what is said of it."""


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """How many of `pairs`, with text on both sides, or sentences stand in no row; the same of their
    tokens, which are more: long ones are left out. why: a reason of WHY, the same for all text of
    an objective."""

    left: int = 0
    pairs: int = 0
    left_tokens: int = 0
    tokens: int = 0
    why: str = "long"

    @classmethod
    def of(
        cls, whole: np.ndarray, read: np.ndarray, tokens: np.ndarray, why: str = "long"
    ) -> LeftOut:
        """Of examples: bool [E] which have text, and which stand in rows; [E] how many tokens."""
        left = whole & ~read
        return cls(
            int(left.sum()),
            int(whole.sum()),
            int(tokens[left].sum()),
            int(tokens[whole].sum()),
            why,
        )

    def __add__(self, other: LeftOut) -> LeftOut:
        return LeftOut(
            self.left + other.left,
            self.pairs + other.pairs,
            self.left_tokens + other.left_tokens,
            self.tokens + other.tokens,
            other.why,
        )

    @property
    def share(self) -> float:
        """Of the pairs or of their tokens, whichever is more."""
        return max(self.left / max(self.pairs, 1), self.left_tokens / max(self.tokens, 1))

    def __str__(self) -> str:
        of_pairs = self.left / max(self.pairs, 1)
        of_tokens = self.left_tokens / max(self.tokens, 1)
        return f"{of_pairs:.1%}, and {of_tokens:.1%} of their tokens"


def of_source(stage: str, source: Any) -> str:
    """The `message` of an open `BatchSource` of text."""
    found = getattr(source, "left_out", {})
    return message(stage, source.identity["length"], found) if found else ""


def message(stage: str, length: int, left_out: Mapping[str, LeftOut]) -> str:
    """What a run or `inspect` says of it; "": of few or none. stage: of an objective, with rows of
    `length` tokens; left_out: {text: of it}."""
    total = sum(left_out.values(), LeftOut())
    most = max(left_out, key=lambda name: left_out[name].share, default="")
    # One language may lose much of its text where all together lose little.
    if not most or left_out[most].share <= FEW:
        return ""
    of_what, said = WHY[total.why]
    return (
        f"{stage}: {total.left:,} of {total.pairs:,} {of_what} ({total}; of {most}"
        f" {left_out[most]}) {said.format(length=length)}"
    )
