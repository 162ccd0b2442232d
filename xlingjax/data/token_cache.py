"""Text as token ids on disk: each file is tokenised once per vocabulary, in shards of a fixed
number of lines that are read through a memory map.

A shard is two files, ids and lengths, named by the hash of what is read (`Text.key`) and of the
vocabulary, and by its number: a changed file, column or vocabulary makes new ones and a moved file
does not. They lie in `$XLINGJAX_CACHE`, by default `~/.cache/xlingjax`. Shards of one number hold
the same lines of both sides of a pair, since they are cut by lines.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from xlingjax.data.cache_folder import cache_root
from xlingjax.data.sealed import (
    Damaged,
    index_at,
    is_whole,
    read_array,
    remove,
    say_mended,
    write_array,
    write_index,
    write_parts,
)
from xlingjax.data.tokens import Tokens, id_dtype
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

# Part of every name: another form of record leaves the old files alone.
FORMAT = 3
SHARD_LINES = 1 << 18
"""Lines of a shard. Text of one language that has no more is planned in one piece, as it was before
there were shards."""

Made = TypeVar("Made")
_FILES_MENDED = 100
"""In one piece of work."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TokenFile:
    """The tokens of one text in the cache. `stem`: what the names of its shards begin with; the
    others: of each shard."""

    stem: Path
    lines: tuple[int, ...]
    sentences: tuple[int, ...]
    tokens: tuple[int, ...]

    def shard(self, number: int) -> Tokens:
        return read_shard(shard_stem(self.stem, number))

    def shards(self) -> Iterator[Tokens]:
        for number in range(len(self.lines)):
            yield self.shard(number)


def cache_folder() -> Path:
    return cache_root() / "tokens"


def stem_of(key: str, vocabulary: Vocabulary) -> Path:
    """Where the shards of a text lie."""
    # By content, not by path: a corpus that was moved or copied is not tokenised again, and one
    # that was changed is.
    identity = f"{FORMAT}:{SHARD_LINES}:{key}:{vocabulary.sha256}"
    name = hashlib.sha256(identity.encode()).hexdigest()[:32]
    return cache_folder() / name


def shard_stem(stem: Path, number: int) -> Path:
    return stem.with_name(f"{stem.name}.{number:05}")


def read_shard(stem: Path) -> Tokens:
    """The lines of one shard; ids are read through a map where there are many. Raises Damaged."""
    ids = ids_behind_end(stem)[1:]
    lengths = _array(_lengths_path(stem))
    if int(lengths.sum(dtype=np.int64)) != ids.size:
        raise Damaged(_lengths_path(stem), "its ids are of another text")
    return Tokens(ids, lengths)


def ids_behind_end(stem: Path) -> np.ndarray:
    """[1 + T]: the ids of a shard behind a first `</s>`. Raises Damaged."""
    return _array(_ids_path(stem))


def _array(path: Path) -> np.ndarray:
    try:
        return read_array(path)
    except FileNotFoundError:
        raise Damaged(path, "it is missing") from None


def shard_is_written(stem: Path) -> bool:
    """Whether it is there; one whose files have not the size that they tell is removed, which is
    said."""
    for path in (_ids_path(stem), _lengths_path(stem)):
        if not path.exists():
            return False
        if not is_whole(path):
            fault = Damaged(path, "another size or header than was written")
            say_mended(fault)
            remove_shard(fault)
            return False
    return True


def remove_shard(fault: Damaged) -> None:
    """Removes the shard that a damaged file is of, and the index of its text. Raises UserError."""
    name = fault.path.name.removesuffix(".npy")
    name = name.removesuffix(".ids").removesuffix(".lengths")
    stem = fault.path.with_name(name)
    index = fault.path.with_name(f"{name.rpartition('.')[0]}.json")
    remove(fault, fault.path, _ids_path(stem), _lengths_path(stem), index)


def mending(make: Callable[[], Made]) -> Made:
    """What `make` gives, which writes the shards that are missing and may find some that an earlier
    run left damaged: they are removed first, which is said. Raises UserError."""
    for _ in range(_FILES_MENDED):
        try:
            return make()
        except Damaged as fault:
            say_mended(fault)
            remove_shard(fault)
            last = fault
    raise failing(last)


def failing(fault: Damaged) -> UserError:
    """For files that are made again and damaged again."""
    return UserError(f"{fault} again and again: is the disk failing? Set XLINGJAX_CACHE to another")


def _ids_path(stem: Path) -> Path:
    return stem.with_name(f"{stem.name}.ids.npy")


def _lengths_path(stem: Path) -> Path:
    return stem.with_name(f"{stem.name}.lengths.npy")


def _index_path(stem: Path) -> Path:
    return stem.with_name(f"{stem.name}.json")


