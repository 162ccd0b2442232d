"""Records as text to text: what a task's examples read and write as SeqIO's `inputs` and
`targets`, and what a written text predicts."""

from __future__ import annotations

import json
import math
from numbers import Integral
from typing import Any

from xlingjax.data.labelled.records import GOLD, Bitext, Example, Question, SourceTarget, Tagged
from xlingjax.data.labelled.task import KINDS

NO_TAG = "O-none"
"""No word has this tag, and to every metric of chunks it is outside of them: so a word that has it
is wrong, and no chunk is made of it."""
WORST_RATING = "-1"
"""Below the ratings of all pages."""


def input_text(record: Any, name: str) -> str:
    """The text to read, in T5's manner: the task's name, and what each part is. Of a bitext, which
    is searched and not read, the name alone."""
    if isinstance(record, Example):
        if record.hypothesis is None:
            return f"{name} text: {record.premise}"
        return f"{name} premise: {record.premise} hypothesis: {record.hypothesis}"
    if isinstance(record, Tagged):
        return f"{name} words: {' '.join(record.words)}"
    if isinstance(record, Question):
        return f"{name} question: {record.question} context: {record.context}"
    if isinstance(record, SourceTarget):
        return f"{name}: {record.source}"
    return name


def target_text(record: Any) -> str:
    """The text to write; "" where the official file has none."""
    if isinstance(record, Example):
        return record.label or ""
    if isinstance(record, Tagged):
        return " ".join(record.tags)
    if isinstance(record, Question):
        # The first of several, as T5 learns; metrics take the record, which has all.
        return (*record.answers, "")[0]
    if isinstance(record, SourceTarget):
        return record.target or ""
    assert isinstance(record, Bitext)
    # A set has no order, and a data set must give the same examples each time.
    return json.dumps(sorted(record.gold or ()))


def text_of(prediction: Any, kind: str) -> str:
    """A prediction as the metrics of a kind of task take it -> the text that says it."""
    if KINDS[kind] == "Tagged":
        # One behind each: no tags, and one that is empty, are not the same.
        return "".join(f"{tag} " for tag in prediction)
    if KINDS[kind] == "Bitext":
        return json.dumps([_pair(one) for one in prediction])
    return prediction


def _pair(one: Any) -> Any:
    """Of Tatoeba the number of a row, of BUCC a pair of ids."""
    if isinstance(one, tuple):
        return list(one)
    return int(one)


def prediction_of(text: Any, kind: str) -> Any:
    """What `text_of` was made of; of any other text what can be read of it. What is no text is a
    prediction already."""
    if not isinstance(text, str):
        return text
    if KINDS[kind] == "Tagged":
        # Not at any white space: a word may have been given no tag.
        tags = text.split(" ")
        # A model that learnt `target_text` writes no space behind the last.
        if not tags[-1]:
            tags.pop()
        return tags
    if KINDS[kind] == "Bitext":
        try:
            read = json.loads(text)
        # A model may write anything, brackets without end too.
        except (ValueError, RecursionError):
            return []
        if not isinstance(read, list):
            return []
        found = []
        for one in read:
            if isinstance(one, list):
                one = tuple(one)
            found.append(one)
        return found
    return text


def answerable(prediction: Any, record: Any, kind: str) -> Any:
    """A prediction as the metrics take it: one that is no answer, since a model may write any text,
    becomes a wrong one.

    Tags of another number than the words are all wrong; a rating that is no number is below all; of
    a bitext rows that are none are None, which is no sentence, and pairs that are none are left
    out.
    """
    if kind == "tagging":
        if len(prediction) != len(record.tags):
            return [NO_TAG] * len(record.tags)
        return [tag or NO_TAG for tag in prediction]
    if kind == "ranking":
        if not _is_number(prediction):
            return WORST_RATING
        return prediction
    if kind == "retrieval":
        if len(prediction) != len(record.target):
            return [None] * len(record.target)
        return [_row(one, len(record.source)) for one in prediction]
    if kind == "mining":
        return [tuple(pair) for pair in prediction if _is_pair(pair)]
    return prediction


def _is_number(text: Any) -> bool:
    try:
        return math.isfinite(float(text))
    except (TypeError, ValueError):
        return False


def _row(one: Any, rows: int) -> Any:
    # True would be taken for row 1. Files of labels alone have no sentences, and any row may be.
    is_row = isinstance(one, Integral) and not isinstance(one, bool)
    if is_row and 0 <= one < (rows or math.inf):
        return one
    return None


def _is_pair(pair: Any) -> bool:
    return (
        isinstance(pair, (tuple, list))
        and len(pair) == 2
        and all(isinstance(id_, str) for id_ in pair)
    )


def has_answer(record: Any) -> bool:
    """Whether the official file has what is to be predicted."""
    return bool(getattr(record, GOLD[type(record)]))
