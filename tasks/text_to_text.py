"""Records as text to text: SeqIO's `inputs` and `targets`, and what a written text predicts."""

from __future__ import annotations

import math
from typing import Any

from xlingjax.data.labelled.records import Example, Question, SourceTarget, Tagged
from xlingjax.data.labelled.task import KINDS

NO_TAG = "O-none"  # a tag that no word has and no metric counts as a chunk: a word with it is wrong
WORST_RATING = "-1"  # below the ratings of all pages


def input_text(record: Any, name: str) -> str:
    """The text to read, in T5's manner: the task's name, then each part; of a bitext no part."""
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
    """The text to write; "" where the official file has none, and of a bitext."""
    if isinstance(record, Example):
        return record.label or ""
    if isinstance(record, Tagged):
        return " ".join(record.tags)
    if isinstance(record, Question):
        # The first of several, as T5 learns; metrics take the record, which has all.
        return (*record.answers, "")[0]
    if isinstance(record, SourceTarget):
        return record.target or ""
    return ""


def text_of(prediction: Any, kind: str) -> str:
    """A prediction as the metrics of a kind of task take it -> the text that says it."""
    if KINDS[kind] == "Tagged":
        # A space behind each: no tags, and one empty tag, are not the same.
        return "".join(f"{tag} " for tag in prediction)
    return prediction


def prediction_of(text: Any, kind: str) -> Any:
    """The inverse of `text_of`, for any text. What is no text is a prediction already."""
    if isinstance(text, str) and KINDS[kind] == "Tagged":
        # Not at any white space: a word may have been given no tag. A model that learnt
        # `target_text` writes no space behind the last.
        return text.removesuffix(" ").split(" ") if text else []
    return text


def answerable(prediction: Any, record: Any, kind: str) -> Any:
    """A prediction as the metrics take it. A model may write any text: tags of another number than
    the words are all wrong, and a rating that is no number is below all."""
    if kind == "tagging":
        if len(prediction) != len(record.tags):
            return [NO_TAG] * len(record.tags)
        return [tag or NO_TAG for tag in prediction]
    if kind == "ranking":
        try:
            is_number = math.isfinite(float(prediction))
        except ValueError:
            is_number = False
        return prediction if is_number else WORST_RATING
    return prediction
