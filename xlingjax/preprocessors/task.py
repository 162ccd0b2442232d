"""A source of shuffled batches of a task's training set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.labelled.records import learnable
from xlingjax.data.labelled.task import Task
from xlingjax.data.loader import BatchSource
from xlingjax.errors import UserError
from xlingjax.preprocessors.beside import training_pairs
from xlingjax.preprocessors.finetuning import shuffled_rows
from xlingjax.preprocessors.span_qa import checked_separators
from xlingjax.preprocessors.task_rows import (
    Reading,
    beside_rows,
    task_rows,
)
from xlingjax.preprocessors.training_set import Training


def task_source(
    task: Task,
    data: str | Path,
    training: Training,
    vocabulary,
    languages: Sequence[str],
    reading: Reading,
    *,
    batch_size: int,
    seed: int = 0,
    paired: bool = False,
) -> BatchSource:
    """Shuffled batches of all parts of `training`. languages: the run's, sorted. paired: rows of
    plug-in fine-tuning, each example of a translated set beside the one that it translates. Raises
    UserError for a language that is not the run's."""
    if task.kind == "span_qa":
        # Now, since later a file would be blamed.
        checked_separators(
            vocabulary,
            reading.length,
            reading.stride,
            reading.max_question,
            reading.reset_positions,
        )
    # Before any file is read, so that a language that is not the run's is said at once.
    parts = training.parts(task, data)
    ids = {language: i for i, language in enumerate(languages)}
    needed = [language for _, language in parts]
    if paired:
        needed.append(task.trained_on)
    for language in needed:
        if language not in ids:
            raise UserError(
                f"{training.requested(task, data, language)} is not one of the run's"
                f" ({', '.join(languages)})",
            )
    rows_of_part = _rows_alone
    if paired:
        rows_of_part = _rows_beside_pivot
        # What was not translated has nothing to stand beside.
        parts = [part for part in parts if part[0] != "gold"]
    rows = []
    counts = []
    for origin, language in parts:
        made, count = rows_of_part(
            task,
            data,
            training,
            vocabulary,
            reading,
            origin,
            language,
            ids,
        )
        rows.append(made)
        counts.append(f"{origin} {language} {count}")
    return shuffled_rows(
        rows,
        batch_size,
        languages=languages,
        seed=seed,
        identity={
            "vocabulary": vocabulary.sha256,
            **training.identity(task, counts, reading),
        },
        names=training.names(task, parts),
    )


def _rows_alone(
    task: Task,
    data: str | Path,
    training: Training,
    vocabulary,
    reading: Reading,
    origin: str,
    language: str,
    ids: Mapping[str, int],
) -> tuple[dict[str, np.ndarray], str]:
    """(rows [N, length] of one part, how many examples they hold)."""
    learnt: Sequence[Any] = training.records(task, data, origin, language)
    if origin not in ("gold", "own"):
        learnt = learnable(learnt)
    try:
        rows = task_rows(
            task,
            learnt,
            vocabulary,
            reading,
            language,
            ids[language],
        )
    except UserError as error:
        # Ids of questions may be numbers of rows, alike in every language.
        if task.kind != "span_qa":
            raise
        raise UserError(
            f"{training.described(task, data, origin, language)}: {error}",
        ) from None
    return rows, str(len(learnt))


def _rows_beside_pivot(
    task: Task,
    data: str | Path,
    training: Training,
    vocabulary,
    reading: Reading,
    origin: str,
    language: str,
    ids: Mapping[str, int],
) -> tuple[dict[str, np.ndarray], str]:
    """(rows [N, 2 * length] of one translated part, how many examples they hold and beside
    which)."""
    pairs = training_pairs(task, data, training, origin, language)
    rows = beside_rows(
        task,
        pairs.records,
        pairs.beside,
        vocabulary,
        reading,
        language,
        (ids[language], ids[task.trained_on]),
    )
    return rows, f"{len(pairs.records)} beside {task.trained_on}"
