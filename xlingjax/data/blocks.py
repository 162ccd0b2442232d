"""Text of one language, or of one pair, in blocks of as many lines as a shard of the token cache.

A block is what is looked at in one piece: rows are planned over it and read from it. A shard of
which every line is read is a block as it stands. Of short files, and where lines are held out,
blocks are written beside the shards, so that a language in ten thousand files is read from as many
places as one in one file. What is known of all blocks stands in an index: opening text that was
opened before reads that alone, and no token.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.holdout import BLOCK, held_out_of
from xlingjax.data.sealed import (
    Damaged,
    index_at,
    is_whole,
    read_array,
    remove,
    say_mended,
    unmendable,
    write_array,
    write_index,
)
from xlingjax.data.text.texts import Pair, Text
from xlingjax.data.token_cache import (
    SHARD_LINES,
    TokenFile,
    cache_folder,
    failing,
    ids_behind_end,
    mending,
    read_shard,
    remove_shard,
    shard_is_written,
    shard_stem,
    write_shard,
    written,
)
from xlingjax.data.tokenise import tokenise
from xlingjax.data.tokens import Records, Tokens, name_of
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

# Part of every name: another form of index leaves the old files alone.
FORMAT = 2
_MENDING = threading.RLock()
_FILES_MENDED = 8
"""In one piece of reading."""
_DOCUMENT_BREAK = np.zeros(1, np.int32)
"""A line of no tokens ends a document: the last sentence of one file and the first of the next are
not neighbours."""


@dataclasses.dataclass(frozen=True)
class Block:
    """lines: how many; sentences and tokens: of each side; shards: of each side, the name of its
    shard; ends: whether a document ends behind it."""

    lines: int
    sentences: tuple[int, ...]
    tokens: tuple[int, ...]
    shards: tuple[str, ...]
    ends: bool

    def records(self, languages: tuple[str, ...]) -> Records:
        sides = []
        for name in self.shards:
            side = read_shard(cache_folder() / name)
            lengths = side.lengths
            if self.ends:
                lengths = np.concatenate([lengths, _DOCUMENT_BREAK])
            sides.append(Tokens(side.ids, lengths))
        return Records(languages, tuple(sides))

    def ids(self, side: int) -> np.ndarray:
        """[1 + T]: the ids of a side behind a first `</s>`."""
        return ids_behind_end(cache_folder() / self.shards[side])


@dataclasses.dataclass(frozen=True)
class BlockText:
    """Text of one language, of one pair, or of a pair with negatives.

    key: equal keys, equal text; content_hash: that of its lines and ids; counts: int64 [V], how
    often each token stands in it.
    """

    languages: tuple[str, ...]
    key: str
    content_hash: str
    blocks: tuple[Block, ...]
    counts_path: Path
    remake: Callable[[], Any] | None = dataclasses.field(default=None, compare=False)
    """Makes again what of it is not on disk; None: only a new start does."""

    @property
    def name(self) -> str:
        return name_of(self.languages)

    @property
    def sides(self) -> int:
        return len(self.languages)

    @property
    def lines(self) -> int:
        return sum(block.lines for block in self.blocks)

    @property
    def sentences(self) -> tuple[int, ...]:
        """Of each side."""
        return tuple(np.sum([block.sentences for block in self.blocks], axis=0))

    def counts(self) -> np.ndarray:
        return self._whole(lambda: read_array(self.counts_path))

    def of_block(self, number: int) -> Records:
        return self._whole(lambda: self.blocks[number].records(self.languages))

    def ids(self, number: int, side: int) -> np.ndarray:
        """As `Block.ids`."""
        return self._whole(lambda: self.blocks[number].ids(side))

    def each(self) -> Iterator[Records]:
        """The records of each block."""
        for number in range(len(self.blocks)):
            yield self.of_block(number)

    def _whole(self, read: Callable[[], Any]) -> Any:
        """What `read` gives; where a file of the cache is damaged it is made again first, and that
        is said. Raises UserError where it cannot be."""
        try:
            return read()
        except (Damaged, FileNotFoundError):
            pass
        # Batches are made by several threads: one mends, and the others find it mended.
        with _MENDING:
            for _ in range(_FILES_MENDED):
                try:
                    return read()
                except Damaged as fault:
                    remove_shard(fault)
                    if self.remake is None:
                        raise unmendable(fault) from None
                    say_mended(fault)
                    last = fault
                except FileNotFoundError as error:
                    last = Damaged(Path(error.filename), "it is missing")
                    if self.remake is None:
                        raise unmendable(last) from None
                self.remake()
        raise failing(last)

    def records(self) -> Records:
        """All of it in memory."""
        sides: list[list[Tokens]] = [[] for _ in self.languages]
        for records in self.each():
            for parts, side in zip(sides, records.sides, strict=True):
                parts.append(side)
        tokens = []
        for parts in sides:
            ids = np.concatenate([part.ids for part in parts])
            lengths = np.concatenate([part.lengths for part in parts])
            tokens.append(Tokens(ids, lengths))
        return Records(self.languages, tuple(tokens))


@dataclasses.dataclass(frozen=True)
class _Piece:
    """Lines of one shard of a file, or of aligned files: those of `mask`; None: all of them. ends:
    whether a document ends behind it."""

    files: tuple[TokenFile, ...]
    number: int
    mask: np.ndarray | None
    ends: bool

    @property
    def lines(self) -> int:
        if self.mask is None:
            return self.files[0].lines[self.number]
        return int(self.mask.sum())

    def side(self, side: int) -> Tokens:
        tokens = self.files[side].shard(self.number)
        if self.mask is None:
            return tokens
        return tokens.keep(self.mask)


def text_blocks(
    texts: Sequence[Text], vocabulary: Vocabulary, holdout: float = 0.0, held: bool = False
) -> BlockText:
    """All lines of one language, or the held-out (`held`) or other part of them. Raises UserError
    if none is left."""
    languages = (texts[0].language,)
    sides = [(text,) for text in texts]
    return mending(lambda: _blocks(languages, texts, sides, vocabulary, holdout, held))


def pair_blocks(
    pairs: Sequence[Pair], vocabulary: Vocabulary, holdout: float = 0.0, held: bool = False
) -> BlockText:
    """All aligned lines of one pair of languages, as `text_blocks`. Raises UserError: unequal
    lengths, none left."""
    languages = pairs[0].languages
    sides = [pair.sides for pair in pairs]
    return mending(lambda: _blocks(languages, pairs, sides, vocabulary, holdout, held))


def _blocks(
    languages: tuple[str, ...],
    files: Sequence[Text] | Sequence[Pair],
    sides: Sequence[tuple[Text, ...]],
    vocabulary: Vocabulary,
    holdout: float,
    held: bool,
) -> BlockText:
    keys = [[text.key for text in of_file] for of_file in sides]
    # Which short files give held-out lines goes by the order of their names.
    order = []
    if holdout:
        order = [str(of_file[0].path) for of_file in sides]
    key = _key(keys, vocabulary, holdout, held, order)
    again = functools.partial(_remade, key, languages, files, sides, vocabulary, holdout, held)
    found = _find(key, languages)
    if found:
        return dataclasses.replace(found, remake=again)
    flat = []
    for of_file in sides:
        flat += of_file
    made = iter(tokenise(flat, vocabulary))
    tokens = []
    for file, of_file in zip(files, sides, strict=True):
        token_files = tuple(next(made) for _ in of_file)
        lines = [sum(one.lines) for one in token_files]
        # Here again, since a cached record does not go through `Pair.lines`.
        if isinstance(file, Pair) and min(lines[:2]) != max(lines[:2]):
            raise file.mismatch(lines[0], lines[1])
        tokens.append(token_files)
    pieces = _pieces(files, tokens, holdout, held)
    text = blocks_of(languages, key, pieces, vocabulary)
    _require_text(text, [of_file[0].path for of_file in sides], held)
    return dataclasses.replace(text, remake=again)


def _remade(key: str, *request: Any) -> BlockText:
    """The text once more, with what is missing of it."""
    _index_path(key).unlink(missing_ok=True)
    return mending(lambda: _blocks(*request))


def blocks_of_files(
    languages: tuple[str, ...], files: Sequence[TokenFile], vocabulary: Vocabulary, what: str
) -> BlockText:
    """The aligned token files of one text, a side each. Raises UserError where a side has no
    text."""
    key = _key([[file.stem.name for file in files]], vocabulary, 0.0, False, [])
    text = _find(key, languages)
    if text is None:
        pieces = []
        for number in range(len(files[0].lines)):
            pieces.append(_Piece(tuple(files), number, None, ends=False))
        try:
            text = blocks_of(languages, key, pieces, vocabulary)
        except Damaged as fault:
            remove_shard(fault)
            raise unmendable(fault) from None
    _require_text(text, [Path(what)], False)
    return text


def _key(*parts: object) -> str:
    spelled = [part.sha256 if isinstance(part, Vocabulary) else part for part in parts]
    identity = json.dumps([FORMAT, SHARD_LINES, *spelled])
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def _pieces(
    files: Sequence[Text] | Sequence[Pair],
    tokens: Sequence[tuple[TokenFile, ...]],
    holdout: float,
    held: bool,
) -> list[_Piece]:
    """What is read of each file, shard for shard."""
    line_counts = [sum(of_file[0].lines) for of_file in tokens]
    # One mask for all sides, so that they stay aligned.
    masks = held_out_of(files, line_counts, holdout)
    pieces = []
    for of_file, held_mask in zip(tokens, masks, strict=True):
        mask = held_mask == held
        first = 0
        for number, lines in enumerate(of_file[0].lines):
            of_shard = mask[first : first + lines]
            first += lines
            if of_shard.all():
                of_shard = None
            ends_file = number + 1 == len(of_file[0].lines)
            pieces.append(_Piece(of_file, number, of_shard, ends_file))
    return pieces


def blocks_of(
    languages: tuple[str, ...], key: str, pieces: Sequence[_Piece], vocabulary: Vocabulary
) -> BlockText:
    """Blocks of the pieces one after the other, and their index."""
    blocks = []
    hashes = []
    counts_V = np.zeros(vocabulary.size, np.int64)
    for number, of_block in enumerate(_grouped(pieces)):
        block = _block(key, number, of_block, len(languages), vocabulary)
        records = block.records(languages)
        hashes.append(records.content_hash())
        for side in records.sides:
            counts_V += np.bincount(side.ids, minlength=vocabulary.size)
        blocks.append(block)
    # Of one block, the hash of its text; so a run of before there were blocks goes on.
    content_hash = hashes[0]
    if len(hashes) > 1:
        content_hash = hashlib.sha256("".join(hashes).encode()).hexdigest()
    index = {
        "content_hash": content_hash,
        "blocks": [dataclasses.asdict(block) for block in blocks],
    }
    with written(cache_folder()):
        write_array(_counts_path(key), counts_V)
        write_index(_index_path(key), index)
    return BlockText(languages, key, content_hash, tuple(blocks), _counts_path(key))


def _index_path(key: str) -> Path:
    return cache_folder() / f"{key}.blocks.json"


def _counts_path(key: str) -> Path:
    return cache_folder() / f"{key}.counts.npy"


def _find(key: str, languages: tuple[str, ...]) -> BlockText | None:
    """The text of an index; None where there is none, or files of it were deleted or have not the
    size that they tell."""
    index = index_at(_index_path(key))
    if index is None:
        return None
    blocks = []
    for one in index["blocks"]:
        block = Block(
            one["lines"],
            tuple(one["sentences"]),
            tuple(one["tokens"]),
            tuple(one["shards"]),
            one["ends"],
        )
        for name in block.shards:
            if not shard_is_written(cache_folder() / name):
                return None
        blocks.append(block)
    if not is_whole(_counts_path(key)):
        remove(Damaged(_counts_path(key), "another size"), _counts_path(key))
        return None
    return BlockText(languages, key, index["content_hash"], tuple(blocks), _counts_path(key))


def _grouped(pieces: Sequence[_Piece]) -> Iterator[list[_Piece]]:
    """The pieces of each block: as many as have room, in their order."""
    group: list[_Piece] = []
    lines = 0
    for piece in pieces:
        if group and lines + piece.lines > SHARD_LINES:
            yield group
            group = []
            lines = 0
        group.append(piece)
        lines += piece.lines
    yield group


def _block(
    key: str, number: int, pieces: Sequence[_Piece], sides: int, vocabulary: Vocabulary
) -> Block:
    last = pieces[-1]
    names = []
    if len(pieces) == 1 and last.mask is None:
        names = [shard_stem(file.stem, last.number).name for file in last.files]
    else:
        for side in range(sides):
            stem = cache_folder() / f"{key}.{number:05}.{side}"
            # Kept from a run that was cut off: its key is that of its content.
            if not shard_is_written(stem):
                _write(stem, pieces, side, vocabulary)
            names.append(stem.name)
    lines = 0
    sentences = []
    tokens = []
    for name in names:
        lengths = read_shard(cache_folder() / name).lengths
        lines = int(lengths.size)
        sentences.append(int(np.count_nonzero(lengths)))
        tokens.append(int(lengths.sum(dtype=np.int64)))
    return Block(lines, tuple(sentences), tuple(tokens), tuple(names), last.ends)


def _write(stem: Path, pieces: Sequence[_Piece], side: int, vocabulary: Vocabulary) -> None:
    """One side of a block of several pieces, with a document break between two files."""
    lengths = []
    for piece in pieces:
        lengths.append(np.array(piece.side(side).lengths))
        if piece.ends and piece is not pieces[-1]:
            lengths.append(_DOCUMENT_BREAK)
    # Opened anew one by one: there may be more files than a process may hold open.
    ids = (piece.side(side).ids for piece in pieces)
    write_shard(stem, ids, np.concatenate(lengths), vocabulary)


def _require_text(text: BlockText, paths: Sequence[Path], held: bool) -> None:
    """Raises UserError where a side has no text."""
    if min(text.sentences) > 0:
        return
    more = ""
    if len(paths) > 1:
        more = f" and {len(paths) - 1} more files"
    if held:
        raise UserError(
            f"no {text.name} text is held out: the share takes no block of {BLOCK} lines of"
            f" {paths[0]}{more}; raise holdout or give held-out files"
        )
    raise UserError(f"empty corpus: no {text.name} text in {paths[0]}{more}")
