"""Labelled examples that are given in two languages, to the rows of plug-in fine-tuning (VECO
§3.1): pairs of texts, questions with their contexts, tagged sentences.

A row is the example in one language, then in the other, each in the row that it has alone and
padded by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.labelled.records import Example, Question, Tagged
from xlingjax.preprocessors.finetuning import classification_rows, tagged_parts, tagged_rows
from xlingjax.preprocessors.span_qa import Window, span_rows

Rows = dict[str, np.ndarray]


@dataclass(frozen=True)
class Beside:
    """What stands beside the examples that are predicted, example by example."""

    records: Sequence[Any]
    language: str
    language_id: int


_OF_TOKENS = ("input_ids", "position_ids", "language_ids", "pack_ids")


def paired_rows(
    first: Sequence[Example],
    second: Sequence[Example],
    vocabulary,
    length: int,
    labels: Sequence[str],
    language_ids: Sequence[int],
    reset_positions: bool = False,
) -> Rows:
    """Arrays [N, 2 * length] and [N], the features that `PlugIn` reads: side 0 is `first` in
    columns 0 to length, side 1 `second` in the others. Positions start anew with it."""
    sides = []
    for examples, language in zip((first, second), language_ids, strict=True):
        sides.append(
            classification_rows(examples, vocabulary, length, labels, language, reset_positions)
        )
    one, two = sides
    # The label is that of the example, in whichever language it is read.
    return _side_by_side(one, two, _OF_TOKENS) | {
        "labels": one["labels"],
        "example_weights": one["example_weights"],
    }


def paired_span_rows(
    first: Sequence[Question],
    second: Sequence[Question],
    vocabulary,
    length: int,
    language_ids: Sequence[int],
    *,
    stride: int = 128,
    max_question: int = 64,
    reset_positions: bool = False,
    answers: bool = True,
) -> tuple[Rows, list[Window]]:
    """(arrays [N, 2 * length] and [N], the window of `first` in each row): the features that
    `PlugInSpans` reads.

    A row for every window of `first`'s contexts, beside the window of its partner whose middle
    stands nearest in the context. answers False: without those of either side. The rest: see
    `span_rows`.
    """
    sides = []
    for questions, language in zip((first, second), language_ids, strict=True):
        sides.append(
            span_rows(
                questions,
                vocabulary,
                length,
                language,
                stride=stride,
                max_question=max_question,
                reset_positions=reset_positions,
                answers=answers,
            )
        )
    (one, windows), (two, others) = sides
    chosen = _nearest(_middles(windows, first), _middles(others, second))
    two = _taken(two, chosen)
    rows = _side_by_side(one, two, (*_OF_TOKENS, "answer_columns"))
    rows["example_weights"] = one["example_weights"]
    if answers:
        for name in ("start_positions", "end_positions"):
            rows[name] = one[name]
            # Of the whole row; 0, the first token of its side, among them.
            rows[f"beside_{name}"] = (two[name] + length).astype(np.int32)
    return rows, windows


def paired_tagged_rows(
    first: Sequence[Tagged],
    second: Sequence[Tagged],
    vocabulary,
    length: int,
    tags: Sequence[str],
    languages: Sequence[str],
    language_ids: Sequence[int],
    pieces: str = "first",
    apart: bool = True,
    marks: str = "kept",
) -> Rows:
    """Arrays [N, 2 * length], the features that `PlugInTagging` reads: a row for every part of the
    sentences of `first` (see `tagged_parts`), beside the part of its partner whose middle stands
    nearest. A sentence without tags has weight 0, and its partner's tags are learnt all the same.
    """
    rows = []
    middles = []
    for sentences, language, language_id in zip(
        (first, second), languages, language_ids, strict=True
    ):
        how = (language, apart, marks)
        parts = tagged_parts(sentences, vocabulary, length, *how)
        middles.append(_middles_of_parts(parts))
        rows.append(
            tagged_rows(
                sentences, vocabulary, length, tags, language, language_id, pieces, apart, marks
            )
        )
    one, two = rows
    chosen = _nearest(*middles)
    names = (*_OF_TOKENS, "tag_labels", "tag_weights")
    return _side_by_side(one, _taken(two, chosen), names)


def _side_by_side(one: Rows, two: Rows, names: Sequence[str]) -> Rows:
    # In one row: what stands before and behind a token
    # differs, but a batch keeps one axis of examples.
    rows = {}
    for name in names:
        rows[name] = np.concatenate([one[name], two[name]], axis=1)
    # The texts within an example need no side: plugged in, each example is one text, as VECO's side
    # is.
    rows["sides"] = np.concatenate([np.zeros_like(one["pack_ids"]), two["pack_ids"]], axis=1)
    return rows


def _taken(rows: Mapping[str, np.ndarray], chosen: np.ndarray) -> Rows:
    return {name: values[chosen] for name, values in rows.items()}


# ---- which part of a long example stands beside which --------------------------------------------

Middles = list[tuple[int, float]]
"""(example, where in it the middle of a part stands: 0 its begin, 1 its end) of every part."""


def _nearest(parts: Middles, others: Middles) -> np.ndarray:
    """int[len(parts)]: for each part that of the same example, of `others`, whose middle is
    nearest; of two as near the first."""
    of_example: dict[int, list[int]] = {}
    for row, (example, _) in enumerate(others):
        of_example.setdefault(example, []).append(row)
    chosen = []
    for example, middle in parts:
        distances = []
        for row in of_example[example]:
            distances.append((abs(others[row][1] - middle), row))
        chosen.append(min(distances)[1])
    return np.array(chosen, np.int64)


def _middles(windows: Sequence[Window], questions: Sequence[Question]) -> Middles:
    middles = []
    for window in windows:
        begin = window.spans[0, 0]
        end = window.spans[-1, 1]
        characters = len(questions[window.question].context)
        middles.append((window.question, float(begin + end) / 2 / characters))
    return middles


def _middles_of_parts(parts: Sequence[tuple[int, list[int], list[int]]]) -> Middles:
    pieces: dict[int, int] = {}
    for number, ids, _ in parts:
        pieces[number] = pieces.get(number, 0) + len(ids)
    middles = []
    before: dict[int, int] = {}
    for number, ids, _ in parts:
        begin = before.get(number, 0)
        before[number] = begin + len(ids)
        # A sentence without pieces has one part, of none.
        whole = max(pieces[number], 1)
        middles.append((number, (begin + len(ids) / 2) / whole))
    return middles
