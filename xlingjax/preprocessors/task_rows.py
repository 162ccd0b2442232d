"""Records of a task to the rows of its objective: alone, or beside what they translate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.labelled.beside import require_parallel
from xlingjax.data.labelled.task import Task
from xlingjax.data.vocabulary.word_pieces import MARKS
from xlingjax.errors import LONGEST_ROW, UserError, require_choice, require_whole
from xlingjax.preprocessors.finetuning import PIECES, classification_rows, tagged_parts, tagged_rows
from xlingjax.preprocessors.plug_in import paired_rows, paired_span_rows, paired_tagged_rows
from xlingjax.preprocessors.span_qa import count_windows, span_rows


@dataclass(frozen=True)
class Reading:
    """How records become rows."""

    length: int = 128
    reset_positions: bool = False
    """See `pair_row`."""
    stride: int = 128
    """Of questions: pieces from one window's begin to the next."""
    max_question: int = 64
    """Of questions: pieces that are kept."""
    longest: int = 30
    """Of questions: pieces of an answer that is given."""
    pieces: str = "first"
    """Of tags: which pieces of a word learn them (see `tagged_rows`)."""
    beams: int = 1
    """Of texts that are written."""
    no_repeat_ngram: int = 0
    """Of texts that are written: no so many tokens in a row twice."""
    apart: bool = True
    """Of tags: words are tokenised one by one (XTREME, XGLUE)."""
    marks: str | None = None
    """Of tags: see `pieces_of_words`; None: the task's."""

    def __post_init__(self):
        sizes = "length stride max_question longest"
        require_whole(self, f"[1, {LONGEST_ROW}]", sizes, "reading: ")
        require_whole(self, "[1, inf)", "beams", "reading: ")
        require_whole(self, "[0, inf)", "no_repeat_ngram", "reading: ")
        require_choice(self, PIECES, "pieces", "reading: ")
        require_choice(self, MARKS, "marks", "reading: ")


def task_rows(
    task: Task,
    records: Sequence[Any],
    vocabulary,
    reading: Reading,
    language: str,
    language_id: int,
) -> dict[str, np.ndarray]:
    """Arrays [N, length] and [N]: the fields that the objective of the task's kind reads."""
    length, reset = reading.length, reading.reset_positions
    if task.kind in ("classification", "ranking"):
        return classification_rows(records, vocabulary, length, task.labels, language_id, reset)
    if task.kind == "tagging":
        return tagged_rows(
            records,
            vocabulary,
            length,
            task.labels,
            language,
            language_id,
            reading.pieces,
            reading.apart,
            reading.marks or task.marks,
        )
    if task.kind == "span_qa":
        return span_rows(
            records,
            vocabulary,
            length,
            language_id,
            stride=reading.stride,
            max_question=reading.max_question,
            reset_positions=reset,
        )[0]
    raise UserError(f"{task.full_name}: a task of {task.kind} is not trained on rows")


def count_rows(
    task: Task, records: Sequence[Any], vocabulary, reading: Reading, language: str
) -> int:
    """How many rows `task_rows` makes: windows of questions, parts of long sentences, else one of
    each record."""
    if task.kind == "span_qa":
        return count_windows(
            records,
            vocabulary,
            reading.length,
            stride=reading.stride,
            max_question=reading.max_question,
            reset_positions=reading.reset_positions,
        )
    if task.kind == "tagging":
        marks = reading.marks or task.marks
        return len(
            tagged_parts(records, vocabulary, reading.length, language, reading.apart, marks)
        )
    return len(records)


def beside_rows(
    task: Task,
    records: Sequence[Any],
    beside: Sequence[Any],
    vocabulary,
    reading: Reading,
    language: str,
    language_ids: tuple[int, int],
) -> dict[str, np.ndarray]:
    """Rows of plug-in fine-tuning: arrays [N, 2 * length] and [N], `records` of a language beside
    their partners in `Task.trained_on`, row by row. Raises UserError where they do not correspond.
    """
    require_parallel(task.full_name, records, beside, language, repr(task.trained_on))
    if task.kind == "span_qa":
        return paired_span_rows(
            records,
            beside,
            vocabulary,
            reading.length,
            language_ids,
            stride=reading.stride,
            max_question=reading.max_question,
            reset_positions=reading.reset_positions,
        )[0]
    if task.kind == "tagging":
        return paired_tagged_rows(
            records,
            beside,
            vocabulary,
            reading.length,
            task.labels,
            (language, task.trained_on),
            language_ids,
            reading.pieces,
            reading.apart,
            reading.marks or task.marks,
        )
    return paired_rows(
        records,
        beside,
        vocabulary,
        reading.length,
        task.labels,
        language_ids,
        reading.reset_positions,
    )