def find(stem: Path) -> TokenFile | None:
    """What the cache has of a text; None where it is not complete."""
    index = index_at(_index_path(stem))
    # Not there, or of a run that was cut off in the middle of it: it is made again.
    if index is None:
        return None
    for number in range(len(index["lines"])):
        if not shard_is_written(shard_stem(stem, number)):
            return None
    return TokenFile(stem, tuple(index["lines"]), tuple(index["sentences"]), tuple(index["tokens"]))


def complete(stem: Path, shards: int, what: str) -> TokenFile:
    """Writes the index of a text, all shards of which are written."""
    lines = []
    sentences = []
    tokens = []
    for number in range(shards):
        lengths = _array(_lengths_path(shard_stem(stem, number)))
        lines.append(int(lengths.size))
        sentences.append(int(np.count_nonzero(lengths)))
        tokens.append(int(lengths.sum(dtype=np.int64)))
    index = {"lines": lines, "sentences": sentences, "tokens": tokens}
    with written(stem.parent):
        write_index(_index_path(stem), index)
    log.info("tokenised %s: %d tokens in %s", what, sum(tokens), stem)
    return TokenFile(stem, tuple(lines), tuple(sentences), tuple(tokens))


class ShardWriter:
    """Writes lines, some at a time, as shards of `SHARD_LINES` of a stem, from number `first` on.
    Shards that are written already are kept as they are."""

    def __init__(self, stem: Path, vocabulary: Vocabulary, first: int = 0):
        self._stem = stem
        self._vocabulary = vocabulary
        self.count = first
        self._ids: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = []
        self._lines = 0

    def add(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        """ids: of all lines, one after the other; lengths: of each line. Raises UserError: no
        room."""
        while self._lines + lengths.size >= SHARD_LINES:
            taken = SHARD_LINES - self._lines
            tokens = int(lengths[:taken].sum(dtype=np.int64))
            self._take(ids[:tokens], lengths[:taken])
            self._write()
            ids = ids[tokens:]
            lengths = lengths[taken:]
        if lengths.size:
            self._take(ids, lengths)

    def close(self) -> int:
        """Writes what is left, and one shard of nothing where there was no line; the number of
        shards with those before the first."""
        if self._lines or not self.count:
            self._write()
        return self.count

    def _take(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        self._ids.append(ids.astype(id_dtype(self._vocabulary)))
        self._lengths.append(lengths)
        self._lines += lengths.size

    def _write(self) -> None:
        stem = shard_stem(self._stem, self.count)
        if not shard_is_written(stem):
            none = np.zeros(0, np.int32)
            lengths = np.concatenate([none, *self._lengths])
            write_shard(stem, self._ids, lengths, self._vocabulary)
        self.count += 1
        self._ids = []
        self._lengths = []
        self._lines = 0


def write_shard(
    stem: Path, ids: Iterable[np.ndarray], lengths: np.ndarray, vocabulary: Vocabulary
) -> None:
    """Writes a shard of the ids, part for part, behind one `</s>`: so the slice that begins a token
    early is `</s> x </s>` for its first sentence, too. Raises UserError: no room."""
    dtype = id_dtype(vocabulary)
    tokens = 1 + int(lengths.sum(dtype=np.int64))
    with written(stem.parent):
        stem.parent.mkdir(parents=True, exist_ok=True)
        write_array(_lengths_path(stem), lengths.astype(np.int32))
        end = np.array([vocabulary.eos_id], dtype)
        # Last: where the ids are, the shard is whole.
        parts = itertools.chain([end], ids)
        write_parts(_ids_path(stem), dtype, (tokens,), parts)


@contextlib.contextmanager
def written(folder: Path) -> Iterator[None]:
    """Around writing to the cache. Raises UserError where the disk refuses."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        remedy = "set XLINGJAX_CACHE to a folder with room"
        if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.ELOOP):
            remedy = "remove what stands there, or set XLINGJAX_CACHE to another folder"
        raise UserError(
            f"cannot write the token cache in {folder}: {error.strerror or error}; {remedy}"
        ) from None


def named_by_content(file: TokenFile, vocabulary: Vocabulary) -> TokenFile:
    """The same text under the hash of its tokens, where nothing else names it."""
    digest = hashlib.sha256()
    for tokens in file.shards():
        digest.update(np.ascontiguousarray(tokens.lengths).data)
        digest.update(np.ascontiguousarray(tokens.ids).data)
    stem = stem_of(f"content:{digest.hexdigest()}", vocabulary)
    with written(stem.parent):
        for number in range(len(file.lines)):
            old = shard_stem(file.stem, number)
            new = shard_stem(stem, number)
            os.replace(_lengths_path(old), _lengths_path(new))
            os.replace(_ids_path(old), _ids_path(new))
        os.replace(_index_path(file.stem), _index_path(stem))
    return replace(file, stem=stem)
