"""Readers of tagged sentences: a word and its tag per line (XTREME, XGLUE), CoNLL-2002 and 2003,
CoNLL-U, xSID's slots."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from xlingjax.data.labelled.records import Tagged, existing, is_lost
from xlingjax.data.text.files import read_lines
from xlingjax.errors import UserError


def read_tagged(path: str | Path) -> list[Tagged]:
    """Sentences of lines `word TAB tag`, a blank line after each (XTREME's POS and NER). Raises
    UserError naming the line."""
    path = existing(path, "in TRAIN_FILES, DEV_FILES and TEST_FILES {language} is the code")
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
        sentences = []
        for path in paths:
            sentences += self.sentences(existing(path), task.labels or None, language)
        return sentences

    def sentences(self, path: Path, tags: Sequence[str] | None, language: str = "") -> list[Tagged]:
        """Raises UserError naming file and line: invalid UTF-8, a line that is not a word and its
        tag, an unknown tag."""
        sentences = []
        labelled = None
        for block in _blocks(path, self.comments):
            words = []
            marks = []
            numbers = []
            for number, line in block:
                cells = self._cells(line)
                if labelled is None:
                    # The first line tells for the whole file.
                    labelled = not (self.unlabelled and len(cells) == 1)
                if self.gaps and self._is_gap(cells):
                    continue
                self._check(path, number, cells, line, labelled)
                word = cells[self.word].strip()
                if self.prefix:
                    word = self._without_prefix(path, number, word, language)
                words.append(word)
                if labelled:
                    marks.append(cells[self.tag].strip())
                numbers.append(number)
            if self.first_class:
                marks = bio(marks)
            if tags is not None and not set(tags).issuperset(marks):
                # Which line is at fault is looked for only where one is: this loop is slow.
                for number, mark in zip(numbers, marks, strict=True):
                    known_tag(mark, tags, f"{path}, line {number}")
            # A block may hold nothing but gaps.
            if words:
                sentences.append(Tagged(tuple(words), tuple(marks), numbers[0]))
        if not sentences:
            raise UserError(
                f"{path}: no sentences in this file; a line is word, {self._between()}, tag, and a"
                " blank line ends a sentence"
            )
        return sentences

    def _cells(self, line: str) -> list[str]:
        if self.separator is None:
            return line.split()
        return line.rstrip(self.separator).split(self.separator)

    def _is_gap(self, cells: Sequence[str]) -> bool:
        if len(cells) != self.width:
            return False
        return not cells[self.word] and cells[self.tag] == "O"

    def _between(self) -> str:
        return {"\t": "tab", " ": "space", None: "space"}[self.separator]

    def _check(self, path: Path, number: int, cells: list[str], line: str, labelled: bool) -> None:
        where = f"{path}, line {number}"
        count = len(cells)
        may_be_alone = self.unlabelled and count < 2
        if self.width is not None and count != self.width and not may_be_alone:
            raise UserError(f"{where}: {count} columns, expected {self.width}: {line!r}")
        if not labelled:
            if count != 1:
                raise UserError(f"{where}: {line!r} is not a word alone, as the lines before it")
            return
        enough = count > max(self.word, self.tag, 1)
        if not enough or not cells[self.word].strip() or not cells[self.tag].strip():
            raise UserError(f"{where}: {line!r} is not a word, a {self._between()} and its tag")

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
    # By the first line with text: a file may begin with blank ones.
    first = ""
    for _, line in read_lines(existing(paths[0])):
        if line.strip():
            first = line
            break
    bears_language = first.startswith(f"{language}:")
    # A word alone that looks like the mark, as "is:" may.
    if first.startswith(f"{language}:\t"):
        bears_language = False
    return Columns(width=2, prefix=bears_language)(paths, task, language)


def read_tagged_lines(
    paths: Sequence[Path], task, language: str, *, every_line: bool = False
) -> list[Tagged]:
    """A sentence per line: its words, a tab, their tags, with single spaces between (XTREME's
    `.mt.tsv`); or in every line its words alone, for a teacher to tag. A line without words between
    others keeps its row (see `is_lost`). every_line: so do those at the end, as the file translates
    another line by line. Raises UserError naming the line."""
    path = existing(paths[0])
    sentences = []
    width = 0
    for number, line in read_lines(path):
        # Kept as a row without words, since rows correspond over the languages.
        if not line.partition("\t")[0].strip():
            sentences.append(Tagged((), (), number))
            continue
        cells = line.rstrip("\t").split("\t")
        where = f"{path}, line {number}"
        if len(cells) > 2:
            raise UserError(f"{where}: {len(cells)} columns, expected 2: words TAB tags")
        if not width:
            width = len(cells)
        if len(cells) != width:
            lines = "words alone"
            if width == 2:
                lines = "words TAB tags"
            raise UserError(
                f"{where}: {len(cells)} columns, but the lines before it are {lines}: tag all or"
                " none"
            )
        words = cells[0].split()
        tags = []
        if width == 2:
            tags = cells[1].split()
            if len(words) != len(tags):
                raise UserError(f"{where}: {len(words)} words, but {len(tags)} tags")
        for tag in tags:
            known_tag(tag, task.labels or None, where)
        sentences.append(Tagged(tuple(words), tuple(tags), number))
    # Blank lines at the end are no rows; nothing of another language corresponds to them.
    while not every_line and sentences and is_lost(sentences[-1]):
        sentences.pop()
    if all(map(is_lost, sentences)):
        raise UserError(f"{path}: no sentences in this file; a line is words TAB tags")
    return sentences


def bio(tags: Sequence[str]) -> list[str]:
    """CoNLL-2003's tags as BIO: I-X that begins a chunk becomes B-X."""
    marks = []
    before = "O"
    for tag in tags:
        mark = tag
        # Its own B- stands only between two chunks of one type, and stays.
        if tag.startswith("I-") and before[2:] != tag[2:]:
            mark = "B-" + tag[2:]
        marks.append(mark)
        before = tag
    return marks


def read_conllu(paths: Sequence[Path], task, language: str) -> list[Tagged]:
    """Universal Dependencies' CoNLL-U: words and their UPOS. Of a multiword token the syntactic
    words are read, not the token; empty nodes are not words."""
    sentences = []
    for path in map(existing, paths):
        before = len(sentences)
        for block in _blocks(path, comments=True):
            words = []
            tags = []
            for number, line in block:
                cells = line.split("\t")
                where = f"{path}, line {number}"
                if len(cells) != 10:
                    raise UserError(f"{where}: {len(cells)} columns, expected CoNLL-U's 10")
                # "3-4" is a token of several words, "3.1" an empty node.
                if re.fullmatch(r"\d+[-.]\d+", cells[0]):
                    continue
                # Ids count within a sentence: a gap shows that
                # lines are lost or sentences run together.
                if cells[0] != str(len(words) + 1):
                    raise UserError(
                        f"{where}: the id {cells[0]!r} is not {len(words) + 1}, the next of its"
                        " sentence"
                    )
                words.append(cells[1].strip())
                tags.append(known_tag(cells[3], task.labels or None, where))
            if words:
                first_number, _ = block[0]
                sentences.append(Tagged(tuple(words), tuple(tags), first_number))
        if len(sentences) == before:
            raise UserError(
                f"{path}: no sentences in this file; CoNLL-U has ten columns with tabs between"
            )
    return sentences


def read_xsid_slots(paths: Sequence[Path], task, language: str) -> list[Tagged]:
    """xSID: `number TAB word TAB intent TAB slot`, with comments before each utterance; slots are
    BIO."""
    path = existing(paths[0])
    return Columns(word=1, tag=3, width=4, comments=True, unlabelled=False, gaps=True).sentences(
        path, task.labels or None
    )


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
        # Within a sentence "#" is a word.
        elif not (comments and not block and line.startswith("#")):
            block.append((number, line))
    if block:
        yield block
