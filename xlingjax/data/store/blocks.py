"""Text of one language, or of one pair, in blocks of as many lines as a shard of tokens.

A block is what is looked at in one piece: rows are planned over it and read from it. A shard of
which every line is read is a block as it stands. Of short files, and where lines are held out,
blocks are entries beside the shards, so that a language in ten thousand files is read from as many
places as one in one file. What is known of all blocks is an entry too: opening text that was
opened before reads that alone, and no token.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from xlingjax.data.holdout import BLOCK, held_out_of
from xlingjax.data.store.entries import Writer, folder_of, get, name_of, read
from xlingjax.data.store.tokenise import (
    SHARD_LINES,
    SHARDS,
    TokenFile,
    read_shard,
    tokenise,
    write_shard,
)
from xlingjax.data.store.tokens import Records, Tokens, language_name
from xlingjax.data.text.texts import Pair, Text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

FORMAT = 4
"""Part of every name: another form of block leaves the old ones alone."""
_DOCUMENT_BREAK = np.zeros(1, np.int32)
"""A line of no tokens ends a document: the last sentence of one file and the first of the next are
not neighbours."""


@dataclasses.dataclass(frozen=True)
class Block:
    """lines: how many; sentences: of each side; shards: of each side, the name of its
    entry; ends: whether a document ends behind it."""

    lines: int
    sentences: Sequence[int]
    shards: Sequence[str]
    ends: bool


@dataclasses.dataclass(frozen=True)
class BlockText:
    """Text of one language, of one pair, or of a pair with negatives.

    key: equal keys, equal text; content_hash: that of its lines and ids.
    """

    languages: tuple[str, ...]
    key: str
    content_hash: str
    blocks: tuple[Block, ...]

    @property
    def name(self) -> str:
        return language_name(self.languages)

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
        """int64 [V]: how often each token stands in it."""
        return read(folder_of("blocks", self.key), "counts")

    def of_block(self, number: int) -> Records:
        block = self.blocks[number]
        sides = []
        for name in block.shards:
            side = read_shard(name)
            lengths = side.lengths
            if block.ends:
                lengths = np.concatenate([lengths, _DOCUMENT_BREAK])
            sides.append(Tokens(side.ids, lengths))
        return Records(self.languages, tuple(sides))

    def ids(self, number: int, side: int) -> np.ndarray:
        """[1 + T]: the ids of a side of a block behind a first `</s>`."""
        return read(folder_of(SHARDS, self.blocks[number].shards[side]), "ids")

    def each(self) -> Iterator[Records]:
        """The records of each block."""
        return map(self.of_block, range(len(self.blocks)))


# ---- of files ------------------------------------------------------------------------------------


def text_blocks(
    files: Sequence[Text | Pair], vocabulary: Vocabulary, holdout: float = 0.0, held: bool = False
) -> BlockText:
    """All lines of the files of one language, or all aligned lines of one pair; or the held-out
    (`held`) or other part of them. Raises UserError: sides of unequal lengths, no line left."""
    sides = [file.sides if isinstance(file, Pair) else (file,) for file in files]
    keys = [[text.key for text in of_file] for of_file in sides]
    # Which short files give held-out lines goes by the order of their names.
    order = [str(of_file[0].path) for of_file in sides if holdout]
    key = name_of(FORMAT, SHARD_LINES, keys, vocabulary.sha256, holdout, held, order)

    def blocks() -> Iterator[Block]:
        made = iter(tokenise([text for of_file in sides for text in of_file], vocabulary))
        tokens = []
        for file, of_file in zip(files, sides, strict=True):
            token_files = tuple(next(made) for _ in of_file)
            lines = [sum(one.lines) for one in token_files]
            # Here again, since tokens in the store do not go through `Pair.lines`.
            if isinstance(file, Pair) and lines[0] != lines[1]:
                raise file.mismatch(lines[0], lines[1])
            tokens.append(token_files)
        pieces = _pieces(files, tokens, holdout, held)
        return _blocks_of(key, pieces, len(sides[0]), vocabulary)

    text = _opened(files[0].languages, key, blocks, vocabulary)
    _require_text(text, [of_file[0].path for of_file in sides], held)
    return text


def _pieces(
    files: Sequence[Text | Pair],
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
        ends = np.cumsum(of_file[0].lines)
        for number, of_shard in enumerate(np.split(held_mask == held, ends[:-1])):
            chosen = None if of_shard.all() else of_shard
            pieces.append(_Piece(of_file, number, chosen, number + 1 == len(ends)))
    return pieces


def blocks_of_files(
    languages: tuple[str, ...], files: Sequence[TokenFile], vocabulary: Vocabulary, what: str
) -> BlockText:
    """The aligned token files of one text, a side each. Raises UserError where a side has no
    text."""
    key = name_of(FORMAT, [file.shards for file in files], vocabulary.sha256)
    pieces = [_Piece(tuple(files), n, None, ends=False) for n in range(len(files[0].lines))]
    text = _opened(
        languages, key, lambda: _blocks_of(key, pieces, len(files), vocabulary), vocabulary
    )
    _require_text(text, [Path(what)], False)
    return text


def _opened(
    languages: tuple[str, ...],
    key: str,
    blocks: Callable[[], Iterator[Block]],
    vocabulary: Vocabulary,
) -> BlockText:
    """The text that is kept under a key; `blocks` gives its blocks where it is not."""

    def make(writer: Writer) -> None:
        made = []
        digest = hashlib.sha256()
        counts_V = np.zeros(vocabulary.size, np.int64)
        for block in blocks():
            sides = [read_shard(name) for name in block.shards]
            digest.update(Records((), tuple(sides)).content_hash().encode())
            for side in sides:
                counts_V += np.bincount(side.ids, minlength=vocabulary.size)
            made.append(dataclasses.asdict(block))
            writer.needs += [f"{SHARDS}/{name}" for name in block.shards]
        writer.array("counts", counts_V)
        writer.facts = {"content_hash": digest.hexdigest(), "blocks": made}

    facts = get("blocks", key, make).facts
    return BlockText(
        languages, key, facts["content_hash"], tuple(Block(**one) for one in facts["blocks"])
    )


# ---- blocks of pieces ----------------------------------------------------------------------------


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


def _blocks_of(
    key: str, pieces: Sequence[_Piece], sides: int, vocabulary: Vocabulary
) -> Iterator[Block]:
    """The blocks of the pieces, one after the other, made where the store does not have them."""
    for number, group in enumerate(_grouped(pieces)):
        last = group[-1]
        if len(group) == 1 and last.mask is None:
            names = tuple(file.shards[last.number] for file in last.files)
            yield Block(
                last.lines,
                tuple(file.sentences[last.number] for file in last.files),
                names,
                last.ends,
            )
            continue
        entries = []
        for side in range(sides):
            make = functools.partial(_write_block, group, side, vocabulary)
            entries.append(get(SHARDS, name_of(FORMAT, key, number, side), make))
        yield Block(
            entries[0].facts["lines"],
            tuple(entry.facts["sentences"] for entry in entries),
            tuple(entry.folder.name for entry in entries),
            last.ends,
        )


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


def _write_block(
    pieces: Sequence[_Piece], side: int, vocabulary: Vocabulary, writer: Writer
) -> None:
    """One side of a block of several pieces, with a document break between two files."""
    lengths = []
    for piece in pieces:
        lengths.append(np.array(piece.side(side).lengths))
        if piece.ends and piece is not pieces[-1]:
            lengths.append(_DOCUMENT_BREAK)
    # Opened anew one by one: there may be more files than a process may hold open.
    ids = (piece.side(side).ids for piece in pieces)
    write_shard(writer, ids, np.concatenate(lengths), vocabulary)


def _require_text(text: BlockText, paths: Sequence[Path], held: bool) -> None:
    """Raises UserError where a side has no text."""
    if min(text.sentences) > 0:
        return
    more = f" and {len(paths) - 1} more files" if len(paths) > 1 else ""
    if held:
        raise UserError(
            f"no {text.name} text is held out: the share takes no block of {BLOCK} lines of"
            f" {paths[0]}{more}; raise holdout or give held-out files"
        )
    raise UserError(f"empty corpus: no {text.name} text in {paths[0]}{more}")
