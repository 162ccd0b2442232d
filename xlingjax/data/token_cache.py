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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xlingjax.data.holdout import BLOCK, held_out_of
from xlingjax.data.texts import Pair, Text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

# Part of every name: another form of record leaves the old files alone.
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
        return Tokens(
            # Ids lie one after the other, so a line's mask is repeated for each of its ids.
            self.ids[np.repeat(lines, self.lengths)],
            self.lengths[lines],
        )


def concatenate(parts: Iterable[Tokens], sizes: Sequence[int]) -> Tokens:
    """One after the other, with a document break between them; `sizes` are their tokens. Each part
    is let go before the next is taken: a corpus may be of more files than a process may hold
    open, and would stand in memory twice."""
    # A line of no tokens ends a document: the last sentence of one file and the first of the next
    # are not neighbours.
    document_break = np.zeros(1, np.int32)
    ids = np.zeros(0, np.uint16)
    lengths = []
    begin = 0
    for part, size in zip(parts, sizes, strict=True):
        if not begin:
            ids = np.empty(sum(sizes), part.ids.dtype)
        ids[begin : begin + size] = part.ids
        begin += size
        # In memory, and no map of a file.
        lengths.append(np.array(part.lengths))
        lengths.append(document_break)
    return Tokens(ids, np.concatenate(lengths))


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
        # Lengths as well: the same ids cut into other lines are other text.
        for side in self.sides:
            digest.update(np.ascontiguousarray(side.lengths).tobytes())
            # As int32, so that the hash does not depend on how wide the cache stores them.
            digest.update(
                np.ascontiguousarray(side.ids, dtype=np.int32).tobytes(),
            )
        return digest.hexdigest()


def cache_folder() -> Path:
    root = os.environ.get("XLINGJAX_CACHE")
    if not root:
        root = Path.home() / ".cache" / "xlingjax"
    return Path(root) / "tokens"


def id_dtype(vocabulary: Vocabulary) -> np.dtype:
    """Two bytes per token where the vocabulary allows it."""
    if vocabulary.size <= 1 << 16:
        return np.dtype(np.uint16)
    return np.dtype(np.int32)


def _files(key: str, vocabulary: Vocabulary) -> tuple[Path, Path]:
    """Where the ids and the lengths of a record lie."""
    # By content, not by path: a corpus that was moved or copied is not tokenised again, and one
    # that was changed is.
    identity = f"{FORMAT}:{key}:{vocabulary.sha256}"
    name = hashlib.sha256(identity.encode()).hexdigest()[:32]
    folder = cache_folder()
    return folder / f"{name}.ids.npy", folder / f"{name}.lengths.npy"


def is_cached(text: Text, vocabulary: Vocabulary) -> bool:
    """Whether `tokens` would read this text from disk without tokenising it."""
    return all(map(Path.is_file, _files(text.key, vocabulary)))


def tokens(text: Text, vocabulary: Vocabulary, threads: int = 2) -> Tokens:
    """The ids of a text, tokenised now or read from the cache. Raises UserError: unreadable text,
    no room to write."""

    def tokenise() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return _tokenise(text.lines(), vocabulary, threads)

    return load_or_write(text.key, vocabulary, tokenise, str(text.path))


def load_or_write(
    key: str,
    vocabulary: Vocabulary,
    make: Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]],
    what: str,
) -> Tokens:
    """Reads the record files of `key`, or makes them from the chunks of `make()`: pairs (ids,
    lengths).

    The files appear under their names only when complete. Raises UserError when they cannot be
    written.
    """
    ids_path, lengths_path = _files(key, vocabulary)
    # Of a run that was killed between the two, one may be there; both are written again.
    if not ids_path.is_file() or not lengths_path.is_file():
        # Outside of `try`: an error of the text is not one of the cache.
        record = joined(make(), vocabulary)
        try:
            ids_path.parent.mkdir(parents=True, exist_ok=True)
            # Each appears whole or not at all; a record counts as written when both are there.
            _write(lengths_path, record.lengths)
            _write(ids_path, record.ids)
        except OSError as error:
            raise UserError(
                f"cannot write the token cache in {cache_folder()}: {error.strerror or error}; "
                "set XLINGJAX_CACHE to a folder with room",
            ) from None
        megabytes = record.ids.nbytes / 1e6
        log.info(
            "tokenised %s: %d tokens, %.1f MB in %s",
            what,
            record.ids.size,
            megabytes,
            ids_path,
        )
    # Read back even when just made, so that the ids in memory can be given up for the map.
    return Tokens(_load(ids_path), _load(lengths_path))


