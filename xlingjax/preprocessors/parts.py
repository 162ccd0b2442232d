"""A source of shuffled batches of a task's training set, whose parts are entries of the store: each
is made once, by whoever needs it first, and then read by every run, seed and process. Much is made
in several processes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.batches.labelled import NamedPart, shuffled_batches
from xlingjax.data.batches.loader import BatchSource
from xlingjax.data.content_hashes import content_hash
from xlingjax.data.fingerprint import fingerprint
from xlingjax.data.labelled.records import hashes_asked, learnable
from xlingjax.data.labelled.task import Task
from xlingjax.data.labelled.teacher import read_labelled
from xlingjax.data.rows.ragged import RaggedRows
from xlingjax.data.store.entries import Writer, get, has, name_of
from xlingjax.data.store.tokenise import FEW_BYTES, with_vocabulary
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.preprocessors.beside import training_pairs
from xlingjax.preprocessors.finetuning import Rows
from xlingjax.preprocessors.span_qa import checked_separators
from xlingjax.preprocessors.task_rows import Reading, beside_rows, task_rows
from xlingjax.preprocessors.training_set import Training, told
from xlingjax.runtime.checked_file import hash_of
from xlingjax.runtime.workers import default_processes

FORMAT = 7  # part of every name: another form leaves the old ones alone
KIND = "labelled"
CHUNK_RECORDS = 4096  # records whose padded rows are in memory at a time
MANY_RECORDS = 50_000  # so many are worth a line
_READ_BY = {
    "classification": ("length", "reset_positions"),
    "ranking": ("length", "reset_positions"),
    "tagging": ("length", "pieces", "apart", "marks"),
    "span_qa": ("length", "reset_positions", "stride", "max_question"),
}
"""Kind of task -> the fields of `Reading` that its rows depend on."""
Sides = Sequence[Sequence[Any]]
"""Examples, and those of another language that they stand beside, if any."""


def task_source(
    task: Task,
    data: str | Path,
    training: Training,
    vocabulary,
    languages: Sequence[str],
    reading: Reading,
    *,
    batch_size: int,
    seed: int = 0,
    paired: bool = False,
    by_length: bool = False,
) -> BatchSource:
    """Shuffled batches of all parts of `training`. languages: the run's, sorted. paired: rows of
    plug-in fine-tuning, each example of a translated set beside the one that it translates.
    by_length: see `shuffled_batches`. Raises UserError for a language that is not the run's."""
    if task.kind == "span_qa":
        # Now, since later a file would be blamed.
        checked_separators(
            vocabulary,
            reading.length,
            reading.stride,
            reading.max_question,
            reading.reset_positions,
        )
    # Before any file is read, so that a language that is not the run's is said at once.
    parts = training.parts(task, data)
    ids = {language: i for i, language in enumerate(languages)}
    pivot = [task.trained_on] if paired else []
    for language in [*(language for _, language in parts), *pivot]:
        if language not in ids:
            raise UserError(
                f"{task.full_name}: training language {language!r} is not one of the run's"
                f" ({', '.join(languages)})"
            )
    parts_of_task = [
        Part(task, str(data), training, reading, origin, language, paired)
        for origin, language in parts
        # What was not translated has nothing to stand beside.
        if not (paired and origin == "gold")
    ]
    rows = []
    counts = []
    digests = []
    asked = []
    for part, entry in zip(parts_of_task, stored(parts_of_task, vocabulary), strict=True):
        name = f"{part.origin} {part.language}"
        asked.append(entry.asked)
        of_texts = tuple(ids[language] for language in [part.language, *pivot])
        rows.append(NamedPart(name, entry.rows, of_texts))
        digests.append([entry.facts["digest"], of_texts])
        beside = f" beside {task.trained_on}" if paired else ""
        counts.append(f"{name} {entry.facts['learnt']}{beside}")
    source = shuffled_batches(
        rows,
        batch_size,
        reading.length,
        languages=languages,
        seed=seed,
        identity={
            "vocabulary": vocabulary.sha256,
            "digest": hash_of(repr(digests).encode()),
            "mixture": f"{task.full_name}: {', '.join(counts)}",
            "labels": list(task.labels),
            "reading": asdict(reading),
        },
        by_length=by_length,
    )
    source.asked = tuple(asked)
    return source


