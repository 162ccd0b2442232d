"""Examples of a task to the rows of its objective, and a source of shuffled batches of a training
set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.labelled.records import (
    Example,
    Question,
    SourceTarget,
    Tagged,
    is_lost,
    learnable,
)
from xlingjax.data.labelled.task import (
    Task,
    find,
    languages_present,
    part_of,
    read,
    require_gold,
)
from xlingjax.data.labelled.text import known_label
from xlingjax.data.labelled.words import known_tag
from xlingjax.data.loader import BatchSource
from xlingjax.errors import UserError
from xlingjax.preprocessors.finetuning import (
    classification_rows,
    shuffled_rows,
    tagged_parts,
    tagged_rows,
)
from xlingjax.preprocessors.plug_in import paired_rows
from xlingjax.preprocessors.span_qa import (
    checked_separators,
    count_windows,
    span_rows,
)

ALL = "all"
_RECORDS = {
    "classification": Example,
    "ranking": Example,
    "tagging": Tagged,
    "span_qa": Question,
    "generation": SourceTarget,
}


@dataclass(frozen=True)
class Reading:
    """How records become rows."""

    length: int = 128
    reset_positions: bool = False
    """See `pair_row`."""
    stride: int = 128
    """Of questions: pieces from one window's begin to the next."""
    max_question: int = 64
    """Of questions: pieces that are kept."""
    longest: int = 30
    """Of questions: pieces of an answer that is given."""
    pieces: str = "first"
    """Of tags: which pieces of a word learn them (see `tagged_rows`)."""
    beams: int = 1
    """Of texts that are written."""
    no_repeat_ngram: int = 0
    """Of texts that are written: no so many tokens in a row twice."""
    apart: bool = True
    """Of tags: words are tokenised one by one (XTREME, XGLUE)."""
    marks: str | None = None
    """Of tags: see `pieces_of_words`; None: the task's."""


@dataclass(frozen=True)
class Training:
    """What a task is trained on, beside its files: {origin: languages}, "all" for those that have
    such files."""

    gold: tuple[str, ...] = ("en",)
    translated: tuple[str, ...] = ()
    """Languages into which the training set of `Task.trained_on` was translated."""
    split: str = "train"
    """Of gold examples: "train[:90%]" where the rest is dev."""
    labelled: str | None = None
    """A folder of examples that a teacher labelled (see `write_labelled`)."""

    def parts(self, task: Task, data: str | Path) -> list[tuple[str, str]]:
        """(origin, language) of every part, sorted. Raises UserError where none is left."""
        found = []
        for origin, split, requested in (
            ("gold", "train", self.gold),
            ("translated", "translate_train", self.translated),
        ):
            languages = {*requested}
            if ALL in requested:
                languages = {*languages_present(task, data, split)}
            # The gold of one language alone would be transfer, and not "all".
            least = 1
            if origin == "gold":
                least = 2
            if ALL in requested and len(languages) < least:
                there = ", ".join(languages) or "no language"
                raise UserError(
                    f"{task.full_name}: {there} has {split} files below {data}, and the strategy is"
                    " of several: get the others, or name languages",
                )
            for language in sorted(languages):
                found.append((origin, language))
        if self.labelled:
            names = sorted(Path(self.labelled).glob(f"{task.name}.*.jsonl"))
            if not names:
                raise UserError(
                    f"LABELLED={self.labelled}: no {task.name}.LANGUAGE.jsonl there",
                )
            for path in names:
                _, _, language = path.name.removesuffix(".jsonl").rpartition(
                    ".",
                )
                found.append(("labelled", language))
        if not found:
            raise UserError(
                f"{task.full_name}: nothing to train on: set TRAIN_LANGUAGES (gold), TRANSLATED or"
                " LABELLED",
            )
        return found

    def records(
        self,
        task: Task,
        data: str | Path,
        origin: str,
        language: str,
    ) -> Sequence[Any]:
        """The examples of one part; what a translation lost is "" and has no answers (see
        `learnable`). Raises UserError as `read` and `require_gold` do."""
        if origin == "labelled":
            found = read_labelled(
                labelled_path(self.labelled, task, language),
                task,
            )
            # Of rows that were held out no translation is learnt either.
            _, chosen = part_of(self.split)
            return found[chosen(len(found))]
        split = self.split
        if origin != "gold":
            split = "translate_train" + self.split.removeprefix("train")
        found = read(task, data, split, language)
        if origin == "translated":
            require_gold(task, data, language, found)
        return found

    def described(
        self,
        task: Task,
        data: str | Path,
        origin: str,
        language: str,
    ) -> str:
        """What an error in the examples of one part names: their file and language."""
        if origin == "labelled":
            return f"{labelled_path(self.labelled, task, language)}, {language}"
        split = "translate_train"
        if origin == "gold":
            split = "train"
        found = find(task, data, split, language)
        return f"{found.paths[0]}, {language}"

    def requested(self, task: Task, data: str | Path, language: str) -> str:
        """What an error says is not one of the run's languages."""
        return f"{task.full_name}: training language {language!r}"

    def names(self, task: Task, parts: Sequence[tuple[str, str]]) -> list[str]:
        """By which the rows of each part are drawn (see `shuffled_rows`)."""
        return [f"{origin} {language}" for origin, language in parts]

    def identity(
        self,
        task: Task,
        read: Sequence[str],
        reading: Reading,
    ) -> dict[str, Any]:
        """What run.json says of the data; read: what each part holds."""
        return {
            "mixture": f"{task.full_name}: {', '.join(read)}",
            "labels": list(task.labels),
            "reading": asdict(reading),
        }


