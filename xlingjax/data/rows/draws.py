"""Stateless randomness of the batches: each draw is a function of (seed, purpose, step, row).

So a position in the data is a number, hosts draw the same batch, and each epoch has new masks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

SELECT, REPLACE, TOKENS, LANGUAGE, PLACES, PARTNERS = range(6)
"""Purposes: masked positions, replacements, ids, pseudo tokens' language and places, partners."""
SPANS, STARTS, GAPS, SHUFFLE, DROP, BLANK = range(6, 12)
"""Purposes of noise: spans' lengths, starts, places of empty ones, order, loss, hiding."""
ROUNDING = 12  # whether a row has one masked position more, where its share is not whole


def seed_of(*parts: object) -> int:
    """A seed of 32 bits, which tells these names and numbers from all others."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4])


@dataclass(frozen=True)
class Draws:
    """The draws of one batch: made for all its `rows`, and given for `first .. first + count`."""

    seed: int
    step: int
    rows: int
    first: int = 0
    count: int | None = None

    def uniform(self, purpose: int, width: int, maxval: int | None = None) -> np.ndarray:
        """[count, width]: float32 in [0, 1), or int32 in [0, maxval)."""
        bits = np.random.Philox(key=[self.seed, purpose], counter=[0, 0, 0, self.step])
        generator = np.random.Generator(bits)
        # Drawn for the whole batch by every host: a row's draws do not depend on their number.
        shape = (self.rows, width)
        if maxval is None:
            drawn = generator.random(shape, np.float32)
        else:
            drawn = generator.integers(0, maxval, shape, np.int32)
        if self.count is None:
            return drawn
        return drawn[self.first : self.first + self.count]


def gumbel(uniform: np.ndarray) -> np.ndarray:
    """Noise of which the largest, added to log weights, is drawn by weight; uniform: in [0, 1)."""
    # The double logarithm is infinite at 0 and at 1.
    return -np.log(-np.log(np.clip(uniform, 1e-7, 1 - 1e-7)))
