"""Text as token ids in the store: each file is tokenised once per vocabulary, in shards of a fixed
number of lines, by several processes or in Beam; text of one language or pair is blocks of as many.

A shard is an entry of its own, so that what is cut off goes on where it stood. A file of plain
lines is cut where its shards begin, and each process reads its own part; any other (compressed, a
table) is one piece of work. Shards of one number hold the same lines of both sides of a pair.

A block is what is looked at in one piece: rows are planned over it and read from it. A shard of
which every line is read is a block as it stands. Of short files, and where lines are held out,
blocks are entries beside the shards, so that a language in ten thousand files is read from as many
places as one in one file. What is known of all blocks is an entry too: opening text that was
opened before reads that alone, and no token.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.holdout import BLOCK, held_out_of
from xlingjax.data.store.entries import Entry, Writer, folder_of, get, has, name_of, read
from xlingjax.data.text.files import ENDINGS, Part, line_parts
from xlingjax.data.text.names import file_format
from xlingjax.data.text.texts import Pair, Text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.runtime.workers import default_processes, in_processes


@dataclasses.dataclass(frozen=True)
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

    def numbers(self) -> np.ndarray:
        """uint64 [lines]: a number of each line, by its ids; 0 of an empty line. Of 10^8 lines two
        differing ones have the same number with a probability of 3e-4."""
        ends = np.cumsum(self.lengths)
        begins = ends - self.lengths
        places = 1 + np.arange(self.ids.size) - np.repeat(begins, self.lengths)
        # Sums that wrap around, by differences of the running sum.
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed(self.ids, places))])
        return sums[ends] - sums[begins]


def mixed(ids: np.ndarray, places: np.ndarray) -> np.ndarray:
    """uint64: a number of each token at its place (from 1) in its line; a line's is their sum."""
    mixed = (ids.astype(np.uint64) + 1) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= places.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    # splitmix64's last steps.
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


@dataclasses.dataclass(frozen=True)
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


def joined(chunks: Sequence[Tokens], vocabulary: Vocabulary) -> Tokens:
    """The lines of all chunks, one or more."""
    ids = np.concatenate([chunk.ids for chunk in chunks])
    lengths = np.concatenate([chunk.lengths for chunk in chunks])
    return Tokens(ids.astype(id_dtype(vocabulary)), lengths)


def end_sentences(ids: np.ndarray, lengths: np.ndarray, eos_id: int) -> Tokens:
    """Puts `</s>` after every line that has pieces."""
    # Blank lines stay without an end, since a length of 0 parts documents.
    full = lengths > 0
    ends = np.cumsum(lengths)[full]
    return Tokens(np.insert(ids, ends, eos_id), (lengths + full).astype(np.int32))


FORMAT = 5  # part of every name: another form of shard or block leaves the old ones alone
SHARD_LINES = 1 << 18  # lines of a shard
CHUNK_LINES = 8192
FEW_BYTES = 1 << 24  # text below this is tokenised here: starting processes takes longer
SHARDS = "tokens"  # the kind of entry that shards, and blocks of several, are

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TokenFile:
    """The tokens of one text in the store: of each shard its name, lines, sentences and tokens."""

    shards: list[str]
    lines: list[int]
    sentences: list[int]
    tokens: list[int]

    def shard(self, number: int) -> Tokens:
        return read_shard(self.shards[number])

    def __iter__(self) -> Iterator[Tokens]:
        return map(self.shard, range(len(self.shards)))


def read_shard(name: str) -> Tokens:
    """The lines of a shard; ids are read through a map where there are many."""
    folder = folder_of(SHARDS, name)
    return Tokens(read(folder, "ids")[1:], read(folder, "lengths"))


def write_shard(
    writer: Writer, ids: Iterable[np.ndarray], lengths: np.ndarray, vocabulary: Vocabulary
) -> None:
    """The ids come part for part, and are stored behind one `</s>`: so the slice that begins a
    token early is `</s> x </s>` for the first sentence, too."""
    dtype = id_dtype(vocabulary)
    tokens = int(lengths.sum(dtype=np.int64))
    end = np.array([vocabulary.eos_id], dtype)
    writer.parts("ids", dtype, 1 + tokens, itertools.chain([end], ids))
    writer.array("lengths", lengths.astype(np.int32))
    sentences = int(np.count_nonzero(lengths))
    writer.facts = {"lines": lengths.size, "sentences": sentences, "tokens": tokens}


