"""Readers of texts in pairs of files: sources and targets line by line, and bitexts to search
(Tatoeba, BUCC)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xlingjax.data.labelled.records import Bitext, SourceTarget, existing
from xlingjax.data.text_files import read_lines
from xlingjax.errors import UserError

ORDERED = 10
"""Lines from which an English side in alphabetical order is taken for sorted, not for aligned."""


def read_source_target(
    paths: Sequence[Path], task, language: str
) -> list[SourceTarget]:
    """Line n of the second file is to be written for line n of the first; the first alone: a test
    set. Raises UserError for an empty line and for files of unequal length."""
    sides = [_texts(path) for path in paths]
    if len(sides) == 1:
        return [SourceTarget(text, None, number) for number, text in sides[0]]
    _same_length(paths[:2], sides)
    return [
        SourceTarget(text, target, number)
        for (number, text), (_, target) in zip(*sides, strict=True)
    ]


def read_tatoeba(paths: Sequence[Path], task, language: str) -> list[Bitext]:
    """One `Bitext`: the foreign lines, the English lines and perhaps XTREME's labels, the foreign
    row of each English line. An id is the row, from 0: "0", "1", ...

    Without labels the files are aligned line by line, gold is the identity; but XTREME sorts the
    English side of its copy, so a side of at least `ORDERED` lines in alphabetical order has no
    gold.
    """
    (foreign, english), labels = [_texts(path) for path in paths[:2]], paths[2:]
    _same_length(paths[:2], (foreign, english))
    texts = [text for _, text in english]
    if labels:
        gold = frozenset(
            (str(row), str(line))
            for line, row in enumerate(_permutation(labels[0], len(texts)))
        )
    elif len(texts) >= ORDERED and texts == sorted(texts):
        gold = None
    else:
        gold = frozenset((str(row), str(row)) for row in range(len(texts)))
    sides = (
        tuple((str(row), text) for row, (_, text) in enumerate(side))
        for side in (foreign, english)
    )
    return [Bitext(*sides, gold)]


def read_bucc(paths: Sequence[Path], task, language: str) -> list[Bitext]:
    """One `Bitext`: `id TAB sentence` of the foreign and of the English side and, as the third
    file, `foreign id TAB English id` (test sets have none)."""
    sides = []
    for path in paths[:2]:
        sentences = {}
        for number, line in _lines(path):
            id_, tab, text = line.partition("\t")
            if not tab or not id_.strip() or not text.strip():
                raise UserError(
                    f"{path}, line {number}: {line[:60]!r} is not an id, a tab and a sentence"
                )
            if id_ in sentences:
                raise UserError(f"{path}, line {number}: the id {id_!r} comes twice")
            sentences[id_] = text.strip()
        sides.append(sentences)
    gold = set()
    for path in paths[2:3]:
        for number, line in _lines(path):
            pair = tuple(cell.strip() for cell in line.split("\t"))
            if len(pair) != 2:
                raise UserError(
                    f"{path}, line {number}: {len(pair)} columns, expected 2: foreign id TAB"
                    " English id"
                )
            for id_, side, file in zip(pair, sides, paths, strict=False):
                if id_ not in side:
                    raise UserError(
                        f"{path}, line {number}: no sentence {id_!r} in {file}"
                    )
            gold.add(pair)
    return [
        Bitext(
            *(tuple(side.items()) for side in sides),
            frozenset(gold) if len(paths) > 2 else None,
        )
    ]


def _permutation(path: Path, count: int) -> list[int]:
    rows = []
    for number, line in _lines(path):
        if not line.strip().isdigit() or int(line) >= count:
            raise UserError(
                f"{path}, line {number}: {line!r} is not a row, 0 to {count - 1}"
            )
        rows.append(int(line))
    if len(rows) != count:
        raise UserError(
            f"{path}: {len(rows)} lines for {count} English lines; expected a foreign row for each"
        )
    return rows


def _texts(path: Path) -> list[tuple[int, str]]:
    found = [(number, line.strip()) for number, line in read_lines(existing(path))]
    for number, text in found:
        if not text:
            raise UserError(
                f"{path}, line {number}: the line is empty; every line is a text"
            )
    if not found:
        raise UserError(f"{path}: the file is empty")
    return found


def _lines(path: Path) -> list[tuple[int, str]]:
    found = [
        (number, line) for number, line in read_lines(existing(path)) if line.strip()
    ]
    if not found:
        raise UserError(f"{path}: the file is empty")
    return found


def _same_length(paths: Sequence[Path], sides: Sequence[Sequence]) -> None:
    if len(sides[0]) != len(sides[1]):
        raise UserError(
            f"{paths[0]} has {len(sides[0])} lines, {paths[1]} {len(sides[1])}: line n of one"
            " belongs to line n of the other"
        )
