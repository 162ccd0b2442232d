"""Text as token ids in the store: each file is tokenised once per vocabulary, in shards of a fixed
number of lines, by several processes or in Beam.

A shard is an entry of its own, so that what is cut off goes on where it stood. A file of plain
lines is cut where its shards begin, and each process reads its own part; any other (compressed, a
table) is one piece of work. Shards of one number hold the same lines of both sides of a pair.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.store.entries import Entry, Writer, folder_of, get, has, name_of, read
from xlingjax.data.store.tokens import Tokens, end_sentences, id_dtype
from xlingjax.data.text.files import ENDINGS, Part, line_parts
from xlingjax.data.text.names import file_format
from xlingjax.data.text.texts import Text
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.runtime.workers import default_processes, in_processes

FORMAT = 4
"""Part of every name: another form of shard leaves the old ones alone."""
SHARD_LINES = 1 << 18
"""Lines of a shard."""
CHUNK_LINES = 8192
FEW_BYTES = 1 << 24
"""Text below this is tokenised here: starting processes takes longer."""
SHARDS = "tokens"
"""The kind of entry that shards, and blocks of several, are."""

log = logging.getLogger(__name__)


# ---- shards --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TokenFile:
    """The tokens of one text in the store: of each shard its name, and how many lines, sentences
    and tokens it has."""

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


def shard_of_arrays(ids: np.ndarray, lengths: np.ndarray, vocabulary: Vocabulary) -> Entry:
    """A shard that nothing but its content names."""
    ids = np.ascontiguousarray(ids, id_dtype(vocabulary))
    digest = hashlib.sha256(np.ascontiguousarray(lengths, np.int32).tobytes())
    digest.update(ids.tobytes())
    name = name_of(FORMAT, "content", digest.hexdigest(), vocabulary.sha256)
    return get(SHARDS, name, lambda writer: write_shard(writer, [ids], lengths, vocabulary))


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
            ids, lengths = vocabulary.encode_lines(chunk, threads)
            ids, lengths = end_sentences(ids, lengths, vocabulary.eos_id)
            all_ids.append(ids.astype(id_dtype(vocabulary)))
            all_lengths.append(lengths)
        write_shard(writer, all_ids, np.concatenate(all_lengths), vocabulary)

    return get(SHARDS, _name(text, vocabulary, number), make)


# By content, not by path: a corpus that was moved or copied is not tokenised again, and one that
# was changed is.
def _name(text: Text, vocabulary: Vocabulary, *shard: int) -> str:
    return name_of(FORMAT, SHARD_LINES, text.key, vocabulary.sha256, *shard)


def _parts(text: Text) -> list[Work]:
    """All that there is to do of a text."""
    plain = text.column is None and file_format(text.path) == "lines"
    if not plain or text.path.suffix in ENDINGS:
        return [Work(text, 0, None)]
    parts = line_parts(text.path, SHARD_LINES)
    return [Work(text, number, part) for number, part in enumerate(parts)]


# ---- texts ---------------------------------------------------------------------------------------


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
    if processes > 1 and len(work) > 1 and size > FEW_BYTES:
        with vocabulary_folder(vocabulary) as folder:
            calls = [
                (str(one.text.path), functools.partial(_do_in_process, one, folder)) for one in work
            ]
            in_processes(calls, min(processes, len(work)))
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


def _do_in_process(work: Work, folder: str) -> None:
    do(work, loaded(folder))


@contextlib.contextmanager
def vocabulary_folder(vocabulary: Vocabulary) -> Iterator[str]:
    """A folder in which other processes find the vocabulary (see `loaded`)."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in vocabulary.files().items():
            (Path(folder) / name).write_bytes(content)
        yield folder


@functools.lru_cache(maxsize=1)
def loaded(folder: str) -> Vocabulary:
    """The vocabulary there, which a process loads once."""
    return Vocabulary.load(folder)
