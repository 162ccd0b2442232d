"""A model on a task, a benchmark's or a user's own: what it predicts for records, and the task's
metrics per language."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.labelled.task import Task, find, languages_present, part_of, read
from xlingjax.errors import UserError
from xlingjax.evaluation import classification
from xlingjax.evaluation.classification import summarise
from xlingjax.evaluation.metrics.answers import MLQA_LANGUAGES
from xlingjax.evaluation.metrics.averages import task_metrics
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.evaluation.metrics.tags import entity_f1, token_accuracy
from xlingjax.evaluation.span_qa import predict_answers
from xlingjax.evaluation.tagging import predict_tags
from xlingjax.inference.encode import language_index
from xlingjax.inference.generate import Generator
from xlingjax.model.decoding import Decoding
from xlingjax.preprocessors.finetuning import classification_rows
from xlingjax.preprocessors.task import Reading, beside_rows
from xlingjax.training.evaluator import Evaluator

ALL = "all"


def predict(
    model,
    params,
    task: Task,
    records: Sequence[Any],
    vocabulary,
    languages: Sequence[str],
    language: str,
    reading: Reading,
    batch_size: int = 64,
    mesh=None,
    pivot: Sequence[Any] | None = None,
) -> Any:
    """What the task's metrics take: label strings, tags of every word, {id: answer}. languages: the
    run's, sorted. pivot: of a model that is plugged in, the same examples in `Task.trained_on` (see
    `translations`).

    Raises UserError where the model's head is not the task's, or the language not one that the
    model embeds.
    """
    index = language_index(language, languages, model)
    how: dict[str, Any] = {"batch_size": batch_size, "mesh": mesh}
    if task.kind == "span_qa":
        return predict_answers(
            model,
            params,
            records,
            vocabulary,
            index,
            length=reading.length,
            stride=reading.stride,
            max_question=reading.max_question,
            longest=reading.longest,
            reset_positions=reading.reset_positions,
            **how,
        )
    require_head(model, task)
    if task.kind == "generation":
        decoding = Decoding(reading.beams, no_repeat_ngram=reading.no_repeat_ngram)
        generator = Generator(
            model, params, vocabulary, languages, decoding, mesh, truncate=True
        )
        made = generator.generate(
            [record.source for record in records], language, language
        )
        return [best.text for best, *_ in made]
    if task.kind == "tagging":
        return predict_tags(
            model, params, records, vocabulary, task.labels, language, index, length=reading.length,
            apart=reading.apart, marks=reading.marks or task.marks, **how
        )  # fmt: skip
    if pivot is not None:
        return predict_beside(
            model,
            params,
            task,
            records,
            pivot,
            vocabulary,
            languages,
            language,
            reading,
            **how,
        )[0]
    if task.kind in ("classification", "ranking"):
        rows = classification_rows(
            records,
            vocabulary,
            reading.length,
            task.labels,
            index,
            reading.reset_positions,
        )
        return [
            task.labels[i]
            for i in classification.predict(
                model, params, rows, task=head_of(model, task), **how
            )
        ]
    raise UserError(f"{task.full_name}: {task.kind} is not predicted here")


def predict_beside(
    model,
    params,
    task: Task,
    records: Sequence[Any],
    pivot: Sequence[Any],
    vocabulary,
    languages: Sequence[str],
    language: str,
    reading: Reading,
    **how: Any,
) -> tuple[list[str], list[str]]:
    """Label strings of a model that is plugged in: from the side of `records`, and from that of
    `pivot`, the same examples in `Task.trained_on`. The rest: see `predict`."""
    ids = tuple(
        language_index(one, languages, model) for one in (language, task.trained_on)
    )
    rows = beside_rows(task, records, pivot, vocabulary, reading, language, ids)
    own, beside = classification.predict(model, params, rows, **how)
    return [task.labels[i] for i in own], [task.labels[i] for i in beside]


def translations(
    model, task: Task, data: str | Path, split: str, language: str
) -> Sequence[Any] | None:
    """What a model that is plugged in reads beside the examples of a language: those of a test set
    translated into `Task.trained_on`, else that language's own set, whose rows must be parallel.
    None: the model is not plugged in.
    """
    return (
        read(task, data, *pivot_of(task, data, split, language))
        if model.config.classifier == "plug_in"
        else None
    )


def pivot_of(
    task: Task, data: str | Path, split: str, language: str
) -> tuple[str, str]:
    """(split, language) of what `translations` reads."""
    if split == "test" and language in languages_present(task, data, "translate_test"):
        return "translate_test", language
    return split, task.trained_on


def named_alike(task: Task, labels: Sequence[str]) -> tuple[str, ...]:
    """The task's labels in the order of a head's outputs. labels: the head's, which may be written
    in other capitals; (): they are not the task's."""
    ours = {label.casefold(): label for label in task.labels}
    theirs = [label.casefold() for label in labels]
    if len(ours) != len(task.labels) or sorted(theirs) != sorted(ours):
        return ()
    return tuple(ours[label] for label in theirs)


