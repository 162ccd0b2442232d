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
from xlingjax.preprocessors.span_qa import checked_separators, count_windows, span_rows

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
            present = languages_present(task, data, split) if ALL in requested else ()
            languages = {*present} if ALL in requested else {*requested}
            if ALL in requested and len(languages) < (2 if origin == "gold" else 1):
                there = ", ".join(languages) or "no language"
                raise UserError(
                    f"{task.full_name}: {there} has {split} files below {data}, and the strategy is"
                    " of several: get the others, or name languages"
                )
            found += [(origin, language) for language in sorted(languages)]
        if self.labelled:
            names = sorted(Path(self.labelled).glob(f"{task.name}.*.jsonl"))
            if not names:
                raise UserError(
                    f"LABELLED={self.labelled}: no {task.name}.LANGUAGE.jsonl there"
                )
            found += [
                ("labelled", path.name.removesuffix(".jsonl").rpartition(".")[2])
                for path in names
            ]
        if not found:
            raise UserError(
                f"{task.full_name}: nothing to train on: set TRAIN_LANGUAGES (gold), TRANSLATED or"
                " LABELLED"
            )
        return found

    def records(
        self, task: Task, data: str | Path, origin: str, language: str
    ) -> Sequence[Any]:
        """The examples of one part; what a translation lost is "" and has no answers (see
        `learnable`). Raises UserError as `read` and `require_gold` do."""
        if (
            origin == "labelled"
        ):  # of rows that were held out no translation is learnt either
            found = read_labelled(labelled_path(self.labelled, task, language), task)
            return found[part_of(self.split)[1](len(found))]
        split = (
            self.split
            if origin == "gold"
            else "translate_train" + self.split.removeprefix("train")
        )
        found = read(task, data, split, language)
        if origin == "translated":
            require_gold(task, data, language, found)
        return found

    def told(self, task: Task, data: str | Path, origin: str, language: str) -> str:
        """What an error in the examples of one part names: their file and language."""
        if origin == "labelled":
            return f"{labelled_path(self.labelled, task, language)}, {language}"
        found = find(
            task, data, "train" if origin == "gold" else "translate_train", language
        )
        return f"{found.paths[0]}, {language}"

    def asked(self, task: Task, data: str | Path, language: str) -> str:
        """What an error says is not one of the run's languages."""
        return f"{task.full_name}: training language {language!r}"

    def names(self, task: Task, parts: Sequence[tuple[str, str]]) -> list[str]:
        """By which the rows of each part are drawn (see `shuffled_rows`)."""
        return [f"{origin} {language}" for origin, language in parts]

    def identity(
        self, task: Task, read: Sequence[str], reading: Reading
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
        self, task: Task, data: str | Path, origin: str, language: str
    ) -> Sequence[Any]:
        # Not by `read`: a question without an answer is named, also where none has one.
        found = find(task, data, "train", language)
        return found.files.read(found.paths, task, language)

    def told(self, task: Task, data: str | Path, origin: str, language: str) -> str:
        return f"{find(task, data, 'train', language).paths[0]}, counting from 0"

    def asked(self, task: Task, data: str | Path, language: str) -> str:
        return f"{find(task, data, 'train', language).paths[0]}: language {language!r}"

    def names(self, task: Task, parts: Sequence[tuple[str, str]]) -> list[str]:
        if task.kind == "span_qa":
            return [str(number) for number in range(len(parts))]
        return self._languages(task)

    def identity(
        self, task: Task, read: Sequence[str], reading: Reading
    ) -> dict[str, Any]:
        found: dict[str, Any] = {
            "mixture": f"{_TOLD[task.kind]} in {', '.join(self._languages(task))}",
            "length": reading.length,
        }
        if task.kind == "span_qa":
            sizes = ("stride", "max_question", "reset_positions")
            return found | {name: getattr(reading, name) for name in sizes}
        found["labels"] = list(task.labels)
        if reading.pieces != "first":
            found["pieces"] = reading.pieces
        if not reading.apart:
            found["words"] = "joined"
        return found

    def _languages(self, task: Task) -> list[str]:
        pivot = f"-{task.trained_on}" if task.trained_on else ""
        return [language + pivot for language in task.languages]


