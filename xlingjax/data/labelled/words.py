"""Readers of tagged sentences, a word a line: XTREME, XGLUE, CoNLL-2002 and 2003, CoNLL-U, xSID."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from xlingjax.data.labelled.records import Tagged, is_lost, known_label
from xlingjax.data.text.files import read_lines, words_of
from xlingjax.errors import UserError


def read_tagged(path: str | Path) -> list[Tagged]:
    """Lines `word TAB tag`, a blank line after each sentence. Raises UserError naming the line."""
    return Columns(unlabelled=False).sentences(path, None)


@dataclass(frozen=True)
class Columns:
    """A reader of one file with a word per line, a blank line between sentences.

    `-DOCSTART-` lines, where a document begins, end a sentence as blank lines do.
    """

    separator: str = "\t"  # empty: any run of spaces and tabs
    word: int = 0
    tag: int = 1  # column; -1: the last
    width: int | None = None
    """Number of columns of every line that has a tag; None: any number from two."""
    comments: bool = False
    """Lines that begin with `#` and stand before the first word of a sentence are passed over."""
    prefix: bool = False
    """All words, or none, bear their language in front: `en:Paris` (WikiANN's original form)."""
    first_class: bool = False
    """Tags are CoNLL-2003's, read as BIO: a chunk begins with B- only next to one of its type."""
    unlabelled: bool = True  # lines may hold the word alone, all of them (a test set)
    gaps: bool = False
    """Lines of `width` columns with tag O may lack the word, and are passed over (xSID's zh)."""

    def __call__(self, paths: Sequence[Path], task, language: str) -> list[Tagged]:
        sentences = []
        for path in paths:
            sentences += self.sentences(path, task.labels, language)
        return sentences

    def sentences(self, path: Path, tags: Sequence[str] | None, language: str = "") -> list[Tagged]:
        """Raises UserError naming file and line: invalid UTF-8, a line that is not a word and its
        tag, an unknown tag."""
        sentences = []
        labelled = None
        for block in _blocks(path, self.comments):
            words = []
            marks = []
            for number, line in block:
                where = f"{path}, line {number}"
                if self.separator:
                    cells = line.rstrip(self.separator).split(self.separator)
                else:
                    cells = words_of(line)
                if labelled is None:
                    # The first line tells for the whole file.
                    labelled = not (self.unlabelled and len(cells) == 1)
                if not labelled and len(cells) == 1:
                    words.append(cells[0].strip())
                    continue
                word = mark = ""
                enough = len(cells) > max(self.word, self.tag, 1)
                if labelled and enough and self.width in (None, len(cells)):
                    word = cells[self.word].strip()
                    mark = cells[self.tag].strip()
                if self.gaps and not word and mark == "O":
                    continue
                if self.prefix:
                    code, _, rest = word.partition(":")
                    word = rest if code == language else ""
                if not word or not mark:
                    raise UserError(f"{where}: {line!r} is not a word and its tag, as other lines")
                words.append(word)
                marks.append(mark)
                if not self.first_class:
                    known_label(mark, tags, where)
            first_number, _ = block[0]
            if self.first_class:
                marks = bio(marks)
                for mark in marks:
                    known_label(mark, tags, f"{path}, line {first_number}")
            # A block may hold nothing but gaps.
            if words:
                sentences.append(Tagged(tuple(words), tuple(marks), first_number))
        if not sentences:
            raise UserError(
                f"{path}: no sentences in this file; a line is a word and its tag, and a blank line"
                " ends a sentence"
            )
        return sentences


def read_wikiann(paths: Sequence[Path], task, language: str) -> list[Tagged]:
    """PAN-X: `token TAB tag` (XTREME) or `en:token TAB tag` (its authors); the first line tells."""
    # By the first line with text: a file may begin with blank ones.
    first = next((line for _, line in read_lines(paths[0]) if line.strip()), "")
    # "is:" TAB may be a word alone.
    bears_language = re.match(rf"{re.escape(language)}:[^\t]", first) is not None
    return Columns(width=2, prefix=bears_language)(paths, task, language)


def read_tagged_lines(
    paths: Sequence[Path], task, language: str, *, every_line: bool = False
) -> list[Tagged]:
    """A sentence per line: its words, a tab, their tags, with single spaces between (XTREME's
    `.mt.tsv`); or in every line its words alone, for a teacher to tag. A line without words between
    others keeps its row (see `is_lost`). every_line: so do those at the end, as the file translates
    another line by line. Raises UserError naming the line."""
    path = paths[0]
    sentences = []
    columns = None
    for number, line in read_lines(path):
        # Kept as a row without words, since rows correspond over the languages.
        if not line.partition("\t")[0].strip():
            sentences.append(Tagged((), (), number))
            continue
        words, *tags = (words_of(cell) for cell in line.rstrip("\t").split("\t"))
        where = f"{path}, line {number}"
        if columns is None:
            columns = len(tags)
        if len(tags) != columns or columns > 1:
            raise UserError(f"{where}: not words TAB tags, in all lines or in none")
        for marks in tags:
            if len(words) != len(marks):
                raise UserError(f"{where}: {len(words)} words, but {len(marks)} tags")
            for mark in marks:
                known_label(mark, task.labels, where)
        sentences.append(Tagged(tuple(words), tuple(sum(tags, [])), number))
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
    for path in paths:
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
                # A gap shows that lines are lost or sentences run together.
                if cells[0] != str(len(words) + 1):
                    raise UserError(f"{where}: the id {cells[0]!r} is not {len(words) + 1}")
                words.append(cells[1].strip())
                tags.append(known_label(cells[3], task.labels, where))
            if words:
                first_number, _ = block[0]
                sentences.append(Tagged(tuple(words), tuple(tags), first_number))
        if len(sentences) == before:
            raise UserError(f"{path}: no sentences in this file")
    return sentences


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