def of_shards(shards: Iterable[Entry]) -> dict[str, Any]:
    """The facts of a text of these shards."""
    facts: dict[str, Any] = {"shards": [], "lines": [], "sentences": [], "tokens": []}
    for shard in shards:
        facts["shards"].append(shard.folder.name)
        for name, value in shard.facts.items():
            facts[name].append(value)
    return facts


def shard_of(tokens: Tokens, vocabulary: Vocabulary) -> Entry:
    """A shard that nothing but its content names."""
    digest = hashlib.sha256(tokens.lengths.tobytes() + tokens.ids.tobytes())
    name = name_of(FORMAT, "content", digest.hexdigest(), vocabulary.sha256)

    def make(writer: Writer) -> None:
        write_shard(writer, [tokens.ids], tokens.lengths, vocabulary)

    return get(SHARDS, name, make)


@dataclasses.dataclass(frozen=True)
class Work:
    """One shard of a file of lines (`part`), or all of a text (None)."""

    text: Text
    shard: int
    part: Part | None


def do(work: Work, vocabulary: Vocabulary, threads: int = 1) -> list[Entry]:
    """Writes the shards of one piece of work that are not there. Raises UserError."""
    if work.part is not None:
        return [_shard(work.text, work.shard, work.text.lines(work.part), vocabulary, threads)]
    shards = []
    lines = work.text.lines()
    while True:
        # In memory as text: a shard at a time, since a corpus may be larger.
        chunk = list(itertools.islice(lines, SHARD_LINES))
        # An empty file has one shard of nothing.
        if chunk or not shards:
            shards.append(_shard(work.text, len(shards), chunk, vocabulary, threads))
        if len(chunk) < SHARD_LINES:
            return shards


def _shard(
    text: Text, number: int, lines: Iterable[str], vocabulary: Vocabulary, threads: int
) -> Entry:
    def make(writer: Writer) -> None:
        rest = iter(lines)
        all_ids = []
        all_lengths = [np.zeros(0, np.int32)]
        while chunk := list(itertools.islice(rest, CHUNK_LINES)):
            encoded = vocabulary.encode_lines(chunk, threads)
            tokens = end_sentences(*encoded, vocabulary.eos_id)
            all_ids.append(tokens.ids.astype(id_dtype(vocabulary)))
            all_lengths.append(tokens.lengths)
        write_shard(writer, all_ids, np.concatenate(all_lengths), vocabulary)

    return get(SHARDS, _name(text, vocabulary, number), make)


# By content, not path: a corpus that was moved is not tokenised again, a changed one is.
def _name(text: Text, vocabulary: Vocabulary, *shard: int) -> str:
    return name_of(FORMAT, SHARD_LINES, text.key, vocabulary.sha256, *shard)


def _parts(text: Text) -> list[Work]:
    plain = text.column is None and file_format(text.path) == "lines"
    if not plain or text.path.suffix in ENDINGS:
        return [Work(text, 0, None)]
    parts = line_parts(text.path, SHARD_LINES)
    return [Work(text, number, part) for number, part in enumerate(parts)]


def tokenise(
    texts: Sequence[Text], vocabulary: Vocabulary, processes: int | None = None
) -> list[TokenFile]:
    """The tokens of each text, in `processes` (default: one a core) where there is much to do.

    Shards that another run left are kept: what was cut off goes on where it stood. Raises
    UserError: unreadable text, no room to write.
    """
    if processes is None:
        processes = default_processes()
    work = work_of(texts, vocabulary)
    size = sum(path.stat().st_size for path in {one.text.path for one in work})
    if size > FEW_BYTES:
        calls = [(str(one.text.path), functools.partial(do, one)) for one in work]
        with_vocabulary(calls, vocabulary, processes)
    files = []
    for text in texts:

        def make(writer: Writer, text: Text = text) -> None:
            # SentencePiece's own threads, where there are no processes.
            shards = [one for work in _parts(text) for one in do(work, vocabulary, processes)]
            writer.facts = of_shards(shards)
            writer.needs = [f"{SHARDS}/{name}" for name in writer.facts["shards"]]
            log.info("tokenised %s: %d tokens", text.path, sum(writer.facts["tokens"]))

        files.append(TokenFile(**get("texts", _name(text, vocabulary), make).facts))
    return files