def in_order_of(task: Task, labels: Sequence[str]) -> Task:
    """The task with its labels in the order of a head's outputs. labels: the head's."""
    return dataclasses.replace(task, labels=named_alike(task, labels) or task.labels)


def head_of(model, task: Task) -> str | None:
    """The name of the task's head in a model that has one for each of several tasks; None: the head
    that stands
    alone."""
    return task.name if model.config.labels_of(task.name) else None


def head_fault(model, task: Task, labels: Sequence[str] | None = None) -> str:
    """Why the model's head is not one for the task; "": it is. labels: the head's, where they are
    known."""
    config = model.config
    kind = {"tagging": "tagging", "spans": "span_qa"}.get(
        config.classifier, "classification"
    )
    if task.kind == "generation":
        return "" if config.decoder_layers else "the model has no decoder"
    count = config.labels_of(head_of(model, task))
    if not count and config.task_labels:
        return f"the model has heads of {', '.join(name for name, _ in config.task_labels)} alone"
    if not count:
        return "the model has no head: fine-tune it (`xlingjax finetune --task`)"
    if kind != ("classification" if task.kind == "ranking" else task.kind):
        return f"the model's head is one of {kind}"
    if kind != "span_qa" and labels is not None and not named_alike(task, labels):
        ours, heads = (
            ", ".join(names[:4]) or "not told" for names in (task.labels, labels)
        )
        remedy = (
            "; where they mean the same, give the task's in the order of the head's by"
            " --labels"
        )
        return f"its labels are {ours} ... and the head's {heads} ..." + remedy * (
            count == len(task.labels)
        )
    if kind != "span_qa" and count != len(task.labels):
        names = ", ".join(task.labels[:4])
        return f"it has {len(task.labels)} labels ({names} ...) and the model's head {count}"
    return ""


def require_head(model, task: Task) -> None:
    """Raise UserError unless the model's head is one for the task."""
    if fault := head_fault(model, task):
        raise UserError(
            f"{task.full_name}: {fault}: give a run that was fine-tuned on this task"
        )


def has_gold(task: Task, records: Sequence[Any]) -> bool:
    """Whether the file of these records tells the answers; an official test set need not."""
    first = records[0]
    return {
        "classification": lambda: first.label is not None,
        "ranking": lambda: first.label is not None,
        "tagging": lambda: bool(first.tags),
        "span_qa": lambda: bool(first.answers),
        "generation": lambda: first.target is not None,
        "retrieval": lambda: first.gold is not None,
        "mining": lambda: first.gold is not None,
    }[task.kind]()


def scored(
    task: Task, records: Sequence[Any], predicted: Any, language: str
) -> dict[str, float]:
    """{metric: 0..100}, the task's metrics."""
    return {
        name: METRICS[name].compute(records, predicted, language)
        for name in task.metrics
    }


