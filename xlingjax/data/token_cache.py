"""Text as token ids on disk: each file is tokenised once per vocabulary and read back through a
memory map.

A record file is named by the hash of what is read (`Text.key`) and of the vocabulary, so a changed
file, column or vocabulary makes a new one and a moved file does not. They lie in `$XLINGJAX_CACHE`,
by default `~/.cache/xlingjax`.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xlingjax.data.holdout import BLOCK, held_out_of
from xlingjax.data.sources import Pair, Text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

FORMAT = 1
CHUNK_LINES = 8192

log = logging.getLogger(__name__)


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
        return Tokens(self.ids[np.repeat(lines, self.lengths)], self.lengths[lines])


def concatenate(parts: Sequence[Tokens]) -> Tokens:
    """One after the other, with a document break between them."""
    lengths = [array for part in parts for array in (part.lengths, np.zeros(1, np.int32))]
    return Tokens(np.concatenate([part.ids for part in parts]), np.concatenate(lengths))


@dataclass(frozen=True)
class Records:
    """All text of one language (`sides` of length 1), of one pair (2 aligned sides, in the order of
    `languages`), or of a pair with negatives (3)."""

    languages: tuple[str, ...]
    sides: tuple[Tokens, ...]

    @property
    def name(self) -> str:
        return "-".join(sorted({*self.languages}))

    def content_hash(self) -> str:
        digest = hashlib.sha256()
        for side in self.sides:
            digest.update(np.ascontiguousarray(side.lengths).tobytes())
            digest.update(np.ascontiguousarray(side.ids, dtype=np.int32).tobytes())
        return digest.hexdigest()


def cache_folder() -> Path:
    return Path(os.environ.get("XLINGJAX_CACHE") or Path.home() / ".cache" / "xlingjax") / "tokens"


def id_dtype(vocabulary: Vocabulary) -> np.dtype:
    """Two bytes per token where the vocabulary allows it."""
    return np.dtype(np.uint16 if vocabulary.size <= 1 << 16 else np.int32)


def _files(key: str, vocabulary: Vocabulary) -> tuple[Path, Path]:
    name = hashlib.sha256(f"{FORMAT}:{key}:{vocabulary.sha256}".encode()).hexdigest()[:32]
    return cache_folder() / f"{name}.ids.npy", cache_folder() / f"{name}.lengths.npy"


def is_cached(text: Text, vocabulary: Vocabulary) -> bool:
    """Whether `tokens` would read this text from disk without tokenising it."""
    return all(path.is_file() for path in _files(text.key, vocabulary))


def tokens(text: Text, vocabulary: Vocabulary, threads: int = 2) -> Tokens:
    """The ids of a text, tokenised now or read from the cache. Raises UserError: unreadable text,
    no room to write."""
    cached = load_or_write(
        text.key, vocabulary, lambda: _tokenise(text.lines(), vocabulary, threads), str(text.path)
    )
    return cached


def load_or_write(key: str, vocabulary: Vocabulary, make, what: str) -> Tokens:
    """Reads the record files of `key`, or makes them from the chunks of `make()`: pairs (ids,
    lengths).

    The files appear under their names only when complete. Raises UserError when they cannot be
    written.
    """
    paths = _files(key, vocabulary)
    if not all(path.is_file() for path in paths):
        made = joined(make(), vocabulary)
        try:
            paths[0].parent.mkdir(parents=True, exist_ok=True)
            for path, array in zip(reversed(paths), (made.lengths, made.ids), strict=True):
                _write(path, array)
        except OSError as error:
            raise UserError(
                f"cannot write the token cache in {cache_folder()}: {error.strerror or error}; "
                "set XLINGJAX_CACHE to a folder with room"
            ) from None
        log.info(
            "tokenised %s: %d tokens, %.1f MB in %s",
            what,
            made.ids.size,
            made.ids.nbytes / 1e6,
            paths[0],
        )
    ids, lengths = (
        np.load(path, mmap_mode="r" if path.stat().st_size > 1 << 16 else None) for path in paths
    )
    return Tokens(ids, lengths)


def joined(chunks: Iterable[tuple[np.ndarray, np.ndarray]], vocabulary: Vocabulary) -> Tokens:
    """One `Tokens` of chunks (ids, lengths)."""
    empty = (np.zeros(0, id_dtype(vocabulary)), np.zeros(0, np.int32))
    ids, lengths = zip(
        empty,
        *((ids.astype(id_dtype(vocabulary)), lengths) for ids, lengths in chunks),
        strict=True,
    )
    return Tokens(np.concatenate(ids), np.concatenate(lengths))


def _write(path: Path, array: np.ndarray) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with open(partial, "wb") as file:
            np.save(file, array, allow_pickle=False)
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _tokenise(
    lines: Iterable[str], vocabulary: Vocabulary, threads: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    lines = iter(lines)
    while chunk := list(itertools.islice(lines, CHUNK_LINES)):
        yield end_sentences(*vocabulary.encode_lines(chunk, threads), vocabulary.eos_id)


def end_sentences(
    ids: np.ndarray, lengths: np.ndarray, eos_id: int
) -> tuple[np.ndarray, np.ndarray]:
    """Puts `</s>` after every line that has pieces."""
    full = lengths > 0
    ends = np.cumsum(lengths)[full]
    return np.insert(ids, ends, eos_id), (lengths + full).astype(np.int32)


def text_records(
    texts: Sequence[Text], vocabulary: Vocabulary, holdout: float = 0.0, held: bool = False
) -> Records:
    """All lines of one language, or the held-out (`held`) or other part of them. Raises UserError
    if none is left."""
    whole = [tokens(text, vocabulary) for text in texts]
    masks = held_out_of(texts, [part.lengths.size for part in whole], holdout)
    parts = [part.keep(mask == held) for part, mask in zip(whole, masks, strict=True)]
    records = Records((texts[0].language,), (concatenate(parts),))
    return _not_empty(records, [text.path for text in texts], held)


def pair_records(
    pairs: Sequence[Pair], vocabulary: Vocabulary, holdout: float = 0.0, held: bool = False
) -> Records:
    """All aligned lines of one pair of languages, as `text_records`. Raises UserError: unequal
    lengths, none left."""
    whole = []
    for pair in pairs:
        sides = [tokens(side, vocabulary) for side in pair.sides]
        if sides[0].lengths.size != sides[1].lengths.size:
            raise pair.mismatch(sides[0].lengths.size, sides[1].lengths.size)
        whole.append(sides)
    masks = held_out_of(pairs, [sides[0].lengths.size for sides in whole], holdout)
    parts = [
        [side.keep(mask == held) for side in sides]
        for sides, mask in zip(whole, masks, strict=True)
    ]
    records = Records(
        pairs[0].languages, tuple(concatenate(side) for side in zip(*parts, strict=True))
    )
    return _not_empty(records, [pair.first.path for pair in pairs], held)


def _not_empty(records: Records, paths: Sequence[Path], held: bool) -> Records:
    more = f" and {len(paths) - 1} more files" if len(paths) > 1 else ""
    if min(side.sentences for side in records.sides) == 0 and held:
        raise UserError(
            f"no {records.name} text is held out: the share takes no block of {BLOCK} lines of"
            f" {paths[0]}{more}; raise holdout or give held-out files"
        )
    if min(side.sentences for side in records.sides) == 0:
        raise UserError(f"empty corpus: no {records.name} text in {paths[0]}{more}")
    return records
