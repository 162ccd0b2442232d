"""What is measured and was trained on, too: held-out lines that stand in the training text, rows of
dev and test sets that are training examples."""

from __future__ import annotations

import dataclasses
import math
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
    parts: list[_Sought] = []
    for one in longest.values():
        sides = [_tokens(lines, vocabulary) for lines in one.lines]
        if len(sides) > 1:
            parts.append(_Sought(one, "PARALLEL", one.languages, sides))
        for language, side in zip(one.languages, sides, strict=True):
            parts.append(_Sought(one, "MONO", (language,), [side]))
    sought = {part.languages for part in parts}
    # Of a pair with negatives the first two sides are the pair.
    chosen = {text.key: text for text in texts if text.languages[:2] in sought}
    lines = sum(text.lines for text in chosen.values())
    every = math.ceil(lines / LINES)
    looked_at = 0
    for text in chosen.values():
        of_text = [part for part in parts if part.languages == text.languages[:2]]
        for number in range(0, len(text.blocks), every):
            looked_at += text.blocks[number].lines
            sides = text.of_block(number).sides[:2]
            marks = _marks(sides)
            for part in of_text:
                part.look_in(sides, marks)
    seen: dict[tuple[str, tuple[str, ...], str], list[np.ndarray]] = {}
    for part in parts:
        # Of pairs each side is a sentence.
        key = part.one.file, part.one.languages, part.macro
        seen.setdefault(key, []).append(part.seen)
    found = []
    for (file, _, macro), of_file in seen.items():
        every_line = np.concatenate(of_file)
        if count := int(every_line.sum()):
            message = _message(macro, count, every_line.size, looked_at / max(lines, 1))
            found.append((file, message))
    return found


class _Sought:
    """Held-out lines of one language or pair, and which of them are `seen` in the text: bool
    [lines]."""

    def __init__(
        self, one: HeldOut, macro: str, languages: tuple[str, ...], sides: Sequence[Tokens]
    ):
        self.one = one
        self.macro = macro
        self.languages = languages
        self._marks = _marks(sides)
        self._numbers = _numbers(sides)
        self.seen = np.zeros(self._numbers.size, bool)

    def look_in(self, sides: Sequence[Tokens], marks: np.ndarray) -> None:
        """marks: of the lines of these sides."""
        # Of few lines the number is made, which takes longer.
        alike = np.isin(marks, self._marks)
        found = _numbers([side.keep(alike) for side in sides])
        self.seen |= np.isin(self._numbers, found[found > 0])


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
    return end_sentences(*encoded, vocabulary.eos_id)


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