@dataclass(frozen=True)
class Part:
    """The examples of one origin in one language."""

    task: Task
    data: str
    training: Training
    reading: Reading
    origin: str
    language: str
    paired: bool = False  # each beside the example that it translates, in rows of two texts

    @property
    def shown(self) -> str:
        return f"{self.task.full_name} {self.origin} {self.language}"

    def paths(self) -> tuple[Path, ...]:
        """The files that it is made of."""
        return tuple(path for _, paths in self._read() for path in paths)

    def entry(self, vocabulary) -> str:
        """The name of what is stored of it, by all that this depends on."""
        task = self.task
        files = [[place, *map(content_hash, paths)] for place, paths in self._read()]
        reading = {name: getattr(self.reading, name) for name in _READ_BY[task.kind]}
        of_task = "full_name", "kind", "labels", "marks", "trained_on", "shared_ids"
        return name_of(
            FORMAT,
            [getattr(task, name) for name in of_task],
            [self.origin, self.training.split, self.language, self.paired],
            files,
            reading,
            vocabulary.sha256,
            _made_by(type(self.training), type(vocabulary)),
        )

    def _read(self) -> list[tuple[str, tuple[Path, ...]]]:
        """Places and files of the examples, and those that pairs are found in (see
        `training_pairs`)."""
        place = functools.partial(self.training.place, self.task, self.data)
        found = [place(self.origin, self.language)]
        if self.paired:
            found.append(place("gold", self.task.trained_on))
        if self.paired and self.origin == "labelled":
            # What the teacher labelled tells what it translates.
            found.append(place("translated", self.language))
        return found

    def examples(self) -> tuple[dict[str, Any], Sides]:
        """("records" that there are, how many of these are "learnt", what is said of those that
        are "unpaired"; those that are learnt, and what each stands beside)."""
        where = self.origin, self.language
        unpaired = ""
        if self.paired:
            found = training_pairs(self.task, self.data, self.training, *where)
            learnt, beside, lost, unpaired = found
            sides, records = [learnt, beside], len(learnt) + lost
        else:
            found = self.training.records(self.task, self.data, *where)
            records = len(found)
            # Gold rows are read as they are; machine translation leaves blank sides and lost
            # answers.
            sides = [found if self.origin in ("gold", "own") else learnable(found)]
        return {"records": records, "learnt": len(sides[0]), "unpaired": unpaired}, sides

    def rows(self, learnt: Sides, vocabulary) -> Rows:
        """Arrays [N, length], paired [N, 2 * length], and [N], of no language."""
        how = vocabulary, self.reading, self.language
        if self.paired:
            return beside_rows(self.task, *learnt, *how, (0, 0))
        try:
            return task_rows(self.task, *learnt, *how, 0)[0]
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
    code = [Part.examples, Part.rows, training.records, read_labelled]
    code += [task_rows, beside_rows, training_pairs]
    if vocabulary is not Vocabulary:
        code.append(vocabulary)
    return told(fingerprint(tuple(code)))


@dataclass(frozen=True)
class StoredPart:
    """A part in the store. facts: see `Part.examples`, and "digest", equal iff the rows are."""

    rows: RaggedRows
    asked: np.ndarray  # `hashes_asked` of what is learnt, and of what it stands beside
    facts: Mapping[str, Any]


def stored(parts: Sequence[Part], vocabulary) -> list[StoredPart]:
    """The rows of each part; what the store does not have is made now. Raises UserError for faults
    of the files and where the store cannot be written."""
    missing = []
    for part in parts:
        if not has(KIND, part.entry(vocabulary)):
            missing.append(part)
    _make_in_processes(missing, vocabulary)
    return [_stored(part, vocabulary) for part in parts]


def _stored(part: Part, vocabulary) -> StoredPart:
    entry = get(KIND, part.entry(vocabulary), functools.partial(_make, part, vocabulary))
    arrays = {name: entry.array(name) for name in entry.facts["arrays"]}
    rows = RaggedRows(part.reading.length, 1 + part.paired, vocabulary.pad_id, arrays)
    return StoredPart(rows, entry.array("asked"), entry.facts)


def _make(part: Part, vocabulary, writer: Writer) -> None:
    facts, learnt = part.examples()
    arrays = _ragged(part, learnt, vocabulary).arrays
    for name, array in arrays.items():
        writer.array(name, array)
    writer.array("asked", np.concatenate([hashes_asked(side) for side in learnt]))
    contents = [np.ascontiguousarray(array).view(np.uint8) for array in arrays.values()]
    writer.facts = facts | {"arrays": [*arrays], "digest": hash_of(*contents)}


def _ragged(part: Part, learnt: Sides, vocabulary) -> RaggedRows:
    count = len(learnt[0])
    if count > MANY_RECORDS:
        print(f"{part.shown}: tokenising {count:,} examples", flush=True)
    made = []
    for begin in range(0, max(count, 1), CHUNK_RECORDS):
        rows = part.rows([side[begin : begin + CHUNK_RECORDS] for side in learnt], vocabulary)
        made.append(RaggedRows.of(rows, part.reading.length, vocabulary.pad_id))
    return RaggedRows.joined(made)


def _make_in_processes(missing: Sequence[Part], vocabulary) -> None:
    """Makes parts, where there is much to do. Raises UserError with the words of the first that
    fails."""
    if not isinstance(vocabulary, Vocabulary):
        return
    size = sum(path.stat().st_size for part in missing for path in part.paths())
    if size >= FEW_BYTES:
        calls = [(part.shown, functools.partial(_stored, part)) for part in missing]
        with_vocabulary(calls, vocabulary, default_processes())
