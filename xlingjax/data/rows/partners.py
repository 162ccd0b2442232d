"""Wrong partners of translations, drawn anew for every batch."""

from __future__ import annotations

import numpy as np

TRIES = 16  # draws of a wrong partner: the first may be a right one, or too long


class Translations:
    """Which texts translate each other.

    texts: integers [E, 3]: of E translations both sides, equal numbers for equal texts, and a share
    of the texts, from which the wrong partner of side 0 is drawn. So a text that is side 0 of
    several translations has different wrong partners in all of different shares. sizes: integers
    [E, 2], the tokens of both sides in a row.
    """

    def __init__(self, texts: np.ndarray, sizes: np.ndarray):
        self._texts = texts
        self._sizes = sizes
        self._right = np.unique(_as_one(texts[:, 0], texts[:, 1]))
        shares = texts[:, 2].max(initial=0) + 1
        self._share_of_y = texts[:, 1] % shares
        self._by_share = np.argsort(self._share_of_y, kind="stable")
        self._ends = np.cumsum(np.bincount(self._share_of_y, minlength=shares))

    def wrong(self, x: np.ndarray, y: np.ndarray, length: int) -> np.ndarray:
        """bool [B]: whether side 1 of the translations `y` [B] is in the share of `x` [B], is
        another text than side 0 of `x` and translates it nowhere, and a row of `length` tokens has
        room for both."""
        first = self._texts[x, 0]
        second = self._texts[y, 1]
        # A sentence may stand in the text several times, with several right translations.
        pair = _as_one(first, second)
        at = np.searchsorted(self._right, pair)
        right = self._right[np.minimum(at, self._right.size - 1)] == pair
        tokens = self._sizes[x, 0].astype(np.int64) + self._sizes[y, 1]
        shared = self._texts[x, 2] == self._share_of_y[y]
        return shared & (first != second) & ~right & (tokens <= length)

    def drawn(self, x: np.ndarray, uniform: np.ndarray, length: int) -> np.ndarray:
        """int64 [B]: the translation whose side 1 is the wrong partner of side 0 of `x` [B]; -1
        where none was found. uniform: [B, tries], in [0, 1)."""
        # Each y is as often a wrong partner as a right one: y alone does not tell the label.
        share = self._texts[x, 2]
        ends = self._ends[share, None]
        begins = np.where(share > 0, self._ends[share - 1], 0)[:, None]
        places = begins + (uniform * (ends - begins)).astype(np.int64)
        # A share may be empty, the last one too.
        candidates = self._by_share[np.minimum(places, len(self._texts) - 1)]
        tries = candidates.shape[1]
        good = self.wrong(np.repeat(x, tries), candidates.reshape(-1), length)
        good = good.reshape(candidates.shape)
        first = good.argmax(axis=1)
        chosen = candidates[np.arange(x.size), first]
        return np.where(good.any(axis=1), chosen, -1)


def _as_one(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """int64 [B]: two numbers below 2^31 as one, in either order: either may be the paraphrase."""
    smaller = np.minimum(first, second).astype(np.int64)
    return smaller << 32 | np.maximum(first, second)


def redrawn(
    slices: np.ndarray,
    rows: np.ndarray,
    plan: np.ndarray,
    translations: Translations,
    uniform: np.ndarray,
    length: int,
) -> np.ndarray:
    """The slices [2 B] of `rows` [B] with wrong partners by the draws [B, tries], in place. plan:
    the slices of all rows, whose translations these are; where none is found its partner stays."""
    wrong = np.flatnonzero(rows % 2 == 0)
    y = translations.drawn(rows[wrong] // 2, uniform[wrong], length)
    found = y >= 0
    # Side 1 of the row behind, where the translation stands.
    theirs = plan[4 * y[found] + 3]
    of_y = 2 * wrong[found] + 1
    for name in ("start", "lengths"):
        slices[name][of_y] = theirs[name]
    return slices
