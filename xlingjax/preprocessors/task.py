"""A source of shuffled batches of a task's training set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xlingjax.data.batches.labelled import NamedPart, shuffled_batches
from xlingjax.data.batches.loader import BatchSource
from xlingjax.data.labelled.task import Task
from xlingjax.errors import UserError
from xlingjax.preprocessors.parts import Part, stored
from xlingjax.preprocessors.span_qa import checked_separators
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import Training
from xlingjax.runtime.checked_file import hash_of


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
    by_length: bool = False,
) -> BatchSource:
    """Shuffled batches of all parts of `training`. languages: the run's, sorted. paired: rows of
    plug-in fine-tuning, each example of a translated set beside the one that it translates.
    by_length: see `shuffled_batches`. Raises UserError for a language that is not the run's."""
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
    pivot = [task.trained_on] if paired else []
    for language in [*(language for _, language in parts), *pivot]:
        if language not in ids:
            raise UserError(
                f"{task.full_name}: training language {language!r} is not one of the run's"
                f" ({', '.join(languages)})"
            )
    parts_of_task = [
        Part(task, str(data), training, reading, origin, language, paired)
        for origin, language in parts
        # What was not translated has nothing to stand beside.
        if not (paired and origin == "gold")
    ]
    rows = []
    counts = []
    digests = []
    asked = []
    for part, entry in zip(parts_of_task, stored(parts_of_task, vocabulary), strict=True):
        name = f"{part.origin} {part.language}"
        asked.append(entry.asked)
        of_texts = tuple(ids[language] for language in [part.language, *pivot])
        rows.append(NamedPart(name, entry.rows, of_texts))
        digests.append([entry.facts["digest"], of_texts])
        beside = f" beside {task.trained_on}" if paired else ""
        counts.append(f"{name} {entry.facts['learnt']}{beside}")
    source = shuffled_batches(
        rows,
        batch_size,
        reading.length,
        languages=languages,
        seed=seed,
        identity={
            "vocabulary": vocabulary.sha256,
            "digest": hash_of(repr(digests).encode()),
            **training.identity(task, counts, reading),
        },
        by_length=by_length,
    )
    source.asked = tuple(asked)
    return source