def means(
    by_language: Mapping[str, Mapping[str, float]],
    task: Task,
    trained_on: Sequence[str],
) -> dict[str, Any]:
    """Of the task's score (XTREME's questions: the mean of F1 and EM): `mean` over languages (those
    of the official average), `en`, `mean_other` over languages without training examples, and
    `gap`, the transfer gap: `en` less the mean of all others."""
    names = task_metrics(task)
    score = {
        language: float(np.mean([values[name] for name in names]))
        for language, values in by_language.items()
    }
    averaged = [
        value
        for language, value in score.items()
        if task.averaged is None or language in task.averaged
    ]
    out: dict[str, Any] = {"mean": float(np.mean(averaged or [*score.values()]))}
    if task.trained_on in score:
        out[task.trained_on] = score[task.trained_on]
        if others := [
            value for language, value in score.items() if language != task.trained_on
        ]:
            out["gap"] = score[task.trained_on] - float(np.mean(others))
    others = [value for language, value in score.items() if language not in trained_on]
    if others and ALL not in trained_on:
        out["mean_other"] = float(np.mean(others))
    return out


def chosen_languages(
    task: Task, data: str | Path, split: str, requested: Sequence[str]
) -> list[str]:
    """Those asked for, or of "all" those that have the split. Raises UserError where there are
    none."""
    present = languages_present(task, data, split)
    if ALL in requested:
        if not present:
            raise UserError(
                f"{task.full_name}: no language has a {split} set below {data}"
            )
        return [*present]
    if missing := [language for language in requested if language not in present]:
        raise UserError(
            f"{task.full_name}: {', '.join(missing)} have no {split} set below {data}"
        )
    return [*requested]


