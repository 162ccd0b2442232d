"""What labelled files hold, whatever their format: a record for each kind of task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xxhash

from xlingjax.errors import UserError


@dataclass(frozen=True)
class Example:
    """A text or a pair of texts, and its class."""

    premise: str
    hypothesis: str | None
    """None: a single text. Either is "" in a translated set where the machine lost it: see
    `is_lost`."""
    label: str | None  # none: the official file has none (a test set)
    line: int = field(default=0, compare=False)  # of its file, from 1
    original: tuple[str, ...] = field(default=(), compare=False)
    """Of a translation whose file holds it: the text it was translated from."""


@dataclass(frozen=True)
class Tagged:
    """A sentence given as words, and the tag of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]  # empty: the official file has none
    line: int = field(default=0, compare=False)  # of its first word, from 1


@dataclass(frozen=True)
class Question:
    """A question whose answer is a span of its context (SQuAD)."""

    id: str
    question: str
    context: str
    answers: tuple[str, ...]  # every gold answer; empty: the official file has none
    starts: tuple[int, ...]  # where each begins in `context`, in characters
    key: str = field(default="", compare=False)
    """Of a numbered question: the id by which its translations know it; "": that is `id`."""


@dataclass(frozen=True)
class SourceTarget:
    """A text and what is to be written for it."""

    source: str
    target: str | None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Bitext:
    """Two texts in two languages and which of their sentences translate each other. Tatoeba: line n
    of one side is line n of the other; BUCC: few sentences of either side have a translation."""

    source: tuple[tuple[str, str], ...]  # (id, sentence) of the foreign side
    target: tuple[tuple[str, str], ...]  # (id, sentence) of the English side
    gold: frozenset[tuple[str, str]] | None  # pairs of ids; None: the official files have none

    def of_first(self, count: int) -> Bitext:
        """The sentences of its first so many pairs of gold, which get their rows for ids; without
        gold the first of each side."""
        if self.gold is None:
            return Bitext(self.source[:count], self.target[:count], None)
        row_of = {id_: row for row, (id_, _) in enumerate(self.source)}
        gold = sorted(self.gold, key=lambda pair: row_of[pair[0]])[:count]
        sides, ids = [], []
        for i, side in enumerate((self.source, self.target)):
            kept = [one for one in side if one[0] in {pair[i] for pair in gold}]
            sides.append(tuple((str(row), text) for row, (_, text) in enumerate(kept)))
            ids.append({id_: str(row) for row, (id_, _) in enumerate(kept)})
        return Bitext(*sides, frozenset((ids[0][a], ids[1][b]) for a, b in gold))


GOLD = {
    Example: "label",
    Tagged: "tags",
    Question: "answers",
    SourceTarget: "target",
    Bitext: "gold",
}
"""Record -> its field that test sets may lack."""


ASKED = {
    Example: ("premise", "hypothesis"),
    Tagged: ("words",),
    Question: ("question", "context"),
    SourceTarget: ("source",),
}
"""Record -> its fields that are no answer, and tell it from others."""


def hashes_asked(records: Sequence[Any]) -> np.ndarray:
    """uint64 [records]: a hash of what is read to answer each, whatever its answer."""
    found = []
    for record in records:
        asked = tuple(getattr(record, name) for name in ASKED[type(record)])
        found.append(xxhash.xxh3_64_intdigest(repr(asked).encode("utf-8", "surrogatepass")))
    return np.array(found, np.uint64)


def is_lost(record: Any) -> bool:
    """Whether a machine's translation has nothing where a text was (PAWS-X's `32035 TAB TAB TAB
    0`). Such a record keeps its row, since rows correspond over the languages, and is not learnt.
    """
    if isinstance(record, Example):
        return "" in (record.premise, record.hypothesis)
    if isinstance(record, Question):
        return "" in (record.question, record.context)
    # The other records come from files in which an empty text is an error.
    return isinstance(record, Tagged) and not record.words


def learnable(records: Sequence[Any]) -> list[Any]:
    """What can be learnt of a translated set: no lost texts, no questions without an answer."""
    return [
        record for record in records if not is_lost(record) and getattr(record, "answers", True)
    ]


def known_label(label: str, labels: Sequence[str] | None, where: str) -> str:
    """The label or tag, if one of `labels` (none: any). Raises UserError beginning with `where`."""
    if labels and label not in labels:
        raise UserError(f"{where}: unknown label {label!r}, expected one of {', '.join(labels)}")
    return label
