"""What a task is trained on, as parts of the row store: each is made once, by whoever needs it
first, and then read by every run, seed and process.

Much text is tokenised in several processes, a part in each. They are programs of their own
(`python -m xlingjax.preprocessors.stored_parts`), as those of `data/tokenise.py` are.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.content_hashes import content_hash
from xlingjax.data.fingerprint import fingerprint
from xlingjax.data.labelled.records import learnable
from xlingjax.data.labelled.task import Task
from xlingjax.data.labelled.teacher import read_labelled
from xlingjax.data.row_store import (
    RaggedRows,
    StoredPart,
    alone,
    part_folder,
    read_part,
    write_part,
)
from xlingjax.data.store.tokenise import default_processes
from xlingjax.data.store.tokens import id_dtype
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.preprocessors.beside import training_pairs
from xlingjax.preprocessors.task_rows import Reading, beside_rows, task_rows
from xlingjax.preprocessors.training_set import Training, told

CHUNK_RECORDS = 4096
"""Records whose padded rows are in memory at a time."""
MANY_RECORDS = 50_000
"""So many are worth a line."""
MUCH_BYTES = 1 << 24
"""Files below this are tokenised here: starting processes takes longer."""
_READ_BY = {
    "classification": ("length", "reset_positions"),
    "ranking": ("length", "reset_positions"),
    "tagging": ("length", "pieces", "apart", "marks"),
    "span_qa": ("length", "reset_positions", "stride", "max_question"),
}
"""Kind of task -> the fields of `Reading` that its rows depend on."""


@dataclass(frozen=True)
class Part:
    """The examples of one origin in one language."""

    task: Task
    data: str
    training: Training
    reading: Reading
    origin: str
    language: str
    paired: bool = False
    """Each beside the example that it translates, in rows of two texts."""

    @property
    def shown(self) -> str:
        return f"{self.task.full_name} {self.origin} {self.language}"

    def paths(self) -> tuple[Path, ...]:
        """The files that it is made of."""
        _, own = self.training.place(self.task, self.data, self.origin, self.language)
        beside = []
        for _, paths in self._read_beside():
            beside += paths
        return (*own, *beside)

    def key(self, vocabulary) -> str:
        """All that its rows depend on."""
        task = self.task
        place, paths = self.training.place(task, self.data, self.origin, self.language)
        files = [place, *map(content_hash, paths)]
        for place, paths in self._read_beside():
            files += ["beside", place, *map(content_hash, paths)]
        reading = {}
        for name in _READ_BY[task.kind]:
            reading[name] = getattr(self.reading, name)
        kind = type(vocabulary)
        return json.dumps(
            {
                "task": [
                    task.full_name,
                    task.kind,
                    task.labels,
                    task.marks,
                    task.trained_on,
                    task.shared_ids,
                ],
                "part": [self.origin, self.training.split, self.language],
                "files": files,
                "reading": reading,
                "rows": _made_by(type(self.training), kind),
                # Of one's own class too, whose hash may be another's.
                "vocabulary": [vocabulary.sha256, f"{kind.__module__}.{kind.__qualname__}"],
            }
        )

    def _read_beside(self) -> list[tuple[str, tuple[Path, ...]]]:
        """Places and files that pairs are found in (see `training_pairs`)."""
        if not self.paired:
            return []
        place = self.training.place
        found = [place(self.task, self.data, "gold", self.task.trained_on)]
        if self.origin == "labelled":
            # What the teacher labelled tells what it translates.
            translated = place(self.task, self.data, "translated", self.language)
            found.append(translated)
        return found

    # ---- its rows --------------------------------------------------------------------------------

    def examples(self) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
        """("records" that there are, how many of these are "learnt", what is said of those that
        are "unpaired"; those that are learnt, each with what it stands beside)."""
        if self.paired:
            return self._pairs()
        records = self.training.records(self.task, self.data, self.origin, self.language)
        learnt: Sequence[Any] = records
        # Gold rows are read as they are; machine translation leaves blank sides and lost answers.
        if self.origin not in ("gold", "own"):
            learnt = learnable(records)
        facts = {"records": len(records), "learnt": len(learnt), "unpaired": ""}
        return facts, [(record,) for record in learnt]

    def _pairs(self) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
        pairs = training_pairs(self.task, self.data, self.training, self.origin, self.language)
        place = self.training.described(self.task, self.data, self.origin, self.language)
        facts = {
            "records": len(pairs.records) + pairs.lost,
            "learnt": len(pairs.records),
            # Without the path, which may be another's whose files are the same.
            "unpaired": pairs.unpaired.removeprefix(f"{place}: "),
        }
        return facts, [*zip(pairs.records, pairs.beside, strict=True)]

    def rows(self, learnt: Sequence[tuple[Any, ...]], vocabulary) -> dict[str, np.ndarray]:
        """Arrays [N, length], paired [N, 2 * length], and [N], of no language."""
        sides = [[*side] for side in zip(*learnt, strict=True)]
        if self.paired:
            records, pivot = sides
            return beside_rows(
                self.task, records, pivot, vocabulary, self.reading, self.language, (0, 0)
            )
        # Of nothing at all the rows' own makers say that it is nothing.
        (records,) = sides or [[]]
        try:
            return task_rows(self.task, records, vocabulary, self.reading, self.language, 0)
        except UserError as error:
            # Ids of questions may be numbers of rows, alike in every language.
            if self.task.kind != "span_qa":
                raise
            where = self.training.described(self.task, self.data, self.origin, self.language)
            raise UserError(f"{where}: {error}") from None


@functools.cache
def _made_by(training: type[Training], vocabulary: type) -> str:
    """What the code that makes rows does; where that cannot be told, a word of this process alone:
    another one makes them anew."""
    code: list[Any] = [
        Part.examples,
        Part._pairs,
        Part.rows,
        training.records,
        read_labelled,
        task_rows,
        beside_rows,
        training_pairs,
    ]
    if vocabulary is not Vocabulary:
        code.append(vocabulary)
    return told(fingerprint(tuple(code)))


def stored(parts: Sequence[Part], vocabulary) -> list[StoredPart]:
    """The rows of each part: made now, where the store does not have them. `facts`: see
    `Part.examples`. Raises UserError for faults of the files and where the store
    cannot be written."""
    folders = [part_folder(part.key(vocabulary)) for part in parts]
    missing = {}
    for part, folder in zip(parts, folders, strict=True):
        if not folder.is_dir():
            missing[folder] = part
    _make_in_processes(missing, vocabulary)
    found = []
    for part, folder in zip(parts, folders, strict=True):
        found.append(_stored(part, vocabulary, folder))
    return found


def _stored(part: Part, vocabulary, folder: Path) -> StoredPart:
    # What is damaged is seen again below, where nobody else mends it.
    with contextlib.suppress(ValueError):
        found = read_part(folder)
        if found:
            return found

    def waits() -> None:
        _say(f"{part.shown}: another process makes its rows; waiting for it")

    with alone(folder, waits):
        try:
            # Who held the lock has made it.
            found = read_part(folder)
        except ValueError as fault:
            _say(f"{part.shown}: its rows in {folder} are damaged ({fault}); they are made again")
            shutil.rmtree(folder, ignore_errors=True)
            found = None
        if not found:
            _make(part, vocabulary, folder)
            found = read_part(folder)
    if not found:
        raise UserError(
            f"{folder}: the rows of {part.shown} were deleted while they were made: start again"
        )
    return found


def _make(part: Part, vocabulary, folder: Path) -> None:
    facts, learnt = part.examples()
    if len(learnt) > MANY_RECORDS:
        _say(f"{part.shown}: tokenising {len(learnt):,} examples into {folder}")

    def chunks() -> Iterator[RaggedRows]:
        for begin in range(0, max(len(learnt), 1), CHUNK_RECORDS):
            rows = part.rows(learnt[begin : begin + CHUNK_RECORDS], vocabulary)
            yield RaggedRows.of(rows, part.reading.length, vocabulary.pad_id, id_dtype(vocabulary))

    write_part(folder, chunks(), facts)


def _say(line: str) -> None:
    print(line, flush=True)


# --- in several processes -------------------------------------------------------------------------


def _make_in_processes(missing: Mapping[Path, Part], vocabulary) -> None:
    """Makes parts, where there is much to do. missing: {where it goes: the part}. Raises UserError
    with the words of the first that fails."""
    processes = min(default_processes(), len(missing))
    if processes < 2 or not isinstance(vocabulary, Vocabulary):
        return
    size = 0
    for part in missing.values():
        size += sum(path.stat().st_size for path in part.paths())
    if size < MUCH_BYTES:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in vocabulary.files().items():
            (folder / file).write_bytes(content)
        jobs = []
        for number, (target, part) in enumerate(missing.items()):
            job = folder / f"{number}.part"
            try:
                job.write_bytes(pickle.dumps((part, target)))
            # A task of one's own may hold what no other program can import; it is made here.
            except (pickle.PicklingError, AttributeError, TypeError):
                continue
            jobs.append((part, job))
        if not jobs:
            return
        with ThreadPoolExecutor(processes) as pool:
            errors = [*pool.map(_in_process, *zip(*jobs, strict=True))]
    for error in filter(None, errors):
        raise UserError(error)


def _in_process(part: Part, job: Path) -> str:
    """What went wrong; "": nothing."""
    command = [sys.executable, "-m", __name__, str(job)]
    status = subprocess.run(command, env=_environment(), check=False).returncode
    answer = job.with_suffix(".error")
    if answer.is_file():
        return answer.read_text(encoding="utf-8")
    if status:
        return (
            f"{part.shown}: the process that tokenised it ended with status {status}; is the memory"
            " used up? Parts that are made are kept: start again"
        )
    return ""


def _environment() -> dict[str, str]:
    """This process's, with this package where it was imported from."""
    paths = [str(Path(__file__).parents[2])]
    if os.environ.get("PYTHONPATH"):
        paths.append(os.environ["PYTHONPATH"])
    # There is a process for each core.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TOKENIZERS_PARALLELISM": "false"}


def main(job: str) -> None:
    """Makes the part that is pickled there, with the vocabulary beside it."""
    path = Path(job)
    try:
        part, folder = pickle.loads(path.read_bytes())
    # Of a program that this one cannot import, as the user's own script: made there.
    except (AttributeError, ImportError):
        return
    try:
        _stored(part, Vocabulary.load(path.parent), folder)
    except UserError as error:
        path.with_suffix(".error").write_text(str(error), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
