"""Which example of one file translates which of another: by line, by the text that was translated,
or by id. Plug-in fine-tuning reads each beside the other (VECO §3.1)."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from xlingjax.data.labelled.records import Example, Question
from xlingjax.errors import UserError

MOST_UNPAIRED = 0.05  # of a file's examples without partner: many show files of two releases


@dataclass(frozen=True)
class Pairs:
    """Which row stands beside which."""

    partners: Sequence[int | None]  # of each row: its partner's; None: it has none
    by: str  # "line", "original text" or "id"

    @property
    def unpaired(self) -> int:
        return sum(row is None for row in self.partners)

    def said(self, remainder: str) -> str:
        """What is said of rows without a partner, "" of none. remainder: what becomes of them."""
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

    Questions are paired by id. Texts by the text that was translated, where a file holds it
    (XTREME's five columns): letters and digits alone are compared, and of equal texts those of the
    same label, in their order. All others by line. name: the task's; there: the pivot's language
    and place, for messages. Raises UserError where more than `MOST_UNPAIRED` have no partner.
    """
    by = "line"
    if isinstance(records[0], Question):
        by = "id"
        own, ids = _ids(records), _ids(pivot)
        # TyDiQA's shortened ids come many times, and tell nothing.
        often = Counter(ids)
        others = [id_ if often[id_] == 1 else None for id_ in ids]
    elif isinstance(records[0], Example) and (records[0].original or pivot[0].original):
        own, others = _texts(records, pivot)
        if own != others:
            by = "original text"
    if by == "line":
        require_parallel(name, records, pivot, language, there)
        return Pairs(range(len(records)), by)
    pairs = Pairs(_partners(own, others), by)
    if pairs.unpaired > MOST_UNPAIRED * len(records):
        raise UserError(
            f"{name}: {pairs.unpaired:,} of {len(records):,} examples in {language!r} have no"
            f" partner by {by} in {there}, and at most {MOST_UNPAIRED:.0%} may be left out:"
            " get both files from one release"
        )
    return pairs


def _labels_agree(first: Any, second: Any) -> bool:
    # Tagged sentences have none that could be compared.
    labels = (getattr(first, "label", None), getattr(second, "label", None))
    return None in labels or labels[0] == labels[1]


def _partners(own: Sequence[Hashable], others: Sequence[Hashable]) -> list[int | None]:
    """Each key's row among `others`; equal keys in order, the last one beside all that are left."""
    rows: dict[Hashable, list[int]] = {}
    for row, key in enumerate(others):
        rows.setdefault(key, []).append(row)
    taken: Counter[Hashable] = Counter()
    partners = []
    for key in own:
        fitting = rows.get(key)
        partners.append(fitting[min(taken[key], len(fitting) - 1)] if fitting else None)
        taken[key] += 1
    return partners


def _ids(records: Sequence[Question]) -> list[str]:
    return [question.key or question.id for question in records]


def _texts(
    records: Sequence[Example], pivot: Sequence[Example]
) -> tuple[list[Hashable], list[Hashable]]:
    """What both files have of one text, and its label where both have labels."""
    labelled = all(one.label is not None for one in (*records, *pivot))
    sides = []
    for side, holds_original in (
        (records, bool(records[0].original)),
        (pivot, not records[0].original),
    ):
        keys: list[Hashable] = []
        for one in side:
            texts = one.original if holds_original else (one.premise, one.hypothesis)
            letters = tuple(_letters(text) for text in texts if text is not None)
            keys.append((letters, one.label if labelled else None))
        sides.append(keys)
    return sides[0], sides[1]


_MARKS = re.compile(r"[\W_]+")


# A premise stands in several examples, one after the other.
@functools.lru_cache(maxsize=1024)
def _letters(text: str) -> str:
    """Its letters and digits, small: what tokenising, quoting and spaces leave as it is."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    # A text of marks alone is what it is.
    return _MARKS.sub("", folded) or text
