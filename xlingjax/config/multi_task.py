"""Multi-task fine-tuning: labelled tasks on one encoder, each with its own head (XGLUE §6.3.3)."""

import itertools
from collections.abc import Collection, Mapping

from xlingjax.config import task as single_task
from xlingjax.config.corpus import Corpus
from xlingjax.config.evaluators import Evaluators, Files, own_score
from xlingjax.config.finetuning import classification
from xlingjax.data.labelled.task import Task
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError, require_numbers
from xlingjax.objectives.finetuning import Classification
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import Training
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight

Labels = Mapping[str, Files]  # {task: its labels}


def multi_task(
    corpus: Corpus,
    files: str = "",
    languages: Files = "en",
    labels: Labels | None = None,
    weights: Mapping[str, Weight] | None = None,
    batch: int = 32,
    reading: Reading = Reading(),
    classifier: str | None = None,
    seed: int = 0,
) -> list[ObjectiveRun]:
    """An objective "classification_TASK" for each task of `labels`, on the rows of `pair_rows`.

    files: a path with {task} and {language}. languages: those trained on, the same for all tasks.
    weights: {task: weight}, None: all alike (see `schedule.turns`). classifier: the model's, where
    it is set for this. Raises
    UserError for weights of other tasks.
    """
    tasks = _tasks(labels)
    weight_of = _weights(weights, tasks)
    return [
        classification(
            corpus,
            files=of_task(files, task),
            languages=languages,
            labels=classes,
            batch=batch,
            reading=reading,
            classifier=classifier,
            seed=seed,
            task=task,
            weight=weight_of[task],
        )
        for task, classes in tasks.items()
    ]


def multi_task_accuracy(
    corpus: Corpus,
    files: str | None = None,
    labels: Labels | None = None,
    split: str = "test",
    reading: Reading = Reading(),
    limit: int = 0,
    trained_on: Files = "en",
) -> Evaluators:
    """An evaluator "TASK_SPLIT" for each task of `labels`: accuracy per language, `files` a path
    with {task} and {language}; None: not evaluated."""
    evaluators = [
        own_score(
            corpus,
            "classification",
            files and of_task(files, task),
            classes,
            reading,
            limit,
            trained_on,
            f"{task}_{split}",
            head=task,
        )
        for task, classes in _tasks(labels).items()
    ]
    # Called when training starts, like every evaluator: until then no file is opened.
    return lambda: [*itertools.chain(*(make() for make in evaluators))]


def _weights(weights: Mapping[str, Weight] | None, tasks: Collection[str]) -> Mapping[str, Weight]:
    """That of each task, None: all alike. Raises UserError for weights of other tasks."""
    require_numbers({"weights": weights}, "[0, inf)", "weights", "multi_task: ")
    if weights is not None and {*weights} != {*tasks}:
        raise UserError(
            f"TASK_WEIGHTS are of {', '.join(weights)}, the tasks {', '.join(tasks)}: name the same"
        )
    return weights or dict.fromkeys(tasks, 1.0)


def of_task(files: str, task: str) -> str:
    """The path of a task in one with {task}. Raises UserError without: all would read one file."""
    if "{task}" not in files:
        raise UserError(
            f"labelled files {files!r}: write {{task}} where the task's name stands, as in "
            "data/{task}/train-{language}.tsv"
        )
    return files.replace("{task}", task)


def _tasks(labels: Labels | None) -> dict[str, tuple[str, ...]]:
    if not isinstance(labels, Mapping) or len(labels) < 2:
        raise UserError(
            f"TASK_LABELS={labels!r}: give two tasks or more and the labels of each: "
            "{'xnli': 'contradiction entailment neutral', 'pawsx': '0 1'}"
        )
    return {task: split_list(of) for task, of in labels.items()}


def merged(names: Files) -> list[Task]:
    """The tasks "SUITE/NAME", to be trained together. Raises UserError unless they are two or more
    of one benchmark and all classify."""
    tasks = [single_task.trained_task(name) for name in split_list(names)]
    if len({*tasks}) < len(tasks) or len(tasks) < 2:
        raise UserError("multi_task: name two tasks or more, each once")
    for task in tasks:
        # Ranking is trained as classification into ratings (WPR); others need other heads.
        if task.kind not in ("classification", "ranking"):
            raise UserError(
                f"multi_task: {task.full_name} is one of {task.kind}, and all must classify; leave"
                " it out"
            )
        if (task.suite, task.trained_on) != (tasks[0].suite, tasks[0].trained_on):
            raise UserError(f"multi_task: {task.full_name} is of another benchmark; name one's")
    return tasks


def merged_labels(tasks: Files) -> dict[str, tuple[str, ...]]:
    """{name of a head: its classes}."""
    return {task.name: task.labels for task in merged(tasks)}


def merged_tasks(
    corpus: Corpus,
    tasks: Files,
    data: str,
    gold: Files = "en",
    translated: Files = None,
    split: str = "train",
    labelled: str | None = None,
    weights: Mapping[str, Weight] | None = None,
    batch: int = 32,
    reading: Reading = Reading(),
    classifier: str | None = None,
    seed: int = 0,
    by_length: bool = False,
) -> list[ObjectiveRun]:
    """An objective "classification_TASK" for each of `tasks` ("SUITE/NAME"), on what `task` reads.
    weights: {TASK: weight}, None: all alike. Raises UserError: other tasks."""
    single_task.require_classifier(classifier)
    found = merged(tasks)
    weight_of = _weights(weights, [task.name for task in found])
    # Of one task these are kinds of heads; the tasks here share a kind that fits each of them.
    if classifier in ("plug_in", "tagging", "spans"):
        raise UserError(
            f"CLASSIFIER={classifier}: multi_task has a head on one text or pair: leave it out"
        )
    training = Training(split_list(gold), split_list(translated), split, labelled)
    return [
        single_task.on_rows(
            corpus,
            Classification(len(task.labels), classifier == "difference", task.name),
            lambda task=task: (task, data, training),
            batch,
            reading,
            seed,
            weight=weight_of[task.name],
            by_length=by_length,
        )
        for task in found
    ]


BINDABLE = {
    "multi_task": multi_task,
    "multi_task_accuracy": multi_task_accuracy,
    "merged_labels": merged_labels,
    "merged_tasks": merged_tasks,
}
