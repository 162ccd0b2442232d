"""Texts and pairs of texts in files, and their lines."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from xlingjax.data.languages import known_as
from xlingjax.data.text.files import Part, content_hash, plain_name, read_lines
from xlingjax.data.text.given import parse_object
from xlingjax.data.text.names import PAIR_STEM, file_format
from xlingjax.errors import UserError

_LANGUAGE_COLUMNS = ("language", "lang")
PAIR_COLUMNS = 2
"""Of a table of pairs without a header."""


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
    def key(self) -> str:
        """What is read, independent of where the file lies: the hash of its bytes and the
        column."""
        language = ""
        # Only then: the language of a file is a name for it and changes no line that is read.
        if self.only_language:
            language = self.language
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
            # The longer side is read to its end, since the error names both counts.
            if pair[0] is None:
                raise self.mismatch(count, count + 1 + _count(second))
            if pair[1] is None:
                raise self.mismatch(count + 1 + _count(first), count)
            yield pair

    def mismatch(self, first: int, second: int) -> UserError:
        """The error for sides of unequal length."""
        return UserError(
            f"parallel files differ in length: {self.first.path} has {first} lines,"
            f" {self.second.path} has {second}; line i of one must translate line i of the other"
        )


def _count(lines: Iterator[str]) -> int:
    count = 0
    for _ in lines:
        count += 1
    return count


@dataclass(frozen=True)
class Triple(Pair):
    """A sentence, its translation, and a sentence of the translation's language that does not
    translate it, in the columns of one table."""

    third: Text

    @property
    def sides(self) -> tuple[Text, ...]:
        return self.first, self.second, self.third

    def lines(self) -> Iterator[tuple[str, ...]]:
        return zip(*map(Text.lines, self.sides), strict=True)


def _rows(path: Path) -> Iterator[tuple[dict | list[str], str]]:
    """Rows of a TSV (cells by header name, or a list without a header) or of a jsonl file, and
    where they stand."""
    if file_format(path) == "jsonl":
        yield from _rows_of_jsonl(path)
    else:
        yield from _rows_of_tsv(path)


def _rows_of_jsonl(path: Path) -> Iterator[tuple[dict, str]]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        row = parse_object(line, where)
        # The data sets of translations on the Hugging Face hub have the codes in this field.
        translation = row.get("translation")
        if isinstance(translation, dict):
            row = {**row, **translation}
        yield row, where


def _rows_of_tsv(path: Path) -> Iterator[tuple[dict | list[str], str]]:
    # Opened on its own for it, since the file may have none and its first line is text then.
    header = table_header(path)
    for number, line in read_lines(path):
        if header and number == 1:
            continue
        cells = line.split("\t")
        where = f"{path}, line {number}"
        if not header:
            # A score or an id before the texts would become one of the two languages.
            if len(cells) > PAIR_COLUMNS:
                raise UserError(
                    f"{where}: {len(cells)} columns, expected {PAIR_COLUMNS}: the columns of a"
                    " language each (WikiMatrix: `cut -f 2,3`; Tatoeba: `cut -f 2,4`), or a header"
                    " that names both codes"
                )
            yield cells, where
            continue
        # A tab within a text moves what stands behind it to other columns.
        if len(cells) > len(header):
            raise UserError(f"{where}: {len(cells)} columns, but its header names {len(header)}")
        # A short row lacks cells; `_cell` says so for the column that is read.
        yield dict(zip(header, cells, strict=False)), where


def table_header(path: Path) -> list[str] | None:
    """A TSV's header, if its first line is one: it names a `text` column, or the two codes of the
    file's name."""
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
    except IndexError:
        raise UserError(
            f"{where}: no column {column + 1} of {len(cells)}: put tabs between columns"
        ) from None
    except KeyError:
        raise UserError(f"{where}: no column {column!r}") from None
    if not isinstance(text, str):
        raise UserError(f"{where}: column {column!r} is not text")
    return text


def _language_of(cells: dict | list[str], where: str) -> str:
    # The first of both names that is filled.
    for name in _LANGUAGE_COLUMNS:
        if isinstance(cells, dict) and cells.get(name):
            return str(cells[name])
    raise UserError(f"{where}: no language; fill its `language` column")


def languages_in(path: Path) -> set[str]:
    """What the language columns of a table hold; nothing where it has none."""
    languages = set()
    for cells, where in _rows(path):
        for name in _LANGUAGE_COLUMNS:
            if cells.get(name):
                language = str(cells[name])
                # Codes name files, folders and settings.
                if not re.fullmatch(r"[A-Za-z]{2,8}([_-][A-Za-z0-9]+)*", language):
                    raise UserError(
                        f"{where}: {name} {language[:40]!r} is no code of a language, like de"
                    )
                languages.add(language)
    return languages