def require_tested(
    task: Task,
    data: str | Path,
    split: str,
    requested: Sequence[str],
    allow_missing: bool,
) -> None:
    """Raise UserError where a language that is to be tested has no files: of those asked for, or
    without `allow_missing` of "all" the task's. Where dev is what is tested a test set will do:
    XTREME has no dev sets of some languages."""
    chosen_languages(task, data, split, requested)
    if allow_missing or ALL not in requested:
        return
    splits = [split, "test"] if part_of(split)[0] == "dev" else [split]
    there = {task.trained_on}.union(
        *(languages_present(task, data, each) for each in splits)
    )
    if missing := [language for language in task.languages if language not in there]:
        raise UserError(
            f"{task.full_name}: no {part_of(split)[0]} set of {', '.join(missing)} below {data}:"
            " get them, name others with --gin.TEST_LANGUAGES, or --allow-missing"
        )


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
        names = chosen_languages(self.task, self.data, self.split, self.requested)
        self._records = {
            name: read(self.task, self.data, self.split, name)[: self.limit or None]
            for name in names
        }
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
            predicted = self.predicted(
                model, params, language, mesh, pivot and pivot[: self.limit or None]
            )
            by_language[language] = scored(self.task, records, predicted, language)
        found = means(by_language, self.task, self.trained_on)
        return {
            "kind": "task",
            "metric": " and ".join(task_metrics(self.task)),
            **found,
            "by_language": by_language,
        }

    def predicted(
        self,
        model,
        params,
        language: str,
        mesh=None,
        pivot: Sequence[Any] | None = None,
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


_KINDS = {"classification": "accuracy", "tagging": "tagging", "span_qa": "span_qa"}
_SHARES = {"token_accuracy": token_accuracy, "conll_f1": entity_f1}


def _share(name: str, records: Sequence[Any], predicted: Any, language: str) -> float:
    """A metric in 0..1. A share is not the hundredth of its percentage, in the last bit."""
    if name == "accuracy":
        right = [
            one.label == made for one, made in zip(records, predicted, strict=True)
        ]
        return sum(right) / len(right)
    if name in _SHARES:
        return _SHARES[name](predicted, [one.tags for one in records])
    return METRICS[name].compute(records, predicted, language) / 100


@dataclass
class OwnScore(TaskScore):
    """Metrics of a user's files, `own_task`'s of split "test", as such runs have always told them.

    Values: {"kind", "by_language": {language: x}, "en": x, "mean_other": x}, x the task's first
    metric in 0..1; of tags and answers also "metric". Of answers, whose second metric is exact
    match, the same of it in "exact_match_by_language", "en_exact_match", "mean_other_exact_match".
    mean_other leaves out `trained_on`. Of plug-in fine-tuning a language's value is that of its own
    side, beside its translation into the pivot; the pivot's, which mean_other leaves out too, is
    the mean over the languages that it stands beside.

    Tags are of words: a word has the tag of its first piece, also where all its pieces have learnt
    it (ERNIE-M's own script scores entities of pieces), and one that shares its piece with the word
    before has none (not `apart`).
    """

    metric: str = ""
    """What "metric" tells."""
    head: str | None = None
    """Whose head, of a model with several."""

    def __post_init__(self):
        if self.task.kind == "span_qa":
            self._require_rules()

        def records(language: str) -> Sequence[Any]:
            return read(self.task, self.data, self.split, language)[
                : self.limit or None
            ]

        self._records = {
            language: records(language) for language in self.task.languages
        }
        self._pivot = records(self.task.trained_on) if self.task.trained_on else None

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        self._require_labels(model)
        found: dict[str, list[list[float]]] = {}
        for language, records in self._records.items():
            if self._pivot is None:
                made = {language: self.predicted(model, params, language, mesh)}
            else:
                made = self._beside(model, params, language, mesh)
            for code, predicted in made.items():
                values = [
                    _share(name, records, predicted, code) for name in self.task.metrics
                ]
                found.setdefault(code, []).append(values)

        def told(metric: int) -> dict[str, Any]:
            by_language = {
                code: float(np.mean([values[metric] for values in found[code]]))
                for code in sorted(found)
            }
            return summarise(by_language, {*self.trained_on, self.task.trained_on})

        values = told(0) | {"kind": _KINDS[self.task.kind]}
        if self.metric:
            values["metric"] = self.metric
        if self.task.kind == "span_qa":
            exact = told(1)
            values["exact_match_by_language"] = exact["by_language"]
            for name in ("en", "mean_other"):
                if name in exact:
                    values[f"{name}_exact_match"] = exact[name]
        return values

    def _beside(self, model, params, language: str, mesh) -> dict[str, list[str]]:
        own, beside = predict_beside(
            model,
            params,
            self.task,
            self._records[language],
            self._pivot,
            self.vocabulary,
            self.languages,
            language,
            self.reading,
            batch_size=self.batch_size,
            mesh=mesh,
        )
        return {language: own, self.task.trained_on: beside}

    def _require_rules(self) -> None:
        if self.metric not in ("squad", "mlqa"):
            raise UserError(
                f"METRIC {self.metric!r}: answers are scored by squad or mlqa"
            )
        strange = sorted({*self.task.languages} - {*MLQA_LANGUAGES})
        if self.metric == "mlqa" and strange:
            path = find(self.task, self.data, self.split, strange[0]).paths[0]
            raise UserError(
                f"{path}: METRIC mlqa has rules for {', '.join(MLQA_LANGUAGES)} and none for"
                f" {', '.join(strange)}: set METRIC to squad or leave these languages out"
            )

    def _require_labels(self, model) -> None:
        config, labels = model.config, self.task.labels
        plugged_in = config.classifier == "plug_in"
        if self._pivot is not None and not (
            plugged_in and config.num_labels == len(labels)
        ):
            raise UserError(
                f"{self.name}: the model has classifier={config.classifier!r} for"
                f" {config.num_labels} labels; "
                f'it takes "plug_in" for the {len(labels)} of the files'
            )
        if self._pivot is None and plugged_in:
            raise UserError(
                f"{self.name}: the model has classifier='plug_in', which reads every example in two"
                " languages: measure it by plug_in_accuracy"
            )
        ours = config.labels_of(self.head)
        if self.task.kind == "classification" and ours != len(labels):
            raise UserError(
                f"the model tells {ours} labels apart{f' for {self.head!r}' if self.head else ''}"
                f" and the files have {len(labels)}: {', '.join(labels)}"
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
        over = ("mean", self.tasks[0].task.trained_on)
        told = {
            name: [values[name] for values in by_task.values() if name in values]
            for name in over
        }
        found = {
            name: float(np.mean(values))
            for name, values in told.items()
            if len(values) == len(by_task)
        }
        return {"kind": "tasks", **found, "by_task": by_task}
