"""What is measured and was trained on, too: held-out lines that stand in the training text, rows of
dev and test sets that are training examples."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from xlingjax.data.labelled.records import hashes_asked
from xlingjax.data.store.tokenise import BlockText, Tokens, end_sentences
from xlingjax.data.vocabulary.sentencepiece import Vocabulary

MOST = 0.5  # of the held-out lines: as many are a mistake, and not what small corpora share
LINES = 1 << 24  # of the training text that are looked at before a run: some seconds
_PRIME = 1_000_003


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Lines that an evaluator measures on: sentences of one language, or pairs. file: where they
    are from; lines: of each side, as many; languages: sorted."""

    file: str
    languages: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, file: str, languages: Sequence[str], lines: Sequence[Sequence[str]]) -> HeldOut:
        """Sides in any order."""
        order = sorted(range(len(languages)), key=languages.__getitem__)
        return cls(file, tuple(languages[i] for i in order), tuple(tuple(lines[i]) for i in order))


def overlap_of_examples(
    measured: Iterable[tuple[str, Sequence[Any]]], trained: Sequence[np.ndarray]
) -> list[tuple[str, str]]:
    """[(file, what is wrong with it)]: labelled records that are trained on, whatever their
    answers. measured: (file, its records); trained: the `hashes_asked` of training sets."""
    found = []
    for file, records in measured:
        asked = hashes_asked(records)
        seen = sum(np.isin(asked, part) for part in trained)
        if count := int(np.count_nonzero(seen)):
            found.append((file, _message("TRAIN", count, len(records), 1)))
    return found


def overlap_of_texts(
    held: Iterable[HeldOut], texts: Iterable[BlockText], vocabulary: Vocabulary
) -> list[tuple[str, str]]:
    """[(file, what is wrong with it)]: held-out pairs that stand in training pairs, with both
    sides, and held-out sentences in text of their language.

    Looked at is what a run trains on, by the tokens of its lines: without what it holds out itself,
    in whatever files it came. A line that differs in letter case is of other tokens, and not found.
    Of more than LINES lines a part is looked at.
    """

    # Several evaluators measure on the same pairs, some on the first of them alone.
    longest: dict[tuple[str, tuple[str, ...]], HeldOut] = {}
    for one in sorted(held, key=lambda one: len(one.lines[0])):
        longest[one.file, one.languages] = one
    looked_for: list[tuple[HeldOut, str, tuple[str, ...], list[Tokens]]] = []
    for one in longest.values():
        sides = [_tokens(lines, vocabulary) for lines in one.lines]
        if len(sides) > 1:
            looked_for.append((one, "PARALLEL", one.languages, sides))
        for language, side in zip(one.languages, sides, strict=True):
            looked_for.append((one, "MONO", (language,), [side]))
    wanted: dict[tuple[str, ...], list[tuple[np.ndarray, np.ndarray]]] = {}
    for _, _, languages, sides in looked_for:
        wanted.setdefault(languages, []).append((_marks(sides), _numbers(sides)))
    # Of a pair with negatives the first two sides are the pair.
    chosen = {text.key: text for text in texts if text.languages[:2] in wanted}
    lines = sum(text.lines for text in chosen.values())
    every = math.ceil(lines / LINES)
    looked_at = 0
    seen: dict[tuple[str, ...], list[np.ndarray]] = {languages: [] for languages in wanted}
    for text in chosen.values():
        languages = text.languages[:2]
        marks, numbers = map(np.concatenate, zip(*wanted[languages], strict=True))
        for number in range(0, len(text.blocks), every):
            looked_at += text.blocks[number].lines
            sides = text.of_block(number).sides[:2]
            # Of few lines the number is made, which takes longer.
            alike = np.isin(_marks(sides), marks)
            found = _numbers([side.keep(alike) for side in sides])
            seen[languages].append(np.intersect1d(found, numbers))
    counts: Counter[tuple[str, tuple[str, ...], str, int]] = Counter()
    for one, macro, languages, sides in looked_for:
        numbers = _numbers(sides)
        # Of pairs each side is a sentence.
        total = len(numbers) * (1 if macro == "PARALLEL" else len(one.lines))
        known = np.isin(numbers, np.concatenate([*seen[languages], np.zeros(0, np.uint64)]))
        counts[one.file, one.languages, macro, total] += int((known & (numbers > 0)).sum())
    share_seen = looked_at / max(lines, 1)
    return [
        (file, _message(macro, found, total, share_seen))
        for (file, _, macro, total), found in counts.items()
        if found
    ]


def _message(macro: str, found: int, total: int, looked_at: float) -> str:
    what = {
        "PARALLEL": "held-out pairs stand in the training pairs",
        "MONO": "held-out sentences stand in the training text",
        "TRAIN": "rows are training examples",
    }[macro]
    message = f"{found:,} of {total:,} {what}, too ({found / total:.1%})"
    if looked_at < 1:
        message += f", of which {looked_at:.0%} were looked at"
    because = "what is measured on them was trained on"
    if found / total >= MOST * looked_at:
        because = f"MOST OF THIS IS NOT HELD OUT, and {because}"
    of = "the training set" if macro == "TRAIN" else macro
    return f"{message}: {because}; take them out of {of}"


def _tokens(lines: Sequence[str], vocabulary: Vocabulary) -> Tokens:
    encoded = vocabulary.encode_lines([line.strip() for line in lines])
    return Tokens(*end_sentences(*encoded, vocabulary.eos_id))


def _numbers(sides: Sequence[Tokens]) -> np.ndarray:
    """uint64 [lines]: of lines with the same tokens on each side the same; 0: a side is empty."""
    numbers = np.stack([side.numbers() for side in sides])
    of_all = np.uint64(0)
    for of_side in numbers:
        of_all = of_all * np.uint64(_PRIME) + of_side
    return np.where(numbers.all(axis=0), of_all, np.uint64(0))


def _marks(sides: Sequence[Tokens]) -> np.ndarray:
    """int64 [lines]: equal of lines with equal lengths and first tokens on each side; of others few
    are."""
    mark = np.int64(0)
    for side in sides:
        starts = np.cumsum(side.lengths) - side.lengths
        # An empty line has no first token.
        first = np.append(side.ids, 0)[starts].astype(np.int64)
        mark = (mark * _PRIME + side.lengths) * _PRIME + first
    return np.asarray(mark)
