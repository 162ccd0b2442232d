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
from xlingjax.data.store.tokenise import BlockText
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


Keys = tuple[bytes, ...]  # of aligned lines: the tokens of each side


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

    def key(line: str) -> bytes:
        pieces = vocabulary.encode(line.strip())
        return np.array([*pieces, vocabulary.eos_id], np.int32).tobytes() if pieces else b""

    # Several evaluators measure on the same pairs, some on the first of them alone.
    longest: dict[tuple[str, tuple[str, ...]], HeldOut] = {}
    for one in sorted(held, key=lambda one: len(one.lines[0])):
        longest[one.file, one.languages] = one
    looked_for: list[tuple[HeldOut, str, tuple[str, ...], list[Keys]]] = []
    for one in longest.values():
        sides = [[*map(key, lines)] for lines in one.lines]
        if len(sides) > 1:
            looked_for.append((one, "PARALLEL", one.languages, [*zip(*sides, strict=True)]))
        for language, side in zip(one.languages, sides, strict=True):
            looked_for.append((one, "MONO", (language,), [(of_line,) for of_line in side]))
    wanted: dict[tuple[str, ...], set[Keys]] = {}
    for _, _, languages, keys in looked_for:
        wanted.setdefault(languages, set()).update(filter(all, keys))
    # Of a pair with negatives the first two sides are the pair.
    chosen = {text.key: text for text in texts if wanted.get(text.languages[:2])}
    lines = sum(text.lines for text in chosen.values())
    every = math.ceil(lines / LINES)
    looked_at = 0
    seen: dict[tuple[str, ...], set[Keys]] = {languages: set() for languages in wanted}
    for text in chosen.values():
        languages = text.languages[:2]
        of_keys = []
        for keys in zip(*wanted[languages], strict=True):
            tokens = [np.frombuffer(of_line, np.int32) for of_line in keys]
            of_keys.append((np.array([*map(len, tokens)]), np.array([one[0] for one in tokens])))
        marks = np.unique(_marks(of_keys))
        for number in range(0, len(text.blocks), every):
            looked_at += text.blocks[number].lines
            sides = text.of_block(number).sides[:2]
            starts = [np.cumsum(side.lengths) - side.lengths for side in sides]
            # An empty line has no first token, and is looked for by none.
            firsts = [
                np.append(side.ids, 0)[start].astype(np.int64)
                for side, start in zip(sides, starts, strict=True)
            ]
            lengths = [side.lengths.astype(np.int64) for side in sides]
            found = np.isin(_marks(zip(lengths, firsts, strict=True)), marks)
            for line in np.flatnonzero(found).tolist():
                of_line = []
                for side, start in zip(sides, starts, strict=True):
                    ids = side.ids[start[line] : start[line] + side.lengths[line]]
                    of_line.append(ids.astype(np.int32).tobytes())
                seen[languages].add(tuple(of_line))
    counts: Counter[tuple[str, tuple[str, ...], str, int]] = Counter()
    for one, macro, languages, keys in looked_for:
        # Of pairs each side is a sentence.
        total = len(keys) * (1 if macro == "PARALLEL" else len(one.lines))
        counts[one.file, one.languages, macro, total] += sum(k in seen[languages] for k in keys)
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


def _marks(sides: Iterable[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """int64 [lines]: equal of lines with equal lengths and first tokens on each side, given as
    (tokens of each line, its first); of others few are."""
    mark = np.int64(0)
    for lengths, first in sides:
        mark = (mark * _PRIME + lengths) * _PRIME + first
    return np.asarray(mark)
