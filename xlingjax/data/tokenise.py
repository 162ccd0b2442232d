"""Tokenising files of text into shards of the token cache, in several processes.

A file of plain lines is cut where its shards begin, and each process reads its own part; any other
(compressed, a table) is one piece of work. The processes are programs of their own
(`python -m xlingjax.data.tokenise`), which take work from their standard input: a fork would copy
what TensorFlow and JAX started, and a spawned process would run the user's script once more.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from xlingjax.data.text.files import Part, is_divisible, line_parts
from xlingjax.data.text.names import file_format
from xlingjax.data.text.texts import Text
from xlingjax.data.token_cache import (
    SHARD_LINES,
    ShardWriter,
    TokenFile,
    complete,
    find,
    mending,
    shard_is_written,
    shard_stem,
    stem_of,
)
from xlingjax.data.tokens import end_sentences
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

CHUNK_LINES = 8192
FEW_BYTES = 1 << 24
"""Text below this is tokenised here: starting processes takes longer."""


def default_processes() -> int:
    """As many as this process has cores."""
    # Of a machine's cores a process may have fewer, which only Linux tells.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclasses.dataclass(frozen=True)
class Work:
    """One shard of a file of lines (`part`), or a whole text (None)."""

    text: Text
    shard: int
    part: Part | None


def tokens(text: Text, vocabulary: Vocabulary) -> TokenFile:
    """The tokens of a text, made now or found in the cache. Raises UserError: unreadable text, no
    room to write."""
    (made,) = tokenise([text], vocabulary)
    return made


def is_cached(text: Text, vocabulary: Vocabulary) -> bool:
    """Whether `tokens` would read this text from disk without tokenising it."""
    return find(stem_of(text.key, vocabulary)) is not None


def tokenise(
    texts: Sequence[Text], vocabulary: Vocabulary, processes: int | None = None
) -> list[TokenFile]:
    """The tokens of each text, in `processes` (default: one a core) where there is much to do.

    Shards that another run left are kept: what was cut off goes on where it stood. Raises
    UserError: unreadable text, no room to write.
    """
    if processes is None:
        processes = default_processes()
    return mending(lambda: _tokenised(texts, vocabulary, processes))


def _tokenised(texts: Sequence[Text], vocabulary: Vocabulary, processes: int) -> list[TokenFile]:
    missing = _missing(texts, vocabulary)
    work = work_of(texts, vocabulary)
    size = sum(text.path.stat().st_size for text in missing.values())
    if processes > 1 and len(work) > 1 and size > FEW_BYTES:
        _in_processes(work, vocabulary, min(processes, len(work)))
    else:
        for one in work:
            # SentencePiece's own threads, where there are no processes.
            do(one, vocabulary, threads=processes)
    for key, text in missing.items():
        stem = stem_of(key, vocabulary)
        complete(stem, _shards(stem), str(text.path))
    made = [find(stem_of(text.key, vocabulary)) for text in texts]
    # Complete a moment ago, or when it was looked for.
    return [file for file in made if file]


def _missing(texts: Sequence[Text], vocabulary: Vocabulary) -> dict[str, Text]:
    """{key: text} of those that the cache does not have. Equal files are one: each has the key of
    its content."""
    missing: dict[str, Text] = {}
    for text in texts:
        if not is_cached(text, vocabulary):
            missing.setdefault(text.key, text)
    return missing


def work_of(texts: Sequence[Text], vocabulary: Vocabulary) -> list[Work]:
    """What is left to do of these texts. Whoever does it, in whatever order: `tokenise` then finds
    the shards, and does what is still missing."""
    work = []
    for text in _missing(texts, vocabulary).values():
        work += _work(text, vocabulary)
    return work


def _shards(stem: Path) -> int:
    """How many shards of a text are written."""
    count = 0
    while shard_is_written(shard_stem(stem, count)):
        count += 1
    return count


def _work(text: Text, vocabulary: Vocabulary) -> list[Work]:
    """What is left to do of a text that is not complete."""
    plain = text.column is None and file_format(text.path) == "lines"
    if not plain or not is_divisible(text.path):
        return [Work(text, 0, None)]
    stem = stem_of(text.key, vocabulary)
    work = []
    for shard, part in enumerate(line_parts(text.path, SHARD_LINES)):
        if not shard_is_written(shard_stem(stem, shard)):
            work.append(Work(text, shard, part))
    return work


def do(work: Work, vocabulary: Vocabulary, threads: int = 1) -> None:
    """Writes the shards of one piece of work. Raises UserError."""
    stem = stem_of(work.text.key, vocabulary)
    writer = ShardWriter(stem, vocabulary, work.shard)
    lines = work.text.lines(work.part)
    # In chunks, since a corpus may be larger than memory as text.
    while chunk := list(itertools.islice(lines, CHUNK_LINES)):
        ids, lengths = vocabulary.encode_lines(chunk, threads)
        writer.add(*end_sentences(ids, lengths, vocabulary.eos_id))
    writer.close()


def _in_processes(work: Sequence[Work], vocabulary: Vocabulary, processes: int) -> None:
    """Raises UserError with the words of the first that fails."""
    waiting: queue.SimpleQueue[Work] = queue.SimpleQueue()
    for one in work:
        waiting.put(one)
    errors: list[UserError] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, content in vocabulary.files().items():
            (Path(folder) / name).write_bytes(content)
        threads = []
        for _ in range(processes):
            thread = threading.Thread(target=_drive, args=(waiting, folder, errors))
            thread.start()
            threads.append(thread)
        try:
            for thread in threads:
                thread.join()
        finally:
            # Interrupted: what is begun ends, and nothing else begins.
            _emptied(waiting)
    if errors:
        raise errors[0]


def _drive(waiting: queue.SimpleQueue[Work], vocabulary: str, errors: list[UserError]) -> None:
    """Gives a process of its own one piece of work after another."""
    command = [sys.executable, "-m", __name__, vocabulary]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=_environment(),
        # Ctrl-C reaches this process alone, at whose end they end.
        process_group=0,
    ) as process:
        try:
            while not errors:
                one = waiting.get_nowait()
                answer = _asked(process, one)
                if answer:
                    errors.append(UserError(answer))
        except queue.Empty:
            pass
        finally:
            # At the end of its input it ends.
            process.stdin.close()


def _asked(process: subprocess.Popen, work: Work) -> str:
    """What went wrong with a piece of work; "": nothing."""
    text = dataclasses.asdict(work.text) | {"path": str(work.text.path)}
    part = None
    if work.part:
        part = dataclasses.asdict(work.part)
    message = {"text": text, "shard": work.shard, "part": part}
    try:
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    except OSError:
        answer = ""
    if not answer:
        return (
            f"{work.text.path}: the process that tokenised it ended with status {process.wait()};"
            " is the memory used up? What is tokenised is kept: start again"
        )
    return json.loads(answer)["error"]


def _environment() -> dict[str, str]:
    """This process's, with this package where it was imported from."""
    root = str(Path(__file__).parents[2])
    paths = [root]
    if os.environ.get("PYTHONPATH"):
        paths.append(os.environ["PYTHONPATH"])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _emptied(waiting: queue.SimpleQueue[Work]) -> None:
    try:
        while True:
            waiting.get_nowait()
    except queue.Empty:
        return


def main(vocabulary_folder: str) -> None:
    """Does the work that comes by lines, and answers each with what went wrong."""
    vocabulary = Vocabulary.load(vocabulary_folder)
    for line in sys.stdin:
        message = json.loads(line)
        path = Path(message["text"].pop("path"))
        part = None
        if message["part"]:
            part = Part(**message["part"])
        error = ""
        try:
            text = Text(path, **message["text"])
            do(Work(text, message["shard"], part), vocabulary)
        except UserError as failure:
            error = str(failure)
        print(json.dumps({"error": error}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
