"""Repetitions of a text, exact and near, and which of them stays.

Exact: the hash of what CCNet hashes (Wenzek et al. 2020, §3.1): lower case, all digits alike,
without accents and punctuation. Near: MinHash over shingles (Broder 1997), by datasketch. Texts
that share a band of their signatures are compared; the earliest stays. Nothing here depends on the
order in which texts come, so that any number of workers keeps the same ones.
"""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from xlingjax.runtime.packages import package

PERMUTATIONS = 64
BANDS = 8  # of 8 values: similarity 0.8 shares one with probability 0.77, 0.9 with 0.99
SHINGLE = 5  # characters; a word of several letters in any script

_DIGIT = re.compile(r"\d")


def key_of(text: str) -> bytes:
    """16 bytes, equal for texts that CCNet takes for one; without letters, of the text itself."""
    kept = ""
    for character in unicodedata.normalize("NFD", text.casefold()):
        category = unicodedata.category(character)
        # Accents: "Mn" in scripts of vowel signs is part of the word, and combining class 0 there.
        is_accent = category == "Mn" and unicodedata.combining(character) == 230
        if not is_accent and category[0] not in "PSZC":
            kept += character
    return _digest((_DIGIT.sub("0", kept) or text).encode())


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def line_key(sides: Sequence[str]) -> bytes:
    """Of a text its `key_of`; of a pair one that is equal where those of both sides are."""
    keys = [*map(key_of, sides)]
    return keys[0] if len(keys) == 1 else _digest(b"".join(keys))


def shingles(text: str) -> set[bytes]:
    """The runs of `SHINGLE` characters of a text in lower case; a shorter text is its own."""
    text = " ".join(text.casefold().split())
    starts = range(max(1, len(text) - SHINGLE + 1))
    return {text[start : start + SHINGLE].encode() for start in starts}


def signature(text: str) -> np.ndarray:
    """datasketch's MinHash [PERMUTATIONS]. Raises UserError without datasketch."""
    minhash = package("datasketch", "near duplicates").MinHash
    sketch = minhash(num_perm=PERMUTATIONS, permutations=_permutations(), scheme="affine32")
    # Sorted, since sets of bytes have an order of each process's own.
    sketch.update_batch(sorted(shingles(text)))
    return sketch.hashvalues


@functools.cache
def _permutations():
    # Drawn once: drawing them costs more than hashing a sentence.
    minhash = package("datasketch", "near duplicates").MinHash
    return minhash(num_perm=PERMUTATIONS, scheme="affine32").permutations


def near_later(signatures: np.ndarray, threshold: float) -> np.ndarray:
    """Which of the texts, in their order, repeat an earlier one: bool [N] of signatures [N,
    PERMUTATIONS]. Of texts that share a band each that is at least `threshold` similar, by its
    signature, to an earlier one that stays in this band."""
    later = np.zeros(len(signatures), bool)
    width = PERMUTATIONS // BANDS
    for begin in range(0, PERMUTATIONS, width):
        band = signatures[:, begin : begin + width]
        _, group, counts = np.unique(band, axis=0, return_inverse=True, return_counts=True)
        # Almost every band is of one text alone.
        group = group.reshape(-1)
        shared = np.flatnonzero(counts[group] > 1)
        shared = shared[np.argsort(group[shared], kind="stable")]
        starts = np.flatnonzero(np.diff(group[shared], prepend=-1))
        for rows in np.split(shared, starts[1:]):
            kept: list[np.ndarray] = []
            for row in rows:
                values = signatures[row]
                if kept and (np.stack(kept) == values).mean(axis=1).max() >= threshold:
                    later[row] = True
                else:
                    kept.append(values)
    return later
