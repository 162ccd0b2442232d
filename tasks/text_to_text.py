"""Records as text to text: what a task's examples read and write as SeqIO's `inputs` and
`targets`, and what a written text predicts."""

from __future__ import annotations

import json
from typing import Any

from xlingjax.data.labelled.records import (
    Bitext,
    Example,
    Question,
    SourceTarget,
    Tagged,
)
from xlingjax.data.labelled.task import KINDS


def input_text(record: Any, name: str) -> str:
    """The text to read, in T5's manner: the task's name, and what each part is. Of a bitext, which
    is searched and not read, the name alone."""
    if isinstance(record, Example):
        if record.hypothesis is None:
            return f"{name} text: {record.premise}"
        return (
            f"{name} premise: {record.premise} hypothesis: {record.hypothesis}"
        )
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
    """What `text_of` was made of. What is no text is a prediction already."""
    if not isinstance(text, str):
        return text
    if KINDS[kind] == "Tagged":
        # Not at any white space: a word may have been given no tag.
        return text.split(" ")[:-1]
    if KINDS[kind] == "Bitext":
        found = []
        for one in json.loads(text):
            if isinstance(one, list):
                one = tuple(one)
            found.append(one)
        return found
    return text
