"""Which languages of a task are tested, and its metrics: per language, over languages, and as
evaluators of the training loop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.labelled.task import Task, languages_present, part_of, read
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.averages import task_metrics
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.evaluation.task.predictions import predict, translations
from xlingjax.inference.run import TrainedRun
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.training.evaluator import Evaluator

ALL = "all"
_GOLD = {
    "classification": "label",
    "ranking": "label",
    "tagging": "tags",
    "span_qa": "answers",
    "generation": "target",
    "retrieval": "gold",
    "mining": "gold",
}
"""What holds the answer, in a record of each kind of task."""


def has_gold(task: Task, records: Sequence[Any]) -> bool:
    """Whether the file of these records tells the answers; an official test set need not."""
    # The first record tells for the file: benchmarks hide all of its answers or none.
    gold = getattr(records[0], _GOLD[task.kind])
    # Tags and answers are lists, and an empty one tells nothing.
    if task.kind in ("tagging", "span_qa"):
        return bool(gold)
    return gold is not None


def chosen_languages(
    task: Task, data: str | Path, split: str, requested: Sequence[str]
) -> list[str]:
    """Those asked for, or of "all" those that have the split. Raises UserError where there are
    none."""
    present = languages_present(task, data, split)
    # "all" are those that are there; who names one has a reason, and a missing file is a mistake.
    if ALL in requested:
        if not present:
            raise UserError(f"{task.full_name}: no language has a {split} set below {data}")
        return [*present]
    if missing := [language for language in requested if language not in present]:
        raise UserError(f"{task.full_name}: {', '.join(missing)} have no {split} set below {data}")
    return [*requested]


def require_tested(
    task: Task, data: str | Path, split: str, requested: Sequence[str], allow_missing: bool
) -> None:
    """Raise UserError where a language that is to be tested has no files: of those asked for, or
    without `allow_missing` of "all" the task's. Where dev is what is tested a test set will do:
    XTREME has no dev sets of some languages."""
    chosen_languages(task, data, split, requested)
    if allow_missing or ALL not in requested:
        return
    part = part_of(split)[0]
    splits = [split]
    if part == "dev":
        splits.append("test")
    # The language that is trained on need not be tested.
    there = {task.trained_on}
    for each in splits:
        there |= {*languages_present(task, data, each)}
    missing = [language for language in task.languages if language not in there]
    if missing:
        raise UserError(
            f"{task.full_name}: no {part} set of {', '.join(missing)} below {data}:"
            " get them, name others with --gin.TEST_LANGUAGES, or --allow-missing"
        )


# ---- scores --------------------------------------------------------------------------------------


def scored(task: Task, records: Sequence[Any], predicted: Any, language: str) -> dict[str, float]:
    """{metric: 0..100}, the task's metrics."""
    return {name: METRICS[name].compute(records, predicted, language) for name in task.metrics}


def means(
    by_language: Mapping[str, Mapping[str, float]], task: Task, trained_on: Sequence[str]
) -> dict[str, Any]:
    """Of the task's score (XTREME's questions: the mean of F1 and EM): `mean` over languages (those
    of the official average), `en`, `mean_other` over languages without training examples, and
    `gap`, the transfer gap: `en` less the mean of all others."""
    names = task_metrics(task)
    score = {}
    for language, values in by_language.items():
        # Per language, so that en and the gap are of the same score as the mean.
        score[language] = float(np.mean([values[name] for name in names]))
    averaged = [*score.values()]
    if task.averaged is not None:
        averaged = _values(score, [code for code in score if code in task.averaged])
    # Where none of the official languages was measured, the mean of what was.
    out: dict[str, Any] = {"mean": float(np.mean(averaged or [*score.values()]))}
    if task.trained_on in score:
        out[task.trained_on] = score[task.trained_on]
        others = _values(score, [code for code in score if code != task.trained_on])
        if others:
            out["gap"] = score[task.trained_on] - float(np.mean(others))
    untrained = _values(score, [code for code in score if code not in trained_on])
    # Of "all" it is not known here which languages had training examples.
    if untrained and ALL not in trained_on:
        out["mean_other"] = float(np.mean(untrained))
    return out


def _values(score: Mapping[str, float], languages: Sequence[str]) -> list[float]:
    return [score[language] for language in languages]


@dataclass
class TaskScore(Evaluator):
    """A task's metrics as an evaluator of the training loop, read once.

    Values: {"kind": "task", "metric", "mean", "en", "mean_other", "gap", "by_language": {language:
    {metric: x}}}, all in 0..100; mean and what follows are of the task's score, see `means`.
    """

    task: Task
    data: str
    vocabulary: Any
    languages: Sequence[str]
    reading: Reading = Reading()  # noqa: RUF009 - frozen
    split: str = "dev"
    requested: Sequence[str] = (ALL,)
    limit: int = 0
    batch_size: int = 64
    trained_on: Sequence[str] = ("en",)
    name: str = "dev"

    def __post_init__(self):
        self._records = {}
        names = chosen_languages(self.task, self.data, self.split, self.requested)
        for name in names:
            # Once, and not at every evaluation.
            records = read(self.task, self.data, self.split, name)
            self._records[name] = records[: self.limit or None]
        # After all are read: a file that cannot be read is the first thing to mend.
        for name, records in self._records.items():
            if not has_gold(self.task, records):
                raise UserError(
                    f"{self.task.full_name}: the {self.split} set of {name} has no answers to score"
                    " against"
                )

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        run = self.run(model, params, mesh)
        by_language = {}
        for language, records in self._records.items():
            pivot = translations(model, self.task, self.data, self.split, language)
            if pivot is not None:
                # The same examples: cut where the records are.
                pivot = pivot[: self.limit or None]
            predicted = predict(
                run, self.task, records, language, self.reading, pivot, self.batch_size
            )
            by_language[language] = scored(self.task, records, predicted, language)
        found = means(by_language, self.task, self.trained_on)
        return {
            "kind": "task",
            "metric": " and ".join(task_metrics(self.task)),
            **found,
            "by_language": by_language,
        }

    def run(self, model, params, mesh=None) -> TrainedRun:
        """The model as it is now, with what it reads by."""
        return TrainedRun(model, params, self.vocabulary, tuple(self.languages), mesh)


@dataclass
class TasksScore(Evaluator):
    """Several tasks as one evaluator, each read by the head of its name.

    Values: {"kind": "tasks", "mean", "en", "by_task": {name: values of `TaskScore`}}; mean: over
    the tasks of their means, en: of their values in English (left out where a task has none).
    """

    tasks: Sequence[TaskScore]
    name: str = "dev"

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        by_task = {one.task.name: one(model, params, step, mesh) for one in self.tasks}
        found = {}
        for name in ("mean", self.tasks[0].task.trained_on):
            measured = [values[name] for values in by_task.values() if name in values]
            # A mean over some of the tasks could not be compared with one over all.
            if len(measured) == len(by_task):
                found[name] = float(np.mean(measured))
        # Plain figures on top, where BEST_METRIC finds them.
        return {"kind": "tasks", **found, "by_task": by_task}
