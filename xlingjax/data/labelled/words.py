"""Readers of tagged sentences: a word and its tag per line (XTREME, XGLUE), CoNLL-2002 and 2003,
CoNLL-U, xSID's
slots."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from xlingjax.data.labelled.records import Tagged, existing, is_lost
from xlingjax.data.text_files import read_lines
from xlingjax.errors import UserError


def read_tagged(path: str | Path) -> list[Tagged]:
    """Sentences of lines `word TAB tag`, a blank line after each (XTREME's POS and NER). Raises
    UserError naming the line."""
    path = existing(
        path, "in TRAIN_FILES, DEV_FILES and TEST_FILES {language} is the code"
    )
    return Columns(unlabelled=False).sentences(path, None)


@dataclass(frozen=True)
class Columns:
    """A reader of one file with a word per line, a blank line between sentences.

    `-DOCSTART-` lines, where a document begins, end a sentence as blank lines do.
    """

    separator: str | None = "\t"
    """None: any run of spaces and tabs."""
    word: int = 0
    tag: int = 1
    """Column; -1: the last."""
    width: int | None = None
    """Number of columns of every line that has a tag; None: any number from two."""
    comments: bool = False
    """Lines that begin with `#` and stand before the first word of a sentence are passed over."""
    prefix: bool = False
    """Words bear their language in front, all or none of them: `en:Paris` (WikiANN as its authors
    wrote it)."""
    first_class: bool = False
    """Tags are CoNLL-2003's: a chunk begins with I-, with B- only next to one of its own type. They
    are read as BIO."""
    unlabelled: bool = True
    """Lines may hold the word alone, all of them (a test set)."""
    gaps: bool = False
    """Lines of `width` columns may lack the word, if their tag is O, and are passed over (xSID's zh
    has one)."""

    def __call__(self, paths: Sequence[Path], task, language: str) -> list[Tagged]:
        tags = task.labels or None
        return [
            sentence
            for path in paths
            for sentence in self.sentences(existing(path), tags, language)
        ]

    def sentences(
        self, path: Path, tags: Sequence[str] | None, language: str = ""
    ) -> list[Tagged]:
        """Raises UserError naming file and line: invalid UTF-8, a line that is not a word and its
        tag, an unknown
        tag."""
        found, known, labelled = [], None if tags is None else frozenset(tags), None
        for block in _blocks(path, self.comments):
            words, marks, numbers = [], [], []
            for number, line in block:
                cells = self._cells(line)
                if labelled is None:
                    labelled = not (self.unlabelled and len(cells) == 1)
                if (
                    self.gaps
                    and len(cells) == self.width
                    and not cells[self.word]
                    and cells[self.tag] == "O"
                ):
                    continue
                self._check(path, number, cells, line, labelled)
                word = cells[self.word].strip()
                words.append(
                    self._without_prefix(path, number, word, language)
                    if self.prefix
                    else word
                )
                marks.append(cells[self.tag].strip() if labelled else "")
                numbers.append(number)
            if self.first_class:
                marks = bio(marks)
            if labelled and known is not None and not known.issuperset(marks):
                for number, mark in zip(numbers, marks, strict=True):
                    known_tag(mark, tags, f"{path}, line {number}")
            if words:
                found.append(
                    Tagged(tuple(words), tuple(marks) if labelled else (), numbers[0])
                )
        if not found:
            raise UserError(
                f"{path}: no sentences in this file; a line is word, {self._between()}, tag, and a"
                " blank line ends a sentence"
            )
        return found

    def _cells(self, line: str) -> list[str]:
        return (
            line.split()
            if self.separator is None
            else line.rstrip(self.separator).split(self.separator)
        )

    def _between(self) -> str:
        return {"\t": "tab", " ": "space", None: "space"}[self.separator]

    def _check(
        self, path: Path, number: int, cells: list[str], line: str, labelled: bool
    ) -> None:
        count = len(cells)
        if (
            self.width is not None
            and count != self.width
            and not (self.unlabelled and count < 2)
        ):
            raise UserError(
                f"{path}, line {number}: {count} columns, expected {self.width}: {line!r}"
            )
        if labelled:
            enough = (
                count > max(self.word, self.tag, 1)
                and cells[self.word].strip()
                and cells[self.tag].strip()
            )
        else:
            enough = count == 1
        if not enough:
            what = (
                f"a word, a {self._between()} and its tag"
                if labelled
                else "a word alone, as the lines before it"
            )
            raise UserError(f"{path}, line {number}: {line!r} is not {what}")

    def _without_prefix(self, path: Path, number: int, word: str, language: str) -> str:
        code, _, rest = word.partition(":")
        if code != language or not rest:
            raise UserError(
                f"{path}, line {number}: {word!r} does not begin with its language,"
                f" {language + ':'!r}"
            )
        return rest


def read_wikiann(paths: Sequence[Path], task, language: str) -> list[Tagged]:
    """PAN-X: `token TAB tag` (XTREME) or `en:token TAB tag` (its authors); the first line tells."""
    first = next(
        (line for _, line in read_lines(existing(paths[0])) if line.strip()), ""
    )
    bears_language = first.startswith(f"{language}:") and not first.startswith(
        f"{language}:\t"
    )
    return Columns(width=2, prefix=bears_language)(paths, task, language)


def read_tagged_lines(paths: Sequence[Path], task, language: str) -> list[Tagged]:
    """A sentence per line: its words, a tab, their tags, with single spaces between (XTREME's
    `.mt.tsv`); or in every line its words alone, for a teacher to tag. A line without words between
    others keeps its row (see `is_lost`). Raises UserError naming the line."""
    path = existing(paths[0])
    found, width = [], 0
    for number, line in read_lines(path):
        if not line.partition("\t")[0].strip():
            found.append(Tagged((), (), number))
            continue
        cells, where = line.rstrip("\t").split("\t"), f"{path}, line {number}"
        if len(cells) > 2:
            raise UserError(
                f"{where}: {len(cells)} columns, expected 2: words TAB tags"
            )
        width = width or len(cells)
        if len(cells) != width:
            lines = "words TAB tags" if width == 2 else "words alone"
            raise UserError(
                f"{where}: {len(cells)} columns, but the lines before it are {lines}: tag all or"
                " none"
            )
        words, tags = (tuple(cell.split()) for cell in [*cells, ""][:2])
        if width == 2 and len(words) != len(tags):
            raise UserError(f"{where}: {len(words)} words, but {len(tags)} tags")
        found.append(
            Tagged(
                words,
                tuple(known_tag(tag, task.labels or None, where) for tag in tags),
                number,
            )
        )
    while found and is_lost(found[-1]):  # blank lines at the end
        found.pop()
    if not found:
        raise UserError(f"{path}: no sentences in this file; a line is words TAB tags")
    return found


def bio(tags: Sequence[str]) -> list[str]:
    """CoNLL-2003's tags as BIO: I-X that begins a chunk becomes B-X."""
    found = []
    for before, tag in zip(["O", *tags], tags, strict=False):
        begins = tag.startswith("I-") and before[2:] != tag[2:]
        found.append("B-" + tag[2:] if begins else tag)
    return found


def read_conllu(paths: Sequence[Path], task, language: str) -> list[Tagged]:
    """Universal Dependencies' CoNLL-U: words and their UPOS. Of a multiword token the syntactic
    words are read, not
    the token; empty nodes are not words."""
    found = []
    for path in map(existing, paths):
        before = len(found)
        for block in _blocks(path, comments=True):
            words, tags = [], []
            for number, line in block:
                cells, where = line.split("\t"), f"{path}, line {number}"
                if len(cells) != 10:
                    raise UserError(
                        f"{where}: {len(cells)} columns, expected CoNLL-U's 10"
                    )
                if re.fullmatch(r"\d+[-.]\d+", cells[0]):
                    continue
                if cells[0] != str(len(words) + 1):
                    raise UserError(
                        f"{where}: the id {cells[0]!r} is not {len(words) + 1}, the next of its"
                        " sentence"
                    )
                words.append(cells[1].strip())
                tags.append(known_tag(cells[3], task.labels or None, where))
            if words:
                found.append(Tagged(tuple(words), tuple(tags), block[0][0]))
        if len(found) == before:
            raise UserError(
                f"{path}: no sentences in this file; CoNLL-U has ten columns with tabs between"
            )
    return found


def read_xsid_slots(paths: Sequence[Path], task, language: str) -> list[Tagged]:
    """xSID: `number TAB word TAB intent TAB slot`, with comments before each utterance; slots are
    BIO."""
    path = existing(paths[0])
    return Columns(
        word=1, tag=3, width=4, comments=True, unlabelled=False, gaps=True
    ).sentences(path, task.labels or None)


def known_tag(tag: str, tags: Sequence[str] | None, where: str) -> str:
    """The tag, if it is one of `tags` (None: any). Raises UserError beginning with `where`."""
    if tags is None or tag in tags:
        return tag
    if tag.isdigit():
        raise UserError(
            f"{where}: the tag {tag!r} is an id, and code bases number the tags otherwise: write"
            " names"
        )
    raise UserError(f"{where}: unknown tag {tag!r}, expected one of {', '.join(tags)}")


def _blocks(path: Path, comments: bool) -> Iterator[list[tuple[int, str]]]:
    """The lines of each sentence with their numbers."""
    block: list[tuple[int, str]] = []
    for number, line in read_lines(path):
        if not line.strip() or line.startswith("-DOCSTART-"):
            if block:
                yield block
            block = []
        elif not (comments and not block and line.startswith("#")):
            block.append((number, line))
    if block:
        yield block
