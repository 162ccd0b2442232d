"""Metrics of tags: CoNLL's entities, seqeval's chunks, tags one by one.

Each takes the tags of N sentences, predicted and gold, of equal lengths, and gives shares in 0..1.
"""

import re
from collections.abc import Callable, Collection, Sequence
from itertools import chain

from xlingjax.errors import UserError

Tags = Sequence[Sequence[str]]

FILL = "O"  # what XGLUE puts where a prediction is shorter than its sentence


_OPENS = frozenset("BSUW")  # of a first word; S, U, W of one-word entities (IOBES, BILOU, BMEWO)
_GOES_ON = frozenset("IMEL")
_CLOSES = frozenset("ELSUW")
_ENTITY_TAG = re.compile(r"O|[BIMESULW](-.+)?")


def require_entities(labels: Sequence[str]) -> None:
    """Raises UserError unless labels are tags of entities, marked in front of their type."""
    strange = [label for label in labels if not _ENTITY_TAG.fullmatch(label)]
    if strange or not any(label[0] != "O" for label in labels):
        raise UserError(
            f"LABELS {', '.join(strange or labels)}: METRIC f1 counts entities, whose tags are O,"
            " B-X and I-X (also E-, L-, S-, U-, M-, W-): write them so, or set METRIC to accuracy"
        )


def entities(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """{(first word, last word, type)} of IOB2 tags, as CoNLL's scorer reads them: I- after nothing
    of its type opens one too; and of IOBES, BILOU, BMEWO."""
    found = set()
    begin = 0
    kind = None
    # One more tag, which closes what the sentence leaves open.
    for i, tag in enumerate([*tags, "O"]):
        mark, _, name = tag.partition("-")
        if kind is not None and (mark not in _GOES_ON or name != kind):
            found.add((begin, i - 1, kind))
            kind = None
        if kind is None and mark in _OPENS | _GOES_ON:
            begin = i
            kind = name
        if kind is not None and mark in _CLOSES:
            found.add((begin, i, kind))
            kind = None
    return found


def chunks(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """{(first word, last word, type)} as seqeval 0.0.x reads any tag: its mark is the first
    character, its type all after the last "-". So NOUN NOUN is one chunk, and SYM SYM two, since S
    stands for a single word."""
    found = set()
    begin = 0
    mark = "O"
    kind = ""
    # One more tag, which closes what the sentence leaves open.
    for i, tag in enumerate([*tags, "O"]):
        mark_before = mark
        kind_before = kind
        mark = tag[0]
        kind = tag.rsplit("-", 1)[-1]
        # seqeval 0.0.12's rules (end_of_chunk, start_of_chunk): any first letter is a mark.
        other = kind != kind_before
        if (
            mark_before in "ES"
            or (mark_before in "BI" and mark in "BSO")
            or (mark_before not in "O." and other)
        ):
            found.add((begin, i - 1, kind_before))
        if mark in "BS" or (mark_before in "ESO" and mark in "EI") or (mark not in "O." and other):
            begin = i
    return found


def precision_recall_f1(
    predicted: Tags, gold: Tags, spans: Callable[[Sequence[str]], set] = chunks
) -> tuple[float, float, float]:
    """Micro precision, recall and F1 of the `spans` of all sentences; 0 where there are none."""
    # With the sentence's number, so that the spans of all are one set.
    wanted, made = (
        {(number, span) for number, tags in enumerate(sentences) for span in spans(tags)}
        for sentences in (gold, predicted)
    )
    return rates(wanted, made)


def rates(gold: Collection, made: Collection) -> tuple[float, float, float]:
    """Precision, recall and F1 of one set; 0 where nothing is right."""
    right = len({*gold} & {*made})
    if not right:
        return 0.0, 0.0, 0.0
    precision = right / len(made)
    recall = right / len(gold)
    return precision, recall, 2 * precision * recall / (precision + recall)


def entity_f1(predicted: Tags, gold: Tags) -> float:
    """Micro F1 of `entities`."""
    return precision_recall_f1(predicted, gold, entities)[2]


def token_accuracy(predicted: Tags, gold: Tags) -> float:
    """Share of the words, of all sentences together, that have their gold tag."""
    pairs = zip(chain.from_iterable(predicted), chain.from_iterable(gold), strict=True)
    right = [made == true for made, true in pairs]
    return sum(right) / len(right)
