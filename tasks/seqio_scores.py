"""The scores that `seqio.Evaluator` gives of one registered task."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import seqio

from xlingjax.data.seqio.task_text import failed
from xlingjax.errors import UserError
from xlingjax.runtime.machine import first_line
from xlingjax.tasks import suites
from xlingjax.tasks.registry import BenchmarkFiles

ModelFn = Callable[..., Sequence[tuple[int, Any]]]  # predict_fn or score_fn of `seqio.Evaluator`
SPLITS = ("validation", "dev", "test")  # the split that is scored: the first that a task has


def scored_tasks(mixture: str) -> list[seqio.Task]:
    """The tasks of a registered mixture, or a task, that are no benchmark's. Raises UserError: no
    such mixture, a task without metrics, or with some that ask for more than texts and scores."""
    try:
        tasks = seqio.get_subtasks(seqio.get_mixture_or_task(mixture))
    except ValueError:
        raise UserError(
            f"--mixture {mixture}: no benchmark ({', '.join(suites())}) and no SeqIO task or"
            " mixture that is registered: name the Python module that registers it by --tasks"
        ) from None
    others = [task for task in tasks if not isinstance(task.source, BenchmarkFiles)]
    for task in others:
        if not task.metric_objs or task.predict_with_aux_metric_fns:
            raise UserError(
                f"task {task.name} has no metric_fns of (targets, predictions) or (targets, scores)"
            )
    return others


def split_of(task: seqio.Task, split: str) -> str:
    """The split to score: `split`, or of "" the first of `SPLITS`. Raises UserError without."""
    wanted = (split,) if split else SPLITS
    for name in wanted:
        if name in task.splits:
            return name
    raise UserError(f"task {task.name} has no split {' or '.join(wanted)}: give one by --split")


def evaluated(
    task: seqio.Task,
    converter: seqio.FeatureConverter,
    split: str,
    predict_fn: ModelFn,
    score_fn: ModelFn | None = None,
    lengths: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """{metric: value} of a task. lengths: of the features, where its preprocessors ask for them.
    Raises UserError where the task's code fails."""
    if not any(map(_asks_length, task.preprocessors)):
        lengths = None
    try:
        evaluator = seqio.Evaluator(
            task.name,
            converter,
            eval_split=split,
            sequence_length=lengths,
            async_compute_metrics=False,
        )
    except UserError:
        raise
    # The task's code may raise anything.
    except Exception as error:
        raise failed(task, error) from error
    try:
        found, _ = evaluator.evaluate(
            compute_metrics=True, predict_fn=predict_fn, score_fn=score_fn
        )
    except ValueError as error:
        cause = error.__cause__
        if isinstance(cause, UserError):
            raise cause from None
        # Only what metrics and postprocessors raise has a cause: SeqIO wraps it.
        if cause is None:
            raise
        raise UserError(
            f"task {task.name}: its metrics cannot take the predictions: {type(cause).__name__}:"
            f" {first_line(cause)}"
        ) from error
    values = found.result()[task.name]
    return {name: _plain(value) for name, value in values.items()}


def _asks_length(preprocessor: Any) -> bool:
    asked = inspect.signature(preprocessor).parameters.get("sequence_length")
    return asked is not None and asked.default is inspect.Parameter.empty


def _plain(value: Any) -> Any:
    """A number where it is one; a text or a picture for a log is only named."""
    value = getattr(value, "value", value)
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)
