"""Multi-task fine-tuning: labelled tasks on one encoder, each with its own head (XGLUE §6.3.3)."""

from collections.abc import Collection, Mapping

from xlingjax.config import task as single_task
from xlingjax.config.corpus import Corpus
from xlingjax.config.evaluators import Files
from xlingjax.data.labelled.task import Task
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError, require_numbers
from xlingjax.objectives.finetuning import Classification
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import Training
from xlingjax.training.feed import ObjectiveRun
from xlingjax.training.schedule import Weight


def _weights(weights: Mapping[str, Weight] | None, tasks: Collection[str]) -> Mapping[str, Weight]:
    """That of each task, None: all alike. Raises UserError for weights of other tasks."""
    require_numbers({"weights": weights}, "[0, inf)", "weights", "multi_task: ")
    if weights is not None and {*weights} != {*tasks}:
        raise UserError(
            f"TASK_WEIGHTS are of {', '.join(weights)}, the tasks {', '.join(tasks)}: name the same"
        )
    return weights or dict.fromkeys(tasks, 1.0)


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
    "merged_labels": merged_labels,
    "merged_tasks": merged_tasks,
}
