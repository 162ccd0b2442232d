"""A model's predictions as `seqio.Evaluator` asks for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from xlingjax.data.labelled.task import KINDS, Task
from xlingjax.errors import UserError
from xlingjax.evaluation.task.predictions import predict
from xlingjax.preprocessors.task_rows import Reading


def seqio_predict_fn(
    model,
    params,
    task: Task,
    vocabulary,
    languages: Sequence[str],
    reading: Reading,
    batch_size: int = 64,
    mesh=None,
    output_vocabulary=None,
) -> Callable[..., list[tuple[int, np.ndarray]]]:
    """`predict_fn` of `seqio.Evaluator(mixture of the task, RecordConverter(task.kind), ...)`.

    Each prediction is the ids of its text (`tasks.text_to_text`). output_vocabulary: that the task
    was registered with, default: bytes, which spell every text. The others: as `predict`'s. Raises
    UserError as that does, and for tasks that are searched and not predicted (bitext).
    """
    # Here, since they import TensorFlow.
    from xlingjax.tasks.registry import record_of
    from xlingjax.tasks.seqio_evaluation import encoded
    from xlingjax.tasks.text_to_text import text_of

    if KINDS[task.kind] == "Bitext":
        raise UserError(
            f"{task.full_name}: a bitext is searched by sentence vectors and has no predictions;"
            " use xlingjax evaluate",
        )

    def predict_fn(
        dataset: Any,
        model_feature_shapes: Any = None,
    ) -> list[tuple[int, np.ndarray]]:
        numbers = []
        records = []
        codes = set()
        for number, example in dataset.as_numpy_iterator():
            numbers.append(int(number))
            records.append(record_of(example, task.kind))
            codes.add(example["language"].decode())
        # SeqIO asks task by task, and each is of one language.
        (language,) = codes
        predicted = predict(
            model,
            params,
            task,
            records,
            vocabulary,
            languages,
            language,
            reading,
            batch_size,
            mesh,
        )
        if task.kind == "span_qa":
            predicted = [predicted[question.id] for question in records]
        texts = [text_of(one, task.kind) for one in predicted]
        ids = encoded(texts, output_vocabulary)
        return list(zip(numbers, ids, strict=True))

    return predict_fn
