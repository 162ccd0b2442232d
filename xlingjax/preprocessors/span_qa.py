"""Questions whose answer is a span of a context, to rows: long contexts in windows, characters to
pieces.

A row is a question and a window of its context in the layout of `pair_rows`. Windows begin every
`stride` pieces until one reaches the end (BERT's run_squad.py, XTREME's too). An answer that a
window does not hold whole stands at the row's first token, start and end.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xlingjax.data.labelled.records import Question
from xlingjax.errors import UserError
from xlingjax.preprocessors.finetuning import Places, Rows, joined, pair_rows, pair_separators


@dataclass(frozen=True)
class Window:
    """What a row shows of a context."""

    question: int
    """Index of the question that it belongs to."""
    column: int
    """Of the context's first piece in the row."""
    spans: np.ndarray
    """int[n, 2]: the characters `begin:end` of the context that each piece stands for."""
    maximal: np.ndarray
    """bool[n]: no other window shows more around the piece (see `maximal_context`)."""


def window_bounds(pieces: int, room: int, stride: int) -> list[tuple[int, int]]:
    """`begin:end` of the windows of at most `room` pieces over so many; a stride beyond `room` is
    as `room`, so that every piece is in one."""
    # A context that fits has one window, whatever the stride.
    bounds = [(0, min(room, pieces))]
    while bounds[-1][1] < pieces:
        begin = bounds[-1][0] + min(room, stride)
        bounds.append((begin, min(begin + room, pieces)))
    return bounds


def maximal_context(bounds: Sequence[tuple[int, int]], pieces: int) -> np.ndarray:
    """int[pieces]: the window in which a piece has most on its poorer side, among equals the
    longer, then the earlier one (BERT's `_check_is_max_context`)."""
    at = np.arange(pieces)
    scores = []
    for begin, end in bounds:
        poorer_side = np.minimum(at - begin, end - 1 - at)
        # A hundredth of the length decides between equals, as in BERT's code.
        score = poorer_side + 0.01 * (end - begin)
        # Below every score: the window does not show the piece.
        scores.append(np.where((begin <= at) & (at < end), score, -1.0))
    # Of equals argmax takes the first, which is the earlier window.
    return np.argmax(scores, axis=0)


def answer_pieces(question: Question, spans: np.ndarray) -> tuple[int, int]:
    """(first, last) piece of the context that the first gold answer touches, blanks around it left
    out.

    spans: int[n, 2], of the context's pieces. Raises UserError naming the question where it has no
    answer with its start in the context, or the answer has no piece.
    """
    if not question.answers or len(question.starts) != len(question.answers):
        raise UserError(
            f"question {question.id}: no answer with its start to train on; use a labelled file"
        )
    # The first of several, as in run_squad.py; scoring knows them all.
    answer = question.answers[0]
    begin = question.starts[0]
    end = begin + len(answer.rstrip())
    # A negative start would count from the end of the context.
    stands = begin >= 0 and question.context[begin : begin + len(answer)] == answer
    # No piece stands for the blanks around it.
    begin += len(answer) - len(answer.lstrip())
    # A piece may reach beyond the answer on either side: it is still part of it.
    touched = np.flatnonzero((spans[:, 0] < end) & (spans[:, 1] > begin))
    if not stands or begin >= end or not touched.size:
        raise UserError(
            f"question {question.id}: its answer {answer!r} does not stand at character"
            f" {question.starts[0]} of its context, or has no piece there: correct answer_start or"
            " remove the question"
        )
    return int(touched[0]), int(touched[-1])


def checked_separators(
    vocabulary, length: int, stride: int, max_question: int, reset_positions: bool
) -> int:
    """Special tokens of a row. Raises UserError for sizes that leave no room for a context."""
    separators = pair_separators(vocabulary, reset_positions)
    if min(stride, max_question) < 1 or length <= max_question + separators:
        raise UserError(
            f"rows of {length} tokens with questions of up to {max_question}, windows {stride}"
            f" apart: LENGTH must be above MAX_QUESTION + {separators}, MAX_QUESTION and STRIDE"
            " above 0"
        )
    return separators


def span_rows(
    questions: Sequence[Question],
    vocabulary,
    length: int,
    language_id: int,
    *,
    stride: int = 128,
    max_question: int = 64,
    reset_positions: bool = False,
    answers: bool = True,
) -> tuple[Rows, list[Window]]:
    """(arrays [N, length] and [N], the window of each row): the features that `SpanQA` reads, of
    all questions of one language in their order.

    stride: pieces from one window's begin to the next. max_question: pieces of a question that are
    kept. reset_positions: see `pair_rows`. answers False: without start_positions and
    end_positions, for files without answers. Raises UserError for sizes that leave no room and for
    a question's faults (see `answer_pieces`).
    """
    separators = checked_separators(vocabulary, length, stride, max_question, reset_positions)

    # Several questions ask about one context, which takes long to encode.
    @functools.cache
    def encoded(context: str) -> tuple[list[int], np.ndarray]:
        ids, spans = vocabulary.encode_with_spans(context)
        return ids, np.array(spans, np.int64).reshape(-1, 2)

    asked = []
    shown = []
    windows = []
    ends = []
    for index, question in enumerate(questions):
        ids, spans = encoded(question.context)
        if not ids:
            raise UserError(f"question {question.id}: its context is empty")
        question_ids = vocabulary.encode(question.question)[:max_question]
        first, last = answer_pieces(question, spans) if answers else (0, 0)
        # Behind the question and all separators but the last, which closes the row.
        column = len(question_ids) + separators - 1
        bounds = window_bounds(len(ids), length - separators - len(question_ids), stride)
        # Windows overlap: at prediction a piece counts in the one that shows most around it.
        best = maximal_context(bounds, len(ids))
        for number, (begin, end) in enumerate(bounds):
            asked.append(question_ids)
            shown.append(ids[begin:end])
            windows.append(Window(index, column, spans[begin:end], best[begin:end] == number))
            # Held in part is not held: half an answer would be learnt as a whole one.
            held = begin <= first and last < end
            ends.append((column + first - begin, column + last - begin) if held else (0, 0))
    if not windows:
        raise UserError("no questions: the file is empty")
    rows = pair_rows(joined(asked), joined(shown), vocabulary, length, reset_positions)
    # The first token too, at which an answer stands that the window does not hold.
    answer_columns = np.zeros((len(windows), length), np.int32)
    answer_columns[:, 0] = 1
    for row, window in enumerate(windows):
        answer_columns[row, window.column : window.column + len(window.spans)] = 1
    rows |= {
        "language_ids": (language_id * rows["pack_ids"]).astype(np.int32),
        "answer_columns": answer_columns,
        "example_weights": np.ones(len(windows), np.float32),
    }
    if answers:
        starts, stops = np.array(ends, np.int32).T
        rows |= {"start_positions": starts, "end_positions": stops}
    return rows, windows


def places_of_windows(windows: Sequence[Window], questions: Sequence[Question]) -> Places:
    places = []
    for window in windows:
        middle = float(window.spans[0, 0] + window.spans[-1, 1]) / 2
        places.append((window.question, middle / len(questions[window.question].context)))
    return places
