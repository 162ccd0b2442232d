"""Which example of one file translates which of another: by line, by the text that was translated,
or by id. Plug-in fine-tuning reads each beside the other (VECO §3.1)."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xlingjax.data.labelled.records import Example, Question
from xlingjax.errors import UserError

MOST_UNPAIRED = 0.05
"""The share of a file's examples that may have no partner: a few are lost on the way, many show
files of two releases."""


@dataclass(frozen=True)
class Pairs:
    """Which row stands beside which."""

    partners: Sequence[int | None]
    """Of each row: its partner's; None: it has none."""
    by: str
    """"line", "original text" or "id"."""

    @property
    def unpaired(self) -> int:
        return sum(row is None for row in self.partners)

    def said(self, remainder: str) -> str:
        """What is said of rows without a partner; "": there are none. remainder: what becomes of
        them."""
        if not self.unpaired:
            return ""
        rows = len(self.partners)
        return (
            f"{self.unpaired:,} of {rows:,} examples ({self.unpaired / rows:.1%}) have no"
            f" partner by {self.by}: {remainder}"
        )


def require_parallel(
    name: str, records: Sequence[Any], pivot: Sequence[Any], language: str, there: str
) -> None:
    """Raise UserError where `records` of a language and `pivot` do not correspond line by line.
    name: the task's; there: the pivot's language and place, for messages."""
    if len(records) != len(pivot):
        raise UserError(
            f"{name}: {len(records)} examples in {language!r} and {len(pivot)} in"
            f" {there}: plug-in fine-tuning reads every example in two languages, line by line"
        )
    for first, second in zip(records, pivot, strict=True):
        if not _labels_agree(first, second):
            raise UserError(
                f"{name}, line {first.line} in {language!r} is {first.label!r}, line"
                f" {second.line} in {there} {second.label!r}: the two files must hold the same"
                " examples in the same order"
            )


def paired(
    name: str, records: Sequence[Any], pivot: Sequence[Any], language: str, there: str
) -> Pairs:
    """The partner of each of `records` among `pivot`: one file translates the other.

    Questions are paired by id. Texts by line where line n translates line n; else by the text that
    was translated, where a file holds it (XTREME's five columns): letters and digits alone are
    compared, and of equal texts those of the same label, in their order. Tagged sentences by line.
    name: the task's; there: the pivot's language and place, for messages. Raises UserError where
    more than `MOST_UNPAIRED` have no partner.
    """
    if isinstance(records[0], Question):
        pairs = _by_id(records, pivot)
    else:
        keys = _texts(records, pivot)
        if keys is None:
            require_parallel(name, records, pivot, language, there)
            return Pairs(range(len(records)), "line")
        own, others = keys
        agree = _lines_agree(records, pivot)
        if agree and own == others:
            return Pairs(range(len(records)), "line")
        pairs = _by_text(own, others, records, pivot)
        too_many = pairs.unpaired > MOST_UNPAIRED * len(records)
        # Of other texts, as an edition with other tokens, labels in one order tell as much, unless
        # what is known by its text stands in other lines: then they agree by chance.
        labelled = agree and records[0].label is not None
        if too_many and labelled and not _in_other_lines(pairs):
            return Pairs(range(len(records)), "line")
    if pairs.unpaired > MOST_UNPAIRED * len(records):
        raise UserError(
            f"{name}: {pairs.unpaired:,} of {len(records):,} examples in {language!r} have no"
            f" partner by {pairs.by} in {there}, and at most {MOST_UNPAIRED:.0%} may be left out:"
            " get both files from one release"
        )
    return pairs


def _in_other_lines(pairs: Pairs) -> bool:
    """Whether most of those that have a partner have it in another line."""
    found = [(row, partner) for row, partner in enumerate(pairs.partners) if partner is not None]
    moved = sum(row != partner for row, partner in found)
    return 2 * moved > len(found)


def _labels_agree(first: Any, second: Any) -> bool:
    # Tagged sentences have none that could be compared.
    labels = (getattr(first, "label", None), getattr(second, "label", None))
    return None in labels or labels[0] == labels[1]


def _lines_agree(records: Sequence[Any], pivot: Sequence[Any]) -> bool:
    if len(records) != len(pivot):
        return False
    return all(map(_labels_agree, records, pivot))


# ---- by id ---------------------------------------------------------------------------------------


def _by_id(records: Sequence[Question], pivot: Sequence[Question]) -> Pairs:
    ids = [_key(question) for question in pivot]
    often = Counter(ids)
    rows = {key: row for row, key in enumerate(ids)}
    partners = []
    for question in records:
        key = _key(question)
        # TyDiQA's shortened ids come many times, and tell nothing.
        partners.append(rows[key] if often[key] == 1 else None)
    return Pairs(partners, "id")


def _key(question: Question) -> str:
    return question.key or question.id


# ---- by text -------------------------------------------------------------------------------------


def _texts(
    records: Sequence[Any], pivot: Sequence[Any]
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]] | None:
    """What both files have of one text, row by row; None: neither holds the other's."""
    if not isinstance(records[0], Example):
        return None
    if records[0].original:
        return _originals(records), _own(pivot)
    if pivot[0].original:
        return _own(records), _originals(pivot)
    return None


def _own(records: Sequence[Example]) -> list[tuple[str, ...]]:
    keys = []
    for record in records:
        texts = [record.premise]
        if record.hypothesis is not None:
            texts.append(record.hypothesis)
        keys.append(tuple(map(_letters, texts)))
    return keys


def _originals(records: Sequence[Example]) -> list[tuple[str, ...]]:
    return [tuple(map(_letters, record.original)) for record in records]


_MARKS = re.compile(r"[\W_]+")


# A premise stands in several examples, one after the other.
@functools.lru_cache(maxsize=1024)
def _letters(text: str) -> str:
    """Its letters and digits, small: what tokenising, quoting and spaces leave as it is."""
    if text.isascii():
        folded = text.lower()
    else:
        folded = unicodedata.normalize("NFKC", text).casefold()
    # A text of marks alone is what it is.
    return _MARKS.sub("", folded) or text


def _by_text(
    keys: Sequence[tuple[str, ...]],
    others: Sequence[tuple[str, ...]],
    records: Sequence[Example],
    pivot: Sequence[Example],
) -> Pairs:
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, key in enumerate(others):
        rows.setdefault(key, []).append(row)
    taken: Counter[tuple[tuple[str, ...], str | None]] = Counter()
    partners: list[int | None] = []
    for record, key in zip(records, keys, strict=True):
        fitting = []
        for row in rows.get(key, ()):
            if _labels_agree(record, pivot[row]):
                fitting.append(row)
        if not fitting:
            partners.append(None)
            continue
        # Of equal texts the first beside the first; the last one beside all that are left.
        nth = taken[key, record.label]
        partners.append(fitting[min(nth, len(fitting) - 1)])
        taken[key, record.label] += 1
    return Pairs(partners, "original text")
