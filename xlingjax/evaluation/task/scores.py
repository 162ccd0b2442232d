"""A task's tested languages, and its metrics: per language, over languages, as evaluators."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.labelled.task import Task, find, has_gold, languages_present, part_of, read
from xlingjax.errors import UserError
from xlingjax.evaluation.classification import summarise
from xlingjax.evaluation.metrics.answers import mlqa_tokens
from xlingjax.evaluation.metrics.averages import task_metrics
from xlingjax.evaluation.metrics.registry import find_metric, scored
from xlingjax.evaluation.metrics.tags import require_entities
from xlingjax.evaluation.task.predictions import predict, predict_beside, require_head, translations
from xlingjax.inference.run import TrainedRun
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.training.evaluator import Evaluator

ALL = "all"


def chosen_languages(
    task: Task, data: str | Path, split: str, requested: Sequence[str]
) -> list[str]:
    """Those asked for, or of "all" those with the split. Raises UserError where there are none."""
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
    # The language that is trained on need not be tested.
    there = {task.trained_on, *languages_present(task, data, split)}
    if part == "dev":
        there |= {*languages_present(task, data, "test")}
    if missing := [language for language in task.languages if language not in there]:
        raise UserError(
            f"{task.full_name}: no {part} set of {', '.join(missing)} below {data}:"
            " get them, name others with --gin.TEST_LANGUAGES, or --allow-missing"
        )


def means(
    by_language: Mapping[str, Mapping[str, float]], task: Task, trained_on: Sequence[str]
) -> dict[str, Any]:
    """Of the task's score (XTREME's questions: the mean of F1 and EM): `mean` over languages (those
    of the official average), `en`, `mean_other` over languages without training examples, and
    `gap`, the transfer gap: `en` less the mean of all others."""
    names = task_metrics(task)
    # Per language, so that en and the gap are of the same score as the mean.
    score = {code: _mean(values[name] for name in names) for code, values in by_language.items()}
    averaged = score if task.averaged is None else {*score} & {*task.averaged}
    out = {"mean": _mean(score[code] for code in averaged or score)}
    if task.trained_on in score:
        out[task.trained_on] = score[task.trained_on]
        if others := [score[code] for code in score if code != task.trained_on]:
            out["gap"] = score[task.trained_on] - _mean(others)
    untrained = [score[code] for code in score if code not in trained_on]
    # Of "all" it is not known here which languages had training examples.
    if untrained and ALL not in trained_on:
        out["mean_other"] = _mean(untrained)
    return out


def _mean(values: Iterable[float]) -> float:
    return float(np.mean([*values]))


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
    trained_on: Sequence[str] = ("en",)
    name: str = "dev"

    def __post_init__(self):
        names = chosen_languages(self.task, self.data, self.split, self.requested)
        self._records = {name: self._read(name) for name in names}
        for name, records in self._records.items():
            if not has_gold(records[0]):
                raise UserError(
                    f"{self.task.full_name}: the {self.split} set of {name} has no answers to score"
                    " against"
                )

    def _read(self, language: str) -> Sequence[Any]:
        return read(self.task, self.data, self.split, language)[: self.limit or None]

    def examples(self) -> list[tuple[str, Sequence[Any]]]:
        return [
            (str(find(self.task, self.data, self.split, code).paths[0]), records)
            for code, records in self._records.items()
        ]

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        run = self.run(model, params, mesh)
        by_language = {}
        for language, records in self._records.items():
            pivot = translations(model, self.task, self.data, self.split, language)
            if pivot is not None:
                # The same examples: cut where the records are.
                pivot = pivot[: self.limit or None]
            predicted = predict(run, self.task, records, language, self.reading, pivot)
            by_language[language] = scored(self.task, records, predicted, language)
        return {
            "kind": "task",
            "metric": " and ".join(task_metrics(self.task)),
            **means(by_language, self.task, self.trained_on),
            "by_language": by_language,
        }

    def run(self, model, params, mesh=None) -> TrainedRun:
        """The model as it is now, with what it reads by."""
        return TrainedRun(model, params, self.vocabulary, tuple(self.languages), mesh)


_KINDS = {"classification": "accuracy", "tagging": "tagging", "span_qa": "span_qa"}


@dataclass
class OwnScore(TaskScore):
    """Metrics of a user's files, `own_task`'s of split "test".

    Values: {"kind", "by_language": {language: x}, "en": x, "mean_other": x}, x the task's first
    metric in 0..1; of tags and answers also "metric". Of answers, whose second metric is exact
    match, the same of it in "exact_match_by_language", "en_exact_match", "mean_other_exact_match".
    Of labels also "examples": {language: how many} and "commonest": {language: share of the label
    that most of them have}, which guessing can reach.
    mean_other leaves out `trained_on`. Of plug-in fine-tuning a language's value is that of its own
    side, beside its translation into the pivot; the pivot's, which mean_other leaves out too, is
    the mean over the languages that it stands beside.

    Tags are of words: a word has the tag of its first piece, also where all its pieces have learnt
    it (ERNIE-M's own script scores entities of pieces), and one that shares its piece with the word
    before has none (not `apart`).
    """

    metric: str = ""  # what "metric" tells

    def __post_init__(self):
        # What the metrics refuse is refused before training.
        for name in self.task.metrics:
            find_metric(name, self.task.kind)
        if "conll_f1" in self.task.metrics:
            require_entities(self.task.labels)
        if "mlqa_f1" in self.task.metrics:
            for language in self.task.languages:
                mlqa_tokens("", language)
        self._records = {code: self._read(code) for code in self.task.languages}
        self._pivot = self._read(self.task.trained_on) if self.task.trained_on else None

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        if model.config.plugged_in != (self._pivot is not None):
            raise UserError(
                f"{self.name}: the model has classifier={model.config.classifier!r}: measure one"
                " that is plugged in, and no other, with a pivot"
            )
        require_head(model, self.task)
        run = self.run(model, params, mesh)
        found: dict[str, list[dict[str, float]]] = {}
        for language, records in self._records.items():
            how = (run, self.task, records, language, self.reading)
            if self._pivot is None:
                made = {language: predict(*how)}
            else:
                own, beside = predict_beside(*how, self._pivot)
                made = {language: own, self.task.trained_on: beside}
            for code, predicted in made.items():
                found.setdefault(code, []).append(scored(self.task, records, predicted, code))
        # The pivot of plug-in fine-tuning stands beside every language, in training too: it is none
        # that was transferred to.
        trained_on = {*self.trained_on, self.task.trained_on}
        of_each = []
        for name in self.task.metrics:
            shares = {code: _mean(one[name] for one in found[code]) / 100 for code in sorted(found)}
            of_each.append(summarise(shares, trained_on))
        values = of_each[0] | {"kind": _KINDS[self.task.kind]}
        if self.metric:
            values["metric"] = self.metric
        if self.task.kind == "classification":
            values |= {"examples": {}, "commonest": {}}
            for code, records in self._records.items():
                values["examples"][code] = len(records)
                counts = Counter(one.label for one in records)
                values["commonest"][code] = max(counts.values()) / len(records)
        if self.task.kind == "span_qa":
            exact = of_each[1]
            values["exact_match_by_language"] = exact["by_language"]
            for name in {"en", "mean_other"} & exact.keys():
                values[f"{name}_exact_match"] = exact[name]
        return values


@dataclass
class TasksScore(Evaluator):
    """Several tasks as one evaluator, each read by the head of its name.

    Values: {"kind": "tasks", "mean", "en", "by_task": {name: values of `TaskScore`}}; mean: over
    the tasks of their means, en: of their values in English (left out where a task has none).
    """

    tasks: Sequence[TaskScore]
    name: str = "dev"

    def examples(self) -> list[tuple[str, Sequence[Any]]]:
        return [one for score in self.tasks for one in score.examples()]

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        by_task = {one.task.name: one(model, params, step, mesh) for one in self.tasks}
        # A mean over some of the tasks could not be compared with one over all.
        names = ("mean", self.tasks[0].task.trained_on)
        known = [name for name in names if all(name in values for values in by_task.values())]
        found = {name: _mean(values[name] for values in by_task.values()) for name in known}
        # Plain figures on top, where BEST_METRIC finds them.
        return {"kind": "tasks", **found, "by_task": by_task}