_TOLD = {
    "classification": "labelled pairs",
    "tagging": "tagged sentences",
    "span_qa": "questions",
}


@dataclass(frozen=True)
class OwnFiles(Training):
    """All files of a user's task (see `own_task`). Orders and identities are those that such runs
    have always had, so that they go on."""

    def parts(self, task: Task, data: str | Path) -> list[tuple[str, str]]:
        return [("own", language) for language in task.languages]

    def records(
        self,
        task: Task,
        data: str | Path,
        origin: str,
        language: str,
    ) -> Sequence[Any]:
        # Not by `read`: a question without an answer is named, also where none has one.
        found = find(task, data, "train", language)
        return found.files.read(found.paths, task, language)

    def described(
        self,
        task: Task,
        data: str | Path,
        origin: str,
        language: str,
    ) -> str:
        return (
            f"{find(task, data, 'train', language).paths[0]}, counting from 0"
        )

    def requested(self, task: Task, data: str | Path, language: str) -> str:
        return f"{find(task, data, 'train', language).paths[0]}: language {language!r}"

    def names(self, task: Task, parts: Sequence[tuple[str, str]]) -> list[str]:
        if task.kind == "span_qa":
            return [str(number) for number in range(len(parts))]
        return self._languages(task)

    def identity(
        self,
        task: Task,
        read: Sequence[str],
        reading: Reading,
    ) -> dict[str, Any]:
        found: dict[str, Any] = {
            "mixture": f"{_TOLD[task.kind]} in {', '.join(self._languages(task))}",
            "length": reading.length,
        }
        if task.kind == "span_qa":
            for size in ("stride", "max_question", "reset_positions"):
                found[size] = getattr(reading, size)
            return found
        found["labels"] = list(task.labels)
        if reading.pieces != "first":
            found["pieces"] = reading.pieces
        if not reading.apart:
            found["words"] = "joined"
        return found

    def _languages(self, task: Task) -> list[str]:
        pivot = ""
        if task.trained_on:
            pivot = f"-{task.trained_on}"
        return [language + pivot for language in task.languages]


def labelled_path(folder: str | Path, task: Task, language: str) -> Path:
    return Path(folder) / f"{task.name}.{language}.jsonl"


