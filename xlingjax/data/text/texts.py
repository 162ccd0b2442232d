"""Texts and pairs of texts in files, and their lines."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlingjax.data.languages import known_as
from xlingjax.data.text.files import (
    Part,
    content_hash,
    is_damage,
    open_bytes,
    pieces_of,
    plain_name,
    read_lines,
)
from xlingjax.data.text.given import parse_object
from xlingjax.data.text.names import PAIR_STEM, file_format
from xlingjax.errors import UserError

_LANGUAGE_COLUMNS = ("language", "lang")
PAIR_COLUMNS = 2  # of a table of pairs without a header


@dataclass(frozen=True)
class Text:
    """The lines of one language in one file.

    `column` picks them from a TSV or jsonl row; `only_language` keeps the rows of this language;
    `documents` reads a cell of several lines as a document, otherwise each cell is one line.
    """

    path: Path
    language: str
    column: int | str | None = None
    only_language: bool = False
    documents: bool = False

    @property
    def languages(self) -> tuple[str, ...]:
        return (self.language,)

    @property
    def sides(self) -> tuple[Text, ...]:
        return (self,)

    @property
    def key(self) -> str:
        """What is read, wherever the file lies: the hash of its bytes and the column."""
        # Else the language of a file is a name for it and changes no line that is read.
        language = self.language if self.only_language else ""
        return f"{content_hash(self.path)}:{self.column}:{language}:{self.documents}"

    def lines(self, part: Part | None = None) -> Iterator[str]:
        """Each line without surrounding space; "" ends a document. part: of a file of plain lines.
        Raises UserError naming file and line."""
        if self.column is None:
            for _, line in read_lines(self.path, part):
                yield line.strip()
            return
        for cells, where in _rows(self.path):
            if self.only_language and _language_of(cells, where) != self.language:
                continue
            text = _cell(cells, self.column, where)
            if not self.documents:
                # A cell of a pair is one line, or the lines of its sides would no longer match.
                yield " ".join(text.split())
                continue
            # jsonl has documents in one field, with the ends of lines in it.
            lines = [line.strip() for line in text.split("\n")]
            yield from lines
            # A cell of one line is a sentence, and sentences of a table may follow each other.
            if len(lines) > 1:
                yield ""


@dataclass(frozen=True)
class Pair:
    """Two texts of which line i of one translates line i of the other; `first.language` sorts
    first. Of one language:
    a source and its target, or two wordings."""

    first: Text
    second: Text

    @property
    def sides(self) -> tuple[Text, ...]:
        return self.first, self.second

    @property
    def languages(self) -> tuple[str, ...]:
        return tuple(side.language for side in self.sides)

    @property
    def translates(self) -> bool:
        """Whether its sides are in two languages, and not one a rewording of the other."""
        return self.first.language != self.second.language

    def lines(self) -> Iterator[tuple[str, str]]:
        """Aligned lines. Raises UserError naming both counts if one side has more."""
        first = self.first.lines()
        second = self.second.lines()
        # Not `zip`: it would stop where the shorter side ends, and drop the rest without a word.
        for count, pair in enumerate(itertools.zip_longest(first, second)):
            if None in pair:
                # The longer side is read to its end, since the error names both counts.
                longer = count + 1 + sum(1 for _ in first) + sum(1 for _ in second)
                raise self.mismatch(*(count if side is None else longer for side in pair))
            yield pair

    def mismatch(self, first: int, second: int) -> UserError:
        """The error for sides of unequal length."""
        return UserError(
            f"parallel files differ in length: {self.first.path} has {first} lines,"
            f" {self.second.path} has {second}; line i of one must translate line i of the other"
        )


@dataclass(frozen=True)
class Triple(Pair):
    """A sentence, its translation, and a wrong one in the same language: columns of one table."""

    third: Text

    @property
    def sides(self) -> tuple[Text, ...]:
        return self.first, self.second, self.third

    def lines(self) -> Iterator[tuple[str, ...]]:
        return zip(*map(Text.lines, self.sides), strict=True)


def repeated(files: Sequence[Text | Pair]) -> Iterator[tuple[Path, Path]]:
    """(a file, an earlier one in the same languages with the same text in it): copies, one file
    compressed beside itself, pairs named in both directions. Each counts, and is drawn."""
    paths = {side.path for file in files for side in file.sides}
    names = Counter(map(_unpacked, paths))
    seen: dict[Any, Text | Pair] = {}
    for file in files:
        key = [(side.language, side.column, _content(side.path, names)) for side in file.sides]
        first = seen.setdefault(tuple(key), file)
        if first is not file:
            yield file.sides[0].path, first.sides[0].path


def _unpacked(path: Path) -> Path:
    return path.with_name(plain_name(path))


def _content(path: Path, names: Counter[Path]) -> str:
    """A hash of what is in a file; only beside its own compressed copy is it read unpacked."""
    if names[_unpacked(path)] < 2:
        return content_hash(path)
    with open_bytes(path) as file:
        digest = hashlib.sha256()
        try:
            for piece in pieces_of(file):
                digest.update(piece)
        except Exception as error:
            # Who reads its lines says so.
            if not is_damage(error):
                raise
            return content_hash(path)
    return digest.hexdigest()


def _rows(path: Path) -> Iterator[tuple[dict | list[str], str]]:
    """Rows of a TSV (cells by header name; without one a list) or jsonl file, with their places."""
    is_table = file_format(path) == "tsv"
    header = table_header(path) if is_table else None
    for number, line in read_lines(path):
        where = f"{path}, line {number}"
        if not is_table:
            if line.strip():
                row = parse_object(line, where)
                # Data sets of translations on the Hugging Face hub have the codes in this field.
                translation = row.get("translation")
                yield {**row, **(translation if isinstance(translation, dict) else {})}, where
            continue
        cells = line.split("\t")
        # A score before the texts would be taken for one, and a tab in a text moves the others.
        most = len(header) if header else PAIR_COLUMNS
        if len(cells) > most:
            raise UserError(
                f"{where}: {len(cells)} columns, expected {most}: those of the header, or without"
                " one a column for each language (WikiMatrix: `cut -f 2,3`)"
            )
        if not header:
            yield cells, where
        elif number > 1:
            # A short row lacks cells; `_cell` says so for the column that is read.
            yield dict(zip(header, cells, strict=False)), where


def table_header(path: Path) -> list[str] | None:
    """A TSV's header, if its first line is one: it names `text`, or the file name's codes."""
    _, line = next(read_lines(path), (1, ""))
    cells = line.split("\t")
    if "text" in cells:
        return cells
    match = PAIR_STEM.match(plain_name(path))
    if not match:
        return None
    header = []
    for cell in cells:
        # As the file is named: DE for de would make a header a pair of sentences.
        header.append(known_as(cell.strip(), match.group("src", "tgt")) or cell)
    return header if {match["src"], match["tgt"]} <= set(header) else None


def _cell(cells: dict | list[str], column: int | str, where: str) -> str:
    try:
        text = cells[column]
    except (IndexError, KeyError):
        raise UserError(f"{where}: no column {column!r}: put tabs between columns") from None
    if not isinstance(text, str):
        raise UserError(f"{where}: column {column!r} is not text")
    return text


def _language_of(cells: dict, where: str) -> str:
    """What the language columns of a row hold; "" where they have nothing."""
    language = ""
    for name in reversed(_LANGUAGE_COLUMNS):
        language = str(cells.get(name) or language)
    # Codes name files, folders and settings.
    if language and not re.fullmatch(r"[A-Za-z]{2,8}([_-][A-Za-z0-9]+)*", language):
        raise UserError(f"{where}: {language[:40]!r} is no code of a language, like de")
    return language


def languages_in(path: Path) -> set[str]:
    """What a table's language columns hold, if any. Raises UserError for a row that lacks it."""
    languages = {}
    for cells, where in _rows(path):
        languages.setdefault(_language_of(cells, where), where)
    if len(languages) > 1 and "" in languages:
        raise UserError(f"{languages['']}: no language; fill its `language` column")
    return {*languages} - {""}
