"""Prediction files of a benchmark against its gold files: `xlingjax score`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.questions import read_squad
from xlingjax.data.labelled.records import Bitext, Example, Tagged
from xlingjax.data.labelled.task import Task, find, read
from xlingjax.data.text.files import read_lines
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.averages import (
    AVERAGES,
    averaged_languages,
    groups,
    mean,
    task_metrics,
    task_score,
)
from xlingjax.evaluation.metrics.registry import METRICS, scored
from xlingjax.evaluation.submissions import (
    check_labels,
    prediction_path,
    read_pairs,
    read_predictions,
    read_rows,
    read_tag_lines,
)


def label_file(task: Task, folder: str | Path, language: str, split: str = "test") -> Path | None:
    """The file of gold labels in XTREME's own layout (labels/TASK/test-LG.tsv), named as a
    prediction file is; None: there is none. A file of the same name whose lines have several
    columns is one of its `download` folder."""
    path = prediction_path(task, folder, language, split)
    # XGLUE's gold files are its official data, and no labels alone.
    if task.suite != "xtreme" or not path.is_file():
        return None
    if task.kind in ("classification", "tagging"):
        first = next((text for _, text in read_lines(path) if text.strip()), "")
        # Texts and labels: the file of a data set that lies under the name of a label file.
        if "\t" in first:
            return None
    return path


def read_labels(path: str | Path, task: Task, language: str) -> list[Any]:
    """Gold records of `label_file`, their texts empty. Raises UserError naming file and line."""
    path = Path(path)
    if task.kind == "span_qa":
        return list(read_squad((path,), task, language))
    if task.kind == "tagging":
        sentences = read_tag_lines(path)
        for line, tags in sentences:
            check_labels(path, tags, task.labels, line)
        return [Tagged(("",) * len(tags), tuple(tags), line) for line, tags in sentences]
    if task.kind == "mining":
        return [Bitext((), (), frozenset(read_pairs(path)))]
    if task.kind == "retrieval":
        # Such a file names no sentences: either side's ids are its rows.
        english, pairs = [], set()
        for number, row in enumerate(read_rows(path)):
            english.append((str(number), ""))
            pairs.add((str(row), str(number)))
        return [Bitext((), tuple(english), frozenset(pairs))]
    labels = [text.strip() for _, text in read_lines(path)]
    check_labels(path, labels, task.labels)
    return [Example("", None, label, line) for line, label in enumerate(labels, 1)]


def read_gold(task: Task, folder: str | Path, split: str, language: str) -> list[Any]:
    """Gold records of a language, XTREME's label files or the official layout. Raises as `read`."""
    path = label_file(task, folder, language, split)
    return read_labels(path, task, language) if path else read(task, folder, split, language)


def summarise(
    tasks: Sequence[Task], scores: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> dict[str, Any]:
    """Scores {full name: {metric: {language: 0..100}}} with their official averages.

    {"tasks": {full name: {"kind", "metrics", "means": {metric: mean over the languages that are
    there}, "score", "score_is": metrics whose mean it is, "missing": languages}}, "groups": {group:
    mean or None}, "overall": mean or None, "averages", "signatures": {metric: line}}. A group or
    the overall is None where a task, or a language of one, is missing: a mean over fewer is another
    number.
    """
    result: dict[str, Any] = {}
    whole: dict[str, float | None] = {}
    for task in tasks:
        by_metric = scores.get(task.full_name, {})
        if not by_metric:
            continue
        there = by_metric[task.metrics[0]]
        missing = [language for language in task.languages if language not in there]
        averaged = averaged_languages(task)
        score = task_score(task, by_metric)
        result[task.full_name] = {
            "kind": task.kind,
            "metrics": {name: dict(values) for name, values in by_metric.items()},
            "means": {
                name: mean([values[code] for code in averaged if code in values])
                for name, values in by_metric.items()
            },
            "score": score,
            "score_is": list(task_metrics(task)),
            "missing": missing,
        }
        # A score over some languages is given and marked; only whole ones go into the benchmark's
        # mean. Languages outside the official average may be missing.
        if not {*averaged} & {*missing}:
            whole[task.full_name] = score

    def over(of: Sequence[Task]) -> float | None:
        return mean([whole.get(task.full_name) for task in of])

    used = {name for task in tasks for name in scores.get(task.full_name, {})}
    suite = tasks[0].suite if tasks else ""
    signatures = {name: metric.signature for name, metric in METRICS.items() if name in used}
    return {
        "tasks": result,
        "groups": {name: over(of) for name, of in groups(tasks).items()},
        "overall": over(tasks),
        "averages": AVERAGES.get(suite, "task: mean over its languages; overall: mean over tasks"),
        "signatures": signatures,
    }


def score_files(
    tasks: Sequence[Task],
    predictions: str | Path,
    gold: str | Path,
    split: str = "test",
    allow_missing: bool = False,
) -> dict[str, Any]:
    """`summarise` of the prediction files of a suite below `predictions` against the gold files
    below `gold`, with "split", "missing": {"predictions" or "gold": {full name: languages}} and, in
    each task, "notes": {language: what `read_predictions` noted}.

    Raises UserError before anything is scored: a missing folder or file (with `allow_missing` only
    where nothing is there); then as `read_predictions` and `Metric.compute`.
    """
    for folder in (predictions, gold):
        if not Path(folder).is_dir():
            raise UserError(f"missing folder: {folder}")
    there: list[tuple[Task, str, Path]] = []
    missing: dict[str, dict[str, list[str]]] = {"predictions": {}, "gold": {}}
    # All files are looked for first: a missing one is reported before minutes of scoring.
    for task in tasks:
        for language in task.languages:
            path = prediction_path(task, predictions, language, split)
            if not path.is_file():
                if not allow_missing:
                    raise UserError(
                        f"missing file: {path}, the predictions of {task.full_name};"
                        " --allow-missing scores others"
                    )
                missing["predictions"].setdefault(task.full_name, []).append(language)
            elif label_file(task, gold, language, split) or find(task, gold, split, language):
                there.append((task, language, path))
            else:
                if not allow_missing:
                    read(task, gold, split, language)  # says where it looked
                missing["gold"].setdefault(task.full_name, []).append(language)
    if not there:
        example = prediction_path(tasks[0], predictions, tasks[0].languages[0], split)
        raise UserError(
            f"nothing to score: no predictions in {predictions} (as {example}) with {split} labels"
            f" in {gold}"
        )
    scores: dict[str, dict[str, dict[str, float]]] = {}
    notes: dict[str, dict[str, Any]] = {}
    for task, language, path in there:
        records = read_gold(task, gold, split, language)
        found = read_predictions(path, task, records)
        values = scored(task, records, found.values, language)
        for name, value in values.items():
            scores.setdefault(task.full_name, {}).setdefault(name, {})[language] = value
        if found.notes:
            notes.setdefault(task.full_name, {})[language] = dict(found.notes)
    result = summarise(tasks, scores)
    for name, task in result["tasks"].items():
        task["notes"] = notes.get(name, {})
    return result | {"split": split, "missing": missing}
