"""Durations in tokens: TRAIN_STEPS = "600B tokens" is as many updates as read that many tokens.

An update reads BATCH rows of LENGTH tokens. Both may have stages, which may begin at a token:
BATCH = {0: 576, "25B tokens": 1728}.
"""

import re
from collections.abc import Mapping
from typing import Any

from xlingjax.errors import UserError

TOKENS = re.compile(r"(\d+(?:\.\d+)?) ?([KMBT]?) tokens")
UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def tokens_of(value: Any) -> int | None:
    """The number of tokens that "1.5B tokens" names; None for any other value."""
    match = TOKENS.fullmatch(value) if isinstance(value, str) else None
    return round(float(match[1]) * UNITS[match[2]]) if match else None


def is_duration(value: Any) -> bool:
    """Whether a value, or the beginning of one of its stages, is in tokens."""
    starts = value if isinstance(value, Mapping) else [value]
    return any(tokens_of(start) is not None for start in starts)


class Clock:
    """Which update has read how many tokens."""

    def __init__(self, batch: Any, length: Any):
        """batch: rows, length: tokens a row; whole numbers, or {first update or tokens: number}.
        Raises UserError for stages that do not begin at 0, or whose sizes are no numbers."""
        stages = [value if isinstance(value, Mapping) else {0: value} for value in (batch, length)]
        for name, value in zip(("BATCH", "LENGTH"), stages, strict=True):
            if 0 not in value or not all(type(size) is int and size > 0 for size in value.values()):
                raise UserError(
                    f"{name}={value}: to count tokens, whole numbers above 0 are needed, and"
                    " stages from 0 on"
                )
        sizes = [value[0] for value in stages]
        # (update, tokens read before it, tokens an update reads from it on)
        self.spans = [(0, 0, sizes[0] * sizes[1])]
        changes = [
            (which, start, size)
            for which, value in enumerate(stages)
            for start, size in value.items()
            if start != 0
        ]
        while changes:
            # By the sizes of now, which hold until the first of the changes.
            first = min(changes, key=lambda change: self.update(change[1]))
            changes.remove(first)
            which, start, sizes[which] = first
            update = self.update(start)
            self.spans.append((update, self._tokens(update), sizes[0] * sizes[1]))

    def _tokens(self, update: int) -> int:
        before, tokens, rate = [span for span in self.spans if span[0] <= update][-1]
        return tokens + (update - before) * rate

    def update(self, when: Any) -> Any:
        """The update by which so many tokens are read; `when` itself if it is not in tokens."""
        tokens = tokens_of(when)
        if tokens is None:
            return when
        update, before, rate = [span for span in self.spans if span[1] <= tokens][-1]
        return update + -(-(tokens - before) // rate)

    def last(self, duration: Any, end: Any) -> Any:
        """How many updates before update `end` read so many tokens."""
        tokens = tokens_of(duration)
        if tokens is None:
            return duration
        return end - self.update(f"{max(self._tokens(end) - tokens, 0)} tokens")

    def updates(self, value: Any) -> Any:
        """A value whose durations, or beginnings of stages, are updates."""
        if isinstance(value, Mapping):
            return {self.update(start): self.updates(one) for start, one in value.items()}
        return self.update(value)
