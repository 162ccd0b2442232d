"""Readers of pairs of files: sources and targets by line, and bitexts to search (Tatoeba, BUCC)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from xlingjax.data.labelled.records import Bitext, SourceTarget
from xlingjax.data.text.files import read_lines
from xlingjax.errors import UserError
from xlingjax.runtime.numerals import is_whole

ORDERED = 10  # lines from which an English side in alphabetical order counts as sorted


def read_source_target(paths: Sequence[Path], task, language: str) -> list[SourceTarget]:
    """Line n of the second file is to be written for line n of the first; the first alone: a test
    set. Raises UserError for an empty line and for files of unequal length."""
    sources, *others = [_texts(path) for path in paths]
    if not others:
        # Official test sets keep their targets back.
        return [SourceTarget(text, None, number) for number, text in sources]
    (targets,) = others
    _same_length(paths, sources, targets)
    records = []
    for (number, source), (_, target) in zip(sources, targets, strict=True):
        records.append(SourceTarget(source, target, number))
    return records


def read_tatoeba(paths: Sequence[Path], task, language: str) -> list[Bitext]:
    """One `Bitext`: the foreign lines, the English lines and perhaps XTREME's labels, the foreign
    row of each English line. An id is the row, from 0: "0", "1", ...

    Without labels the files are aligned line by line, gold is the identity; but XTREME sorts the
    English side of its copy: `ORDERED` lines or more in alphabetical order have no gold.
    """
    foreign = _texts(paths[0])
    english = _texts(paths[1])
    _same_length(paths, foreign, english)
    texts = [text for _, text in english]
    gold = None
    if len(paths) > 2:
        gold = _gold(_permutation(paths[2], len(texts)))
    # Taken as aligned, a sorted side would give every model a score of about 0 without a word.
    elif len(texts) < ORDERED or texts != sorted(texts):
        gold = _gold(range(len(texts)))
    return [Bitext(_by_row(foreign), _by_row(english), gold)]


def _gold(foreign_rows: Iterable[int]) -> frozenset[tuple[str, str]]:
    return frozenset((str(row), str(line)) for line, row in enumerate(foreign_rows))


def _by_row(side: Sequence[tuple[int, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((str(row), text) for row, (_, text) in enumerate(side))


def read_bucc(paths: Sequence[Path], task, language: str) -> list[Bitext]:
    """One `Bitext`: `id TAB sentence` of the foreign and of the English side and, as the third
    file, `foreign id TAB English id` (test sets have none)."""
    sides = []
    for path in paths[:2]:
        sentences: dict[str, str] = {}
        for where, (id_, text) in _columns(path):
            if id_ in sentences:
                raise UserError(f"{where}: the id {id_!r} comes twice")
            sentences[id_] = text
        sides.append(sentences)
    foreign, english = sides
    gold = None
    if len(paths) > 2:
        gold = set()
        for where, pair in _columns(paths[2]):
            # Columns in the other order would otherwise give a score of 0 and no error.
            for id_, side, file in zip(pair, sides, paths[:2], strict=True):
                if id_ not in side:
                    raise UserError(f"{where}: no sentence {id_!r} in {file}")
            gold.add(pair)
    return [Bitext(tuple(foreign.items()), tuple(english.items()), gold and frozenset(gold))]


def _columns(path: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """(where it stands, its two columns) of each line."""
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        first, _, second = line.partition("\t")
        if not first.strip() or not second.strip():
            raise UserError(f"{where}: {line[:60]!r} is not two columns with a tab between")
        yield where, (first.strip(), second.strip())


def _permutation(path: Path, count: int) -> list[int]:
    rows = []
    for number, line in _lines(path):
        # Without a sign: a negative row would be read from the end.
        if not is_whole(line.strip()) or int(line) >= count:
            raise UserError(f"{path}, line {number}: {line!r} is not a row, 0 to {count - 1}")
        rows.append(int(line))
    if len(rows) != count:
        raise UserError(f"{path}: {len(rows)} rows for {count} English lines")
    return rows


def _texts(path: Path) -> list[tuple[int, str]]:
    texts = [(number, line.strip()) for number, line in read_lines(path)]
    for number, text in texts:
        if not text:
            raise UserError(f"{path}, line {number}: the line is empty; every line is a text")
    if not texts:
        raise UserError(f"{path}: the file is empty")
    return texts


def _lines(path: Path) -> list[tuple[int, str]]:
    lines = [(number, line) for number, line in read_lines(path) if line.strip()]
    if not lines:
        raise UserError(f"{path}: the file is empty")
    return lines


def _same_length(paths: Sequence[Path], first: Sequence, second: Sequence) -> None:
    if len(first) != len(second):
        raise UserError(
            f"{paths[0]} has {len(first)} lines, {paths[1]} {len(second)}: line n of one"
            " belongs to line n of the other"
        )
