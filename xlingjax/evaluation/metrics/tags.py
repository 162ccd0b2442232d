"""Metrics of tags: CoNLL's entities, seqeval's chunks, tags one by one.

Each takes the tags of N sentences, predicted and gold, of equal lengths, and gives shares in 0..1.
"""

from collections.abc import Callable, Sequence

Tags = Sequence[Sequence[str]]

FILL = "O"
"""What XGLUE puts where a prediction is shorter than its sentence."""


def entities(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """{(first word, last word, type)} of IOB2 tags, as CoNLL's scorer reads them: I- after nothing
    of its type opens one too."""
    found, begin, kind = set(), 0, ""
    for i, tag in enumerate([*tags, "O"]):
        mark, _, name = tag.partition("-")
        if kind and (mark != "I" or name != kind):
            found.add((begin, i - 1, kind))
            kind = ""
        if mark in ("B", "I") and not kind:
            begin, kind = i, name
    return found


def chunks(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """{(first word, last word, type)} as seqeval 0.0.x reads any tag: its mark is the first
    character, its type all after the last "-". So NOUN NOUN is one chunk, and SYM SYM two, since S
    stands for a single word.
    """
    found, begin, mark, kind = set(), 0, "O", ""
    for i, tag in enumerate([*tags, "O"]):
        mark_before, kind_before = mark, kind
        mark, kind = tag[0], tag.rsplit("-", 1)[-1]
        other = kind != kind_before
        if (
            mark_before in "ES"
            or (mark_before in "BI" and mark in "BSO")
            or (mark_before not in "O." and other)
        ):
            found.add((begin, i - 1, kind_before))
        if (
            mark in "BS"
            or (mark_before in "ESO" and mark in "EI")
            or (mark not in "O." and other)
        ):
            begin = i
    return found


def precision_recall_f1(
    predicted: Tags, gold: Tags, spans: Callable[[Sequence[str]], set] = chunks
) -> tuple[float, float, float]:
    """Micro precision, recall and F1 of the `spans` of all sentences; 0 where there are none."""
    right = made = wanted = 0
    for p, g in zip(predicted, gold, strict=True):
        a, b = spans(p), spans(g)
        right, made, wanted = right + len(a & b), made + len(a), wanted + len(b)
    precision, recall = right / made if made else 0.0, right / wanted if wanted else 0.0
    return (
        precision,
        recall,
        2 * precision * recall / (precision + recall) if right else 0.0,
    )


def entity_f1(predicted: Tags, gold: Tags) -> float:
    """Micro F1 of `entities`."""
    return precision_recall_f1(predicted, gold, entities)[2]


def token_accuracy(predicted: Tags, gold: Tags) -> float:
    """Share of the words, of all sentences together, that have their gold tag."""
    pairs = [
        (p, g)
        for ps, gs in zip(predicted, gold, strict=True)
        for p, g in zip(ps, gs, strict=True)
    ]
    return sum(p == g for p, g in pairs) / len(pairs)