def _load(path: Path) -> np.ndarray:
    # Small files are read whole: a map of each would keep a file open, and there may be many.
    if path.stat().st_size <= 1 << 16:
        return np.load(path)
    # Read-only: the file is shared by every run with this text.
    return np.load(path, mmap_mode="r")


def joined(
    chunks: Iterable[tuple[np.ndarray, np.ndarray]],
    vocabulary: Vocabulary,
) -> Tokens:
    """One `Tokens` of chunks (ids, lengths)."""
    dtype = id_dtype(vocabulary)
    # An empty part first, since there may be no chunk.
    all_ids = [np.zeros(0, dtype)]
    all_lengths = [np.zeros(0, np.int32)]
    for ids, lengths in chunks:
        all_ids.append(ids.astype(dtype))
        all_lengths.append(lengths)
    return Tokens(np.concatenate(all_ids), np.concatenate(all_lengths))


def _write(path: Path, array: np.ndarray) -> None:
    # Another process may write the same record: each has a file of its own, and renaming is atomic.
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with open(partial, "wb") as file:
            np.save(file, array, allow_pickle=False)
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _tokenise(
    lines: Iterable[str],
    vocabulary: Vocabulary,
    threads: int,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    # In chunks, since a corpus may be larger than memory as text.
    lines = iter(lines)
    while chunk := list(itertools.islice(lines, CHUNK_LINES)):
        ids, lengths = vocabulary.encode_lines(chunk, threads)
        yield end_sentences(ids, lengths, vocabulary.eos_id)


def end_sentences(
    ids: np.ndarray,
    lengths: np.ndarray,
    eos_id: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Puts `</s>` after every line that has pieces."""
    # Blank lines stay without an end, since a length of 0 parts documents.
    full = lengths > 0
    ends = np.cumsum(lengths)[full]
    return np.insert(ids, ends, eos_id), (lengths + full).astype(np.int32)


def text_records(
    texts: Sequence[Text],
    vocabulary: Vocabulary,
    holdout: float = 0.0,
    held: bool = False,
) -> Records:
    """All lines of one language, or the held-out (`held`) or other part of them. Raises UserError
    if none is left."""
    # Whole files are cached, not parts: another share of held-out lines tokenises nothing.
    line_counts = [tokens(text, vocabulary).lengths.size for text in texts]
    masks = held_out_of(texts, line_counts, holdout)
    side = _kept(texts, vocabulary, [mask == held for mask in masks])
    records = Records((texts[0].language,), (side,))
    return _not_empty(records, [text.path for text in texts], held)


def _kept(
    texts: Sequence[Text],
    vocabulary: Vocabulary,
    masks: Sequence[np.ndarray],
) -> Tokens:
    """Of each text the lines of its mask."""
    sizes = []
    for text, mask in zip(texts, masks, strict=True):
        lengths = tokens(text, vocabulary).lengths
        sizes.append(int(lengths[mask].sum(dtype=np.int64)))
    parts = (
        tokens(text, vocabulary).keep(mask)
        for text, mask in zip(texts, masks, strict=True)
    )
    return concatenate(parts, sizes)


def pair_records(
    pairs: Sequence[Pair],
    vocabulary: Vocabulary,
    holdout: float = 0.0,
    held: bool = False,
) -> Records:
    """All aligned lines of one pair of languages, as `text_records`. Raises UserError: unequal
    lengths, none left."""
    line_counts = []
    for pair in pairs:
        counts = []
        for text in pair.sides:
            counts.append(tokens(text, vocabulary).lengths.size)
        # Here again, since a cached record does not go through `Pair.lines`.
        if counts[0] != counts[1]:
            raise pair.mismatch(counts[0], counts[1])
        line_counts.append(counts[0])
    held_masks = held_out_of(pairs, line_counts, holdout)
    # One mask for all sides, so that they stay aligned.
    masks = [mask == held for mask in held_masks]
    sides = []
    for texts in zip(*(pair.sides for pair in pairs), strict=True):
        sides.append(_kept(texts, vocabulary, masks))
    records = Records(pairs[0].languages, tuple(sides))
    return _not_empty(records, [pair.first.path for pair in pairs], held)


def _not_empty(records: Records, paths: Sequence[Path], held: bool) -> Records:
    """The records themselves. Raises UserError where a side has no text."""
    if min(side.sentences for side in records.sides) > 0:
        return records
    more = ""
    if len(paths) > 1:
        more = f" and {len(paths) - 1} more files"
    if held:
        raise UserError(
            f"no {records.name} text is held out: the share takes no block of {BLOCK} lines of"
            f" {paths[0]}{more}; raise holdout or give held-out files",
        )
    raise UserError(f"empty corpus: no {records.name} text in {paths[0]}{more}")
