"""A task's metrics per language and over languages, also as evaluators of the training loop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.labelled.task import Task, read
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.averages import task_metrics
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.evaluation.task.predictions import predict, translations
from xlingjax.evaluation.task.tested import ALL, chosen_languages, has_gold
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.training.evaluator import Evaluator


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
        by_language = {}
        for language, records in self._records.items():
            pivot = translations(model, self.task, self.data, self.split, language)
            if pivot is not None:
                # The same examples: cut where the records are.
                pivot = pivot[: self.limit or None]
            predicted = self.predicted(model, params, language, mesh, pivot)
            by_language[language] = scored(self.task, records, predicted, language)
        found = means(by_language, self.task, self.trained_on)
        return {
            "kind": "task",
            "metric": " and ".join(task_metrics(self.task)),
            **found,
            "by_language": by_language,
        }

    def predicted(
        self, model, params, language: str, mesh=None, pivot: Sequence[Any] | None = None
    ) -> Any:
        """See `predict`."""
        return predict(
            model,
            params,
            self.task,
            self._records[language],
            self.vocabulary,
            self.languages,
            language,
            self.reading,
            self.batch_size,
            mesh,
            pivot,
        )


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
