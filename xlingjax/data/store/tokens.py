"""Text as token ids: of consecutive lines, and of aligned lines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from xlingjax.data.vocabulary.sentencepiece import Vocabulary


@dataclass(frozen=True)
class Tokens:
    """Ids of consecutive lines. Each line ends in `</s>`, which its length counts; a blank line has
    length 0.

    ids: integers [T], lengths: int32 [lines], sum of lengths = T.
    """

    ids: np.ndarray
    lengths: np.ndarray

    @property
    def sentences(self) -> int:
        return int(np.count_nonzero(self.lengths))

    def keep(self, lines: np.ndarray) -> Tokens:
        """The lines where the boolean mask is true."""
        if lines.all():
            return self
        return Tokens(
            # Ids lie one after the other, so a line's mask is repeated for each of its ids.
            self.ids[np.repeat(lines, self.lengths)],
            self.lengths[lines],
        )


@dataclass(frozen=True)
class Records:
    """All text of one language (`sides` of length 1), of one pair (2 aligned sides, in the order of
    `languages`), or of a pair with negatives (3); or a block of it."""

    languages: tuple[str, ...]
    sides: tuple[Tokens, ...]

    @property
    def name(self) -> str:
        return language_name(self.languages)

    def content_hash(self) -> str:
        digest = hashlib.sha256()
        # Lengths as well: the same ids cut into other lines are other text.
        for side in self.sides:
            digest.update(np.ascontiguousarray(side.lengths).tobytes())
            # As int32, so that the hash does not depend on how wide the cache stores them.
            digest.update(np.ascontiguousarray(side.ids, dtype=np.int32).tobytes())
        return digest.hexdigest()


def language_name(languages: Sequence[str]) -> str:
    """What text in these languages is called in weights and tables."""
    return "-".join(sorted({*languages}))


def id_dtype(vocabulary: Vocabulary) -> np.dtype:
    """Two bytes per token where the vocabulary allows it."""
    return np.dtype(np.uint16 if vocabulary.size <= 1 << 16 else np.int32)


def joined(chunks: Iterable[tuple[np.ndarray, np.ndarray]], vocabulary: Vocabulary) -> Tokens:
    """One `Tokens` of chunks (ids, lengths)."""
    dtype = id_dtype(vocabulary)
    # An empty part first, since there may be no chunk.
    chunks = [(np.zeros(0, dtype), np.zeros(0, np.int32)), *chunks]
    ids = np.concatenate([ids.astype(dtype) for ids, _ in chunks])
    return Tokens(ids, np.concatenate([lengths for _, lengths in chunks]))


def end_sentences(
    ids: np.ndarray, lengths: np.ndarray, eos_id: int
) -> tuple[np.ndarray, np.ndarray]:
    """Puts `</s>` after every line that has pieces."""
    # Blank lines stay without an end, since a length of 0 parts documents.
    full = lengths > 0
    ends = np.cumsum(lengths)[full]
    return np.insert(ids, ends, eos_id), (lengths + full).astype(np.int32)
