"""Prediction files in the submission formats of XTREME and XGLUE, both ways; labels as text.

| Kind | A file holds |
|---|---|
| classification, ranking | a label per line |
| tagging | a tag per line, a blank line after each sentence |
| span_qa | one JSON object, id -> text |
| retrieval | a whole number per line: the foreign row, from 0, of each English sentence |
| mining | a pair per line: foreign id, tab, English id |
| generation | a text per line |
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.records import known_label
from xlingjax.data.labelled.task import Task
from xlingjax.data.text.files import read_lines
from xlingjax.data.text.given import parse_json
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.tags import FILL
from xlingjax.runtime.files import write_text
from xlingjax.runtime.numerals import is_whole
from xlingjax.runtime.quiet import as_line


@dataclass(frozen=True)
class Predictions:
    values: Any  # as `Metric.compute` takes them
    notes: Mapping[str, int] = field(default_factory=dict)
    """What the official scripts put up with: {"unanswered": questions without a prediction,
    "filled": words without a tag, which count as O}; zeros are left out."""


def prediction_path(task: Task, folder: str | Path, language: str, split: str = "test") -> Path:
    """Where the task's official file lies below `folder`; XTREME's tell the split: dev-de.tsv."""
    place = Path(task.submission.format(language=language))
    if place.name.startswith("test-"):
        place = place.with_name(split + place.name.removeprefix("test"))
    return Path(folder) / place


def write_predictions(
    task: Task, folder: str | Path, language: str, predicted: Any, split: str = "test"
) -> Path:
    """Writes the official file, whole or not at all; the path. `predicted` is as `Metric.compute`
    takes it. Raises UserError for what such a file cannot hold: a label that is not the task's, a
    line break within a text."""
    path = prediction_path(task, folder, language, split)
    if task.kind == "span_qa":
        text = json.dumps(dict(predicted), ensure_ascii=False, indent=1) + "\n"
    else:
        text = "".join(line + "\n" for line in _lines(task, predicted))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


def _lines(task: Task, predicted: Any) -> Iterator[str]:
    for made in predicted:
        if task.kind == "tagging":
            for tag in made:
                yield _label(task, tag)
            yield ""
        elif task.kind in ("classification", "ranking"):
            yield _label(task, made)
        elif task.kind == "retrieval":
            yield str(_row(task.full_name, str(made)))
        elif task.kind == "mining":
            # An id with a tab or an end of line would be read back as two.
            if any(set("\t\r\n") & set(name) for name in made):
                raise UserError(f"{task.full_name}: a tab or an end of line in the ids {made!r}")
            yield "\t".join(made)
        else:
            yield as_line(made)


def _label(task: Task, label: Any) -> str:
    if not isinstance(label, str) or (task.labels and label not in task.labels):
        raise UserError(
            f"{task.full_name}: {label!r} is not one of its labels: {', '.join(task.labels)}"
        )
    return label


def _row(where: str, text: str) -> int:
    if not is_whole(text):
        raise UserError(f"{where}: {text[:40]!r} is not a row, a whole number from 0")
    return int(text)


def read_predictions(path: str | Path, task: Task, gold: Sequence[Any]) -> Predictions:
    """The predictions of a file for these gold records.

    As the official scripts, questions may lack an answer; XGLUE's tag files may lack the last tags
    of a sentence, which become O. Raises UserError with file and line: a missing file, a number of
    lines that is not that of the gold records, an unknown label, broken JSON, ids that the gold
    file does not have.
    """
    path = Path(path)
    if task.kind == "span_qa":
        return _read_answers(path, gold)
    if task.kind == "tagging":
        return _read_tags(path, task, gold)
    if task.kind == "mining":
        return Predictions(read_pairs(path))
    if task.kind == "retrieval":
        rows = read_rows(path)
        _check_number(path, len(rows), len(gold[0].target))
        return Predictions(rows)
    values = [text.strip() for _, text in read_lines(path)]
    if task.kind != "generation":
        check_labels(path, values, task.labels)
    _check_number(path, len(values), len(gold))
    return Predictions(values)


def _check_number(path: Path, found: int, wanted: int, what: str = "line") -> None:
    if found != wanted:
        raise UserError(
            f"{path}: {found} {what}s, but the gold file has {wanted}: one prediction for each is"
            " needed"
        )


def check_labels(
    path: str | Path, values: Iterable[str], labels: Sequence[str], line: int = 1
) -> None:
    """Raises UserError naming the line of the first value not in `labels`, if there are any."""
    for number, value in enumerate(values, line):
        known_label(value, labels, f"{path}, line {number}")


def read_rows(path: str | Path) -> list[int]:
    """A row per line. Raises UserError naming the line."""
    lines = read_lines(path)
    return [_row(f"{path}, line {number}", text.strip()) for number, text in lines]


def read_pairs(path: str | Path) -> list[tuple[str, str]]:
    """Two ids per line. Raises UserError naming the line."""
    pairs = []
    for number, text in read_lines(path):
        cells = [cell.strip() for cell in text.split("\t")]
        if len(cells) != 2 or not all(cells):
            raise UserError(f"{path}, line {number}: {text!r} is not an id, a tab and an id")
        pairs.append(tuple(cells))
    return pairs


def read_tag_lines(path: str | Path) -> list[tuple[int, list[str]]]:
    """(line of its first tag, tags) of each sentence, each closed by a blank line or the end."""
    sentences: list[tuple[int, list[str]]] = []
    tags: list[str] = []
    begin = 1
    lines = [*read_lines(path), (None, "")]
    for number, text in lines:
        if text.strip():
            tags.append(text.strip())
        elif number is not None or tags:
            sentences.append((begin, tags))
            tags, begin = [], (number or 0) + 1
    return sentences


def _read_tags(path: Path, task: Task, gold: Sequence[Any]) -> Predictions:
    sentences = read_tag_lines(path)
    # XGLUE's script puts O where tags are missing; XTREME's does not. A file may hold such tags.
    fills = task.suite == "xglue"
    labels = (*task.labels, FILL) if fills and task.labels else task.labels
    filled = 0
    values = []
    for begin, tags in sentences:
        check_labels(path, tags, labels, begin)
    _check_number(path, len(sentences), len(gold), "sentence")
    for (begin, tags), sentence in zip(sentences, gold, strict=True):
        short = len(sentence.tags or sentence.words) - len(tags)
        if short < 0 or (short and not fills):
            raise UserError(
                f"{path}, line {begin}: {len(tags)} tags for a sentence of {len(tags) + short}"
                " words"
            )
        filled += short
        values.append(tags + [FILL] * short)
    return Predictions(values, {"filled": filled} if filled else {})


def _read_answers(path: Path, gold: Sequence[Any]) -> Predictions:
    text = "\n".join(text for _, text in read_lines(path))
    try:
        answers = parse_json(text, str(path))
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); one object of id: text is needed") from None
    if not isinstance(answers, dict):
        raise UserError(f"{path}: not a JSON object; one object of id: text is needed")
    for key, answer in answers.items():
        if not isinstance(answer, str):
            raise UserError(f"{path}: the answer of {key} is not text")
    ids = {question.id for question in gold}
    # The scripts would take each of their own questions for unanswered.
    if unknown := [key for key in answers if key not in ids]:
        raise UserError(
            f"{path}: the gold file has no question {unknown[0]} ({len(unknown)} such ids): another"
            " split?"
        )
    unanswered = len(ids - answers.keys())
    return Predictions(answers, {"unanswered": unanswered} if unanswered else {})
