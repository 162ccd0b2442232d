"""Tasks with the same training examples, measured in one training: XQuAD and MLQA share SQuAD's."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.task import Task, find
from xlingjax.errors import UserError
from xlingjax.preprocessors.training_set import Training


def dev_name(task: str) -> str:
    """The evaluator of one of several tasks, as `task_score` calls it: "mlqa_dev"."""
    return f"{task}_dev"


def require_alike(tasks: Sequence[Task]) -> None:
    """Raise UserError unless one model may be of all these tasks."""
    _require_equal(tasks, lambda one: (one.suite, one.kind, one.labels, one.trained_on))


def require_one_training(tasks: Sequence[Task], data: str | Path, training: Training) -> None:
    """Raise UserError unless the tasks learn the same from the same files."""
    require_alike(tasks)
    _require_equal(tasks, lambda one: _files(one, data, training))


def _require_equal(tasks: Sequence[Task], of: Callable[[Task], Any]) -> None:
    first = tasks[0]
    for task in tasks[1:]:
        if task == first or of(task) != of(first):
            raise UserError(
                f"{first.full_name} and {task.full_name} are not trained on the same examples, so"
                " they are not one training: name one of them, or --strategy multi_task, which has"
                " a head for each"
            )


def _files(task: Task, data: str | Path, training: Training) -> list[Any]:
    """(origin, language, files) of all that a task is trained on."""
    found = []
    for origin, language in training.parts(task, data):
        split = "translate_train"
        if origin == "gold":
            split = "train"
        paths = find(task, data, split, language).paths
        found.append((origin, language, [path.resolve() for path in paths]))
    return found
