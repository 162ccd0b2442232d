"""Records of a task to the rows of its objective: alone, or beside what they translate (plug-in
fine-tuning, VECO §3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.labelled.beside import require_parallel
from xlingjax.data.labelled.task import Task
from xlingjax.data.vocabulary.word_pieces import MARKS
from xlingjax.errors import LONGEST_ROW, UserError, require_choice, require_whole
from xlingjax.preprocessors.finetuning import (
    PIECES,
    Places,
    Rows,
    classification_rows,
    places_of_parts,
    tagged_rows,
)
from xlingjax.preprocessors.span_qa import places_of_windows, span_rows


@dataclass(frozen=True)
class Reading:
    """How records become rows."""

    length: int = 128
    reset_positions: bool = False  # see `pair_rows`
    stride: int = 128  # of questions: pieces from one window's begin to the next
    max_question: int = 64  # of questions: pieces that are kept
    longest: int = 30  # of questions: pieces of an answer that is given
    pieces: str = "first"  # of tags: which pieces of a word learn them (see `tagged_rows`)
    beams: int = 1  # of texts that are written
    no_repeat_ngram: int = 0  # of texts that are written: no so many tokens in a row twice
    apart: bool = True  # of tags: words are tokenised one by one (XTREME, XGLUE)
    marks: str | None = None  # of tags: see `pieces_of_words`; None: the task's

    def __post_init__(self):
        sizes = "length stride max_question longest"
        require_whole(self, f"[1, {LONGEST_ROW}]", sizes, "reading: ")
        require_whole(self, "[1, inf)", "beams", "reading: ")
        require_whole(self, "[0, inf)", "no_repeat_ngram", "reading: ")
        require_choice(self, PIECES, "pieces", "reading: ")
        require_choice(self, MARKS, "marks", "reading: ")


@dataclass(frozen=True)
class Beside:
    """What stands beside the examples that are predicted, example by example."""

    records: Sequence[Any]
    language: str
    language_id: int


def task_rows(
    task: Task,
    records: Sequence[Any],
    vocabulary,
    reading: Reading,
    language: str,
    language_id: int,
) -> tuple[Rows, Places]:
    """(arrays [N, length] and [N], the fields that the objective of the task's kind reads; what of
    which example each row shows)."""
    length, reset = reading.length, reading.reset_positions
    if task.kind in ("classification", "ranking"):
        rows = classification_rows(records, vocabulary, length, task.labels, language_id, reset)
        return rows, [(number, 0.5) for number in range(len(records))]
    if task.kind == "tagging":
        rows, parts = tagged_rows(
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
        return rows, places_of_parts(parts)
    if task.kind == "span_qa":
        rows, windows = span_rows(
            records,
            vocabulary,
            length,
            language_id,
            stride=reading.stride,
            max_question=reading.max_question,
            reset_positions=reset,
        )
        return rows, places_of_windows(windows, records)
    raise UserError(f"{task.full_name}: a task of {task.kind} is not trained on rows")


def beside_rows(
    task: Task,
    records: Sequence[Any],
    beside: Sequence[Any],
    vocabulary,
    reading: Reading,
    language: str,
    language_ids: tuple[int, int],
) -> Rows:
    """Rows of plug-in fine-tuning: arrays [N, 2 * length] and [N], `records` of a language beside
    their partners in `Task.trained_on` (see `side_by_side`). Raises UserError where they do not
    correspond."""
    require_parallel(task.full_name, records, beside, language, repr(task.trained_on))
    own_id, pivot_id = language_ids
    own = task_rows(task, records, vocabulary, reading, language, own_id)
    pivot = task_rows(task, beside, vocabulary, reading, task.trained_on, pivot_id)
    return side_by_side(*own, *pivot)


def side_by_side(one: Rows, places: Places, two: Rows, others: Places) -> Rows:
    """A row for each row of `one`: in the columns behind it that row of `two` which shows the same
    example, and whose middle stands nearest in it, each padded by itself. The labels are those of
    `one`, of either side where tags and answers stand in columns."""
    of_example: dict[int, list[int]] = {}
    for row, (example, _) in enumerate(others):
        of_example.setdefault(example, []).append(row)
    # Of two as near the first.
    chosen = [
        min(of_example[example], key=lambda row: abs(others[row][1] - middle))
        for example, middle in places
    ]
    two = {name: values[np.array(chosen, np.int64)] for name, values in two.items()}
    # In one row: what stands before and behind a token differs, but a batch keeps one axis of
    # examples.
    rows = {
        name: np.concatenate([values, two[name]], axis=1) if values.ndim == 2 else values
        for name, values in one.items()
    }
    # The texts within an example need no side: plugged in, each example is one text, as VECO's side
    # is.
    rows["sides"] = np.concatenate([np.zeros_like(one["pack_ids"]), two["pack_ids"]], axis=1)
    for name in {"start_positions", "end_positions"} & {*one}:
        # Of the whole row; 0, the first token of its side, among them.
        rows[f"beside_{name}"] = (two[name] + one["pack_ids"].shape[1]).astype(np.int32)
    return rows
