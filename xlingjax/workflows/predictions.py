"""What a run predicts for the examples of a task."""

from collections.abc import Sequence
from typing import Any

from xlingjax.data.labelled.task import Task
from xlingjax.evaluation.task.predictions import predict
from xlingjax.inference.run import TrainedRun
from xlingjax.preprocessors.task_rows import Reading


def predicted(
    trained: TrainedRun,
    task: Task,
    records: Sequence[Any],
    language: str,
    reading: Reading,
    pivot: Sequence[Any] | None = None,
) -> Any:
    """`predict` of a run. pivot: what a model that is plugged in reads beside the records."""
    return predict(
        trained.model,
        trained.params,
        task,
        records,
        trained.vocabulary,
        trained.languages,
        language,
        reading,
        mesh=trained.mesh,
        pivot=pivot,
    )