def work_of(texts: Sequence[Text], vocabulary: Vocabulary) -> list[Work]:
    """What is left to do of these texts. Whoever does it, in whatever order: `tokenise` then finds
    the shards, and does what is still missing. Equal files are one: each has the key of its
    content."""
    work = []
    for text in {text.key: text for text in texts}.values():
        if has("texts", _name(text, vocabulary)):
            continue
        for one in _parts(text):
            if one.part is None or not has(SHARDS, _name(text, vocabulary, one.shard)):
                work.append(one)
    return work


def with_vocabulary(
    calls: Sequence[tuple[str, Callable[[Vocabulary], Any]]],
    vocabulary: Vocabulary,
    processes: int,
) -> None:
    """Makes these calls, each with the name of what it reads, in so many processes; of one call, or
    in one process, nothing is gained, and none is made. Raises UserError as `in_processes`."""
    processes = min(processes, len(calls))
    if processes < 2:
        return
    with vocabulary_folder(vocabulary.files()) as folder:
        bound = [(name, functools.partial(_call_with, call, folder)) for name, call in calls]
        in_processes(bound, processes)


def _call_with(call: Callable[[Vocabulary], Any], folder: str) -> None:
    call(loaded(folder))


@contextlib.contextmanager
def vocabulary_folder(files: Mapping[str, bytes]) -> Iterator[str]:
    """A folder in which other processes find the vocabulary of these files (see `loaded`)."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        yield folder


@functools.lru_cache(maxsize=1)
def loaded(folder: str) -> Vocabulary:
    """The vocabulary there, which a process loads once."""
    return Vocabulary.load(folder)


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

    def each(self) -> Iterator[Records]:
        """The records of each block."""
        return map(self.of_block, range(len(self.blocks)))


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
        return _blocks_of(key, pieces, vocabulary)

    paths = [of_file[0].path for of_file in sides]
    return _opened(files[0].languages, key, blocks, vocabulary, paths, held)


def _pieces(
    files: Sequence[Text | Pair],
    tokens: Sequence[tuple[TokenFile, ...]],
    holdout: float,
    held: bool,
) -> list[_Piece]:
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
    """The aligned token files of one text, one a side. Raises UserError where a side is empty."""
    key = name_of(FORMAT, [file.shards for file in files], vocabulary.sha256)
    pieces = [_Piece(tuple(files), n, None, ends=False) for n in range(len(files[0].lines))]
    return _opened(
        languages, key, lambda: _blocks_of(key, pieces, vocabulary), vocabulary, [Path(what)]
    )


def _opened(
    languages: tuple[str, ...],
    key: str,
    blocks: Callable[[], Iterator[Block]],
    vocabulary: Vocabulary,
    paths: Sequence[Path],
    held: bool = False,
) -> BlockText:
    """The text that is kept under a key; `blocks` gives its blocks where it is not. paths, held:
    what an error names. Raises UserError where a side has no sentence."""

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
    text = BlockText(
        languages, key, facts["content_hash"], tuple(Block(**one) for one in facts["blocks"])
    )
    if min(text.sentences) > 0:
        return text
    more = f" and {len(paths) - 1} more files" if len(paths) > 1 else ""
    if held:
        raise UserError(
            f"no {text.name} text is held out: the share takes no block of {BLOCK} lines of"
            f" {paths[0]}{more}; raise holdout or give held-out files"
        )
    raise UserError(f"empty corpus: no {text.name} text in {paths[0]}{more}")


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


def _blocks_of(key: str, pieces: Sequence[_Piece], vocabulary: Vocabulary) -> Iterator[Block]:
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
        for side in range(len(last.files)):
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