def labelled_path(folder: str | Path, task: Task, language: str) -> Path:
    return Path(folder) / f"{task.name}.{language}.jsonl"


def write_labelled(path: Path, records: Sequence[Any]) -> None:
    """One record of `data/labelled/records.py` a line, as JSON."""
    text = "".join(
        json.dumps(asdict(record), ensure_ascii=False) + "\n" for record in records
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def read_labelled(path: Path, task: Task) -> list[Any]:
    """The inverse of `write_labelled`. Raises UserError naming the line: no record, a label that
    the task does not have, words without a tag each."""
    made = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1], 1):
        where = f"{path}, line {number}"
        try:
            fields = {
                name: tuple(x) if isinstance(x, list) else x
                for name, x in json.loads(line).items()
            }
            record = _RECORDS[task.kind](**fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(
                f"{where}: not a record of a {task.kind} task ({error})"
            ) from None
        if isinstance(record, Tagged):
            if len(record.words) != len(record.tags):
                raise UserError(
                    f"{where}: {len(record.words)} words, but {len(record.tags)} tags"
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
            records, vocabulary, length, task.labels, language_id, reset
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
    raise UserError(f"{task.full_name}: a task of {task.kind} is not trained on rows")


def count_rows(
    task: Task, records: Sequence[Any], vocabulary, reading: Reading, language: str
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
                records, vocabulary, reading.length, language, reading.apart, marks
            )
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
    there = f"{task.trained_on!r}" + (f" ({path})" if path else "")
    if len(records) != len(pivot):
        raise UserError(
            f"{task.full_name}: {len(records)} examples in {language!r} and {len(pivot)} in"
            f" {there}: plug-in fine-tuning reads every example in two languages, line by line"
        )
    for first, second in zip(records, pivot, strict=True):
        if None not in (first.label, second.label) and first.label != second.label:
            raise UserError(
                f"{task.full_name}, line {first.line} in {language!r} is {first.label!r}, line"
                f" {second.line} in {there} {second.label!r}: the two files must hold the same"
                " examples in the same order"
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
    if task.kind == "span_qa":  # before a file is blamed
        checked_separators(
            vocabulary,
            reading.length,
            reading.stride,
            reading.max_question,
            reading.reset_positions,
        )
    parts = training.parts(task, data)
    ids = {language: i for i, language in enumerate(languages)}
    for language in [
        *(language for _, language in parts),
        *([task.trained_on] if paired else []),
    ]:
        if language not in ids:
            raise UserError(
                f"{training.asked(task, data, language)} is not one of the run's"
                f" ({', '.join(languages)})"
            )
    if paired:
        parts = [(origin, language) for origin, language in parts if origin != "gold"]
    rows, told = [], []
    for origin, language in parts:
        records = training.records(task, data, origin, language)
        if paired:
            pivot = training.records(task, data, "gold", task.trained_on)
            both = ids[language], ids[task.trained_on]
            require_parallel(
                task, records, pivot, language
            )  # with what was lost, so that rows correspond
            pairs = [
                pair
                for pair in zip(records, pivot, strict=True)
                if not is_lost(pair[0])
            ]
            learnt, beside = ([pair[side] for pair in pairs] for side in (0, 1))
            rows.append(
                beside_rows(task, learnt, beside, vocabulary, reading, language, both)
            )
            told.append(f"{origin} {language} {len(learnt)} beside {task.trained_on}")
            continue
        learnt = records if origin in ("gold", "own") else learnable(records)
        try:
            rows.append(
                task_rows(task, learnt, vocabulary, reading, language, ids[language])
            )
        except (
            UserError
        ) as error:  # ids of questions may be rows, and alike in every language
            if task.kind != "span_qa":
                raise
            raise UserError(
                f"{training.told(task, data, origin, language)}: {error}"
            ) from None
        told.append(f"{origin} {language} {len(learnt)}")
    return shuffled_rows(
        rows,
        batch_size,
        languages=languages,
        seed=seed,
        identity={
            "vocabulary": vocabulary.sha256,
            **training.identity(task, told, reading),
        },
        names=training.names(task, parts),
    )
