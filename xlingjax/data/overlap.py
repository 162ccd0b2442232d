"""Held-out lines that stand in the training text, too: what is measured on them was trained on."""

from __future__ import annotations

import dataclasses
import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from xlingjax.data.store.blocks import BlockText
from xlingjax.data.store.tokens import Records, Tokens
from xlingjax.data.vocabulary.sentencepiece import Vocabulary

MOST = 0.5
"""Of the held-out lines: as many are a mistake, and not what small corpora share."""
LINES = 1 << 24
"""Of the training text that are looked at before a run: some seconds."""
_PREFIX = 8
"""Tokens by which most lines are told apart."""
_PRIME = np.uint64(1_000_003)


def normalised(line: str) -> str:
    """A line without what copies of it often differ in: letter case, spaces, punctuation at both
    ends, and which of several characters a letter is written with (NFKC). Of punctuation alone
    nothing is removed."""
    folded = " ".join(unicodedata.normalize("NFKC", line).casefold().split())
    begin, end = 0, len(folded)
    while begin < end and _is_outer(folded[begin]):
        begin += 1
    while begin < end and _is_outer(folded[end - 1]):
        end -= 1
    return folded[begin:end] or folded


def _is_outer(character: str) -> bool:
    return character == " " or unicodedata.category(character)[0] == "P"


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


class Overlap:
    """Which held-out lines were seen in training text: pairs in pairs, with both sides, and
    sentences in text of their language."""

    def __init__(self, held: Iterable[HeldOut], key: Callable[[str], Any] = normalised):
        """key: of a line; equal keys, equal lines."""
        # Several evaluators measure on the same pairs, some on the first of them alone.
        longest: dict[tuple[Any, ...], HeldOut] = {}
        for one in held:
            known = longest.setdefault((one.file, one.languages), one)
            if len(one.lines[0]) > len(known.lines[0]):
                longest[one.file, one.languages] = one
        self._held = [*longest.values()]
        self.wanted: dict[tuple[str, ...], dict[tuple[Any, ...], list]] = {}
        """{languages: {keys of the sides: places where they are held out}}."""
        self._found: dict[tuple[int, int], set] = {}
        for number, one in enumerate(self._held):
            sides = [[*map(key, lines)] for lines in one.lines]
            for row, keys in enumerate(zip(*sides, strict=True)):
                self._want(one.languages, keys, (number, row, 0))
                if len(keys) > 1:
                    for side, language in enumerate(one.languages):
                        place = (number, row, side)
                        self._want((language,), (keys[side],), place)

    def _want(
        self, languages: tuple[str, ...], keys: tuple[Any, ...], place: tuple[int, int, int]
    ) -> None:
        if all(keys):
            of_languages = self.wanted.setdefault(languages, {})
            of_languages.setdefault(keys, []).append(place)

    def see(self, languages: tuple[str, ...], keys: tuple[Any, ...]) -> None:
        """A line of the training text, or aligned lines."""
        for number, row, side in self.wanted.get(languages, {}).get(keys, ()):
            found = self._found.setdefault((number, len(languages)), set())
            found.add((row, side))

    def messages(self, looked_at: float = 1.0) -> list[tuple[str, str]]:
        """[(file, what is wrong with it)]. looked_at: the share of the training text that was
        seen."""
        said = []
        for number, one in enumerate(self._held):
            for sides, what, macro in (
                (2, "held-out pairs stand in the training pairs", "PARALLEL"),
                (1, "held-out sentences stand in the training text", "MONO"),
            ):
                found = len(self._found.get((number, sides), ()))
                if not found:
                    continue
                total = len(one.lines[0])
                # Of pairs each side is a sentence.
                if sides == 1:
                    total *= len(one.lines)
                share = found / total
                message = f"{found:,} of {total:,} {what}, too ({share:.1%})"
                if looked_at < 1:
                    message += f", of which {looked_at:.0%} were looked at"
                because = "what is measured on them was trained on"
                if share >= MOST * looked_at:
                    because = f"MOST OF THIS IS NOT HELD OUT, and {because}"
                said.append((one.file, f"{message}: {because}; take them out of {macro}"))
        return said


def overlap_of_texts(
    held: Iterable[HeldOut], texts: Iterable[BlockText], vocabulary: Vocabulary
) -> list[tuple[str, str]]:
    """`Overlap.messages` of the text that a run trains on, by the tokens of its lines: without what
    it holds out itself, in whatever files it came. A line that differs in letter case is of other
    tokens, and not found. Of more than LINES lines a part is looked at."""
    end = [vocabulary.eos_id]

    def key(line: str) -> bytes:
        pieces = vocabulary.encode(line.strip())
        return b"" if not pieces else np.array([*pieces, *end], np.int32).tobytes()

    overlap = Overlap(held, key)
    chosen = {}
    for text in texts:
        # Of a pair with negatives the first two sides are the pair.
        languages = text.languages[:2]
        if languages in overlap.wanted:
            chosen[text.key] = text
    lines = sum(text.lines for text in chosen.values())
    every = math.ceil(lines / LINES)
    looked_at = 0
    for text in chosen.values():
        languages = text.languages[:2]
        wanted = overlap.wanted[languages]
        marks = np.unique(_marks(_records_of(languages, wanted)))
        for number in range(0, len(text.blocks), every):
            records = text.of_block(number)
            looked_at += text.blocks[number].lines
            sides = records.sides[:2]
            starts = [np.cumsum(side.lengths) - side.lengths for side in sides]
            found = np.isin(_marks(Records(languages, sides)), marks)
            for line in np.flatnonzero(found).tolist():
                keys = []
                for side, start in zip(sides, starts, strict=True):
                    begin = start[line]
                    ids = side.ids[begin : begin + side.lengths[line]]
                    keys.append(ids.astype(np.int32).tobytes())
                overlap.see(languages, tuple(keys))
    return overlap.messages(looked_at / max(lines, 1))


def _records_of(languages: tuple[str, ...], wanted: Iterable[tuple[bytes, ...]]) -> Records:
    """The lines of these keys."""
    sides = []
    for keys in zip(*wanted, strict=True):
        lines = [np.frombuffer(key, np.int32) for key in keys]
        lengths = np.array([*map(len, lines)], np.int32)
        sides.append(Tokens(np.concatenate(lines), lengths))
    return Records(languages, tuple(sides))


def _marks(records: Records) -> np.ndarray:
    """uint64 [lines]: of the lengths and first tokens of a line's sides. Equal lines have equal
    ones; of others few do."""
    marks = np.zeros(len(records.sides[0].lengths), np.uint64)
    for side in records.sides:
        starts = np.cumsum(side.lengths, dtype=np.int64) - side.lengths
        marks = marks * _PRIME + side.lengths.astype(np.uint64)
        for offset in range(_PREFIX):
            inside = side.lengths > offset
            tokens = np.zeros(len(marks), np.uint64)
            tokens[inside] = side.ids[starts[inside] + offset]
            marks = marks * _PRIME + tokens
    return marks