def write_labelled(path: Path, records: Sequence[Any]) -> None:
    """One record of `data/labelled/records.py` a line, as JSON."""
    lines = []
    for record in records:
        lines.append(json.dumps(asdict(record), ensure_ascii=False) + "\n")
    text = "".join(lines)
    # A teacher may be stopped while it writes: what has its name is whole.
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def read_labelled(path: Path, task: Task) -> list[Any]:
    """The inverse of `write_labelled`. Raises UserError naming the line: no record, a label that
    the task does not have, words without a tag each."""
    made = []
    for number, line in enumerate(
        path.read_text(encoding="utf-8").split("\n")[:-1],
        1,
    ):
        where = f"{path}, line {number}"
        try:
            fields = {}
            for name, value in json.loads(line).items():
                if isinstance(value, list):
                    # JSON has no tuples, which the records have.
                    value = tuple(value)
                fields[name] = value
            record = _RECORDS[task.kind](**fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(
                f"{where}: not a record of a {task.kind} task ({error})",
            ) from None
        if isinstance(record, Tagged):
            if len(record.words) != len(record.tags):
                raise UserError(
                    f"{where}: {len(record.words)} words, but {len(record.tags)} tags",
                )
            for tag in record.tags:
                known_tag(tag, task.labels, where)
        elif isinstance(record, Example):
            known_label(str(record.label), task.labels, where)
        made.append(record)
    return made


def task_rows(
    task: Task,
    records: Sequence[Any],
    vocabulary,
    reading: Reading,
    language: str,
    language_id: int,
) -> dict[str, np.ndarray]:
    """Arrays [N, length] and [N]: the fields that the objective of the task's kind reads."""
    length, reset = reading.length, reading.reset_positions
    if task.kind in ("classification", "ranking"):
        return classification_rows(
            records,
            vocabulary,
            length,
            task.labels,
            language_id,
            reset,
        )
    if task.kind == "tagging":
        return tagged_rows(
            records,
            vocabulary,
            length,
            task.labels,
            language,
            language_id,
            reading.pieces,
            reading.apart,
            reading.marks or task.marks,
        )
    if task.kind == "span_qa":
        return span_rows(
            records,
            vocabulary,
            length,
            language_id,
            stride=reading.stride,
            max_question=reading.max_question,
            reset_positions=reset,
        )[0]
    raise UserError(
        f"{task.full_name}: a task of {task.kind} is not trained on rows",
    )


def count_rows(
    task: Task,
    records: Sequence[Any],
    vocabulary,
    reading: Reading,
    language: str,
) -> int:
    """How many rows `task_rows` makes: windows of questions, parts of long sentences, else one of
    each record."""
    if task.kind == "span_qa":
        return count_windows(
            records,
            vocabulary,
            reading.length,
            stride=reading.stride,
            max_question=reading.max_question,
            reset_positions=reading.reset_positions,
        )
    if task.kind == "tagging":
        marks = reading.marks or task.marks
        return len(
            tagged_parts(
                records,
                vocabulary,
                reading.length,
                language,
                reading.apart,
                marks,
            ),
        )
    return len(records)


def require_parallel(
    task: Task,
    records: Sequence[Any],
    pivot: Sequence[Any],
    language: str,
    path: str | Path = "",
) -> None:
    """Raise UserError where `records` of a language and their translations `pivot` do not
    correspond. path: the file
    of `pivot`."""
    there = f"{task.trained_on!r}"
    if path:
        there += f" ({path})"
    if len(records) != len(pivot):
        raise UserError(
            f"{task.full_name}: {len(records)} examples in {language!r} and {len(pivot)} in"
            f" {there}: plug-in fine-tuning reads every example in two languages, line by line",
        )
    for first, second in zip(records, pivot, strict=True):
        if (
            None not in (first.label, second.label)
            and first.label != second.label
        ):
            raise UserError(
                f"{task.full_name}, line {first.line} in {language!r} is {first.label!r}, line"
                f" {second.line} in {there} {second.label!r}: the two files must hold the same"
                " examples in the same order",
            )


def beside_rows(
    task: Task,
    records: Sequence[Any],
    pivot: Sequence[Any],
    vocabulary,
    reading: Reading,
    language: str,
    language_ids: tuple[int, int],
) -> dict[str, np.ndarray]:
    """Rows of plug-in fine-tuning: arrays [N, 2 * length], `records` of a language beside their
    translations `pivot`. Raises UserError where they do not correspond."""
    require_parallel(task, records, pivot, language)
    return paired_rows(
        records,
        pivot,
        vocabulary,
        reading.length,
        task.labels,
        language_ids,
        reading.reset_positions,
    )


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
) -> BatchSource:
    """Shuffled batches of all parts of `training`. languages: the run's, sorted. paired: rows of
    plug-in
    fine-tuning, each example of a translated set beside the one that it translates. Raises
    UserError for a language that is not the run's."""
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
    needed = [language for _, language in parts]
    if paired:
        needed.append(task.trained_on)
    for language in needed:
        if language not in ids:
            raise UserError(
                f"{training.requested(task, data, language)} is not one of the run's"
                f" ({', '.join(languages)})",
            )
    if paired:
        # What was not translated has nothing to stand beside.
        parts = [part for part in parts if part[0] != "gold"]
    rows = []
    counts = []
    for origin, language in parts:
        records = training.records(task, data, origin, language)
        if paired:
            # Line by line the text that the set was translated from.
            pivot = training.records(task, data, "gold", task.trained_on)
            both = ids[language], ids[task.trained_on]
            # With what was lost, so that rows correspond.
            require_parallel(task, records, pivot, language)
            learnt = []
            beside = []
            for record, translated in zip(records, pivot, strict=True):
                if not is_lost(record):
                    learnt.append(record)
                    beside.append(translated)
            rows.append(
                beside_rows(
                    task,
                    learnt,
                    beside,
                    vocabulary,
                    reading,
                    language,
                    both,
                ),
            )
            counts.append(
                f"{origin} {language} {len(learnt)} beside {task.trained_on}",
            )
            continue
        learnt = records
        if origin not in ("gold", "own"):
            learnt = learnable(records)
        try:
            rows.append(
                task_rows(
                    task,
                    learnt,
                    vocabulary,
                    reading,
                    language,
                    ids[language],
                ),
            )
        except UserError as error:
            # Ids of questions may be numbers of rows, alike in every language.
            if task.kind != "span_qa":
                raise
            raise UserError(
                f"{training.described(task, data, origin, language)}: {error}",
            ) from None
        counts.append(f"{origin} {language} {len(learnt)}")
    return shuffled_rows(
        rows,
        batch_size,
        languages=languages,
        seed=seed,
        identity={
            "vocabulary": vocabulary.sha256,
            **training.identity(task, counts, reading),
        },
        names=training.names(task, parts),
    )
