"""Readers of labelled texts and pairs: XNLI, PAWS-X, XGLUE, SIB-200, xSID, MTOD, XCOPA."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from xlingjax.data.labelled.beside import require_parallel
from xlingjax.data.labelled.records import Example, is_lost, known_label
from xlingjax.data.text.files import read_lines
from xlingjax.data.text.given import parse_object
from xlingjax.errors import UserError

_HIDDEN = 20
# As MultiNLI's translations write it.
_RENAMED = {"contradictory": "contradiction"}


def read_labelled_tsv(path: str | Path, labels: Sequence[str] | None = None) -> list[Example]:
    """`premise TAB hypothesis TAB label` per line, no header.

    labels: the labels allowed; None allows any. MultiNLI's "contradictory" is read as
    "contradiction". Raises UserError naming file and line for a wrong number of columns, an
    empty text, invalid UTF-8 or an unknown label.
    """
    return Table(unlabelled=False).examples(path, labels)


def read_own_table(paths: Sequence[Path], task, language: str) -> list[Example]:
    """The examples of the first file (see `read_labelled_tsv`); a second one holds those that they
    translate, line by line. Raises UserError where their numbers or labels differ."""
    examples, *pivots = (read_labelled_tsv(path, task.labels) for path in paths)
    for path, pivot in zip(paths[1:], pivots, strict=True):
        require_parallel(str(paths[0]), examples, pivot, language, str(path))
    return examples


@dataclass(frozen=True)
class Table:
    """A reader of one tab-separated file whose columns are named; `Files.read` of many tasks.

    Columns that no other field names are passed over. With a header the file's own names say where
    each stands; without one its lines have exactly these columns. A text of several columns is
    those that are not empty, joined with a space.
    """

    columns: tuple[str, ...] = ("premise", "hypothesis", "label")
    premise: tuple[str, ...] = ("premise",)
    hypothesis: tuple[str, ...] = ("hypothesis",)  # empty: single texts
    label: str = "label"
    header: bool = False
    more: int = 0  # columns that may stand behind these, and are not read
    quoted: bool = False  # fields are csv-quoted
    may_be_quoted: bool = False  # they are where `is_quoted` finds it
    language: str = ""
    """The column that tells a row's language; rows of others are not read. Empty: all rows are."""
    unlabelled: bool = True
    """The column of labels, the last, may be missing from every line alike (a test set)."""
    translated: bool = False
    """By a machine, which lost texts here and there, not in every row: they are "" (`is_lost`)."""
    original: tuple[str, ...] = ()
    """Columns of the text that was translated; empty: it is not there."""

    def __call__(self, paths: Sequence[Path], task, language: str) -> list[Example]:
        return self.examples(paths[0], task.labels, language)

    def examples(
        self, path: Path, labels: Sequence[str] | None, language: str = ""
    ) -> list[Example]:
        """Raises UserError naming file and line: a wrong number of columns, an empty text, invalid
        UTF-8, an unknown label."""
        quoted = self.quoted or self.may_be_quoted and is_quoted(path)
        rows = _rows(path, quoted)
        names: Sequence[str] = next(rows, (1, []))[1] if self.header else ()
        needed = {*self.premise, *self.hypothesis, *filter(None, [self.language])}
        if self.header and not needed <= {*names}:
            raise UserError(f"{path}: its header lacks columns of {_shown(self.columns)}")
        examples = []
        for number, cells in rows:
            where = f"{path}, line {number}"
            if not names:
                # Whether the column of labels is there is known from the first line.
                lacks = self.unlabelled and self.columns[-1] == self.label
                lacks &= len(cells) == len(self.columns) - 1
                names = self.columns[:-1] if lacks else self.columns
            if not 0 <= len(cells) - len(names) <= self.more:
                raise UserError(
                    f"{where}: {len(cells)} columns, expected {len(names)}: {_shown(names)}"
                )
            row = dict(zip(names, map(str.strip, cells), strict=False))
            # First: rows of other languages may be broken, and are not read.
            if self.language and row[self.language] != language:
                continue
            premise = " ".join(filter(None, map(row.get, self.premise)))
            hypothesis = None
            if self.hypothesis:
                hypothesis = " ".join(filter(None, map(row.get, self.hypothesis)))
            if "" in (premise, hypothesis) and not self.translated:
                raise UserError(
                    f"{where}: a text is empty; fetch the file again, or remove the line"
                )
            label = row.get(self.label)
            if label is not None:
                label = known_label(_RENAMED.get(label, label), labels, where)
            original = tuple(row[name] for name in self.original)
            examples.append(Example(premise, hypothesis, label, number, original))
        # A few lost texts are a machine's; all of them are a file with other columns.
        if all(map(is_lost, examples)):
            of_language = f" in {language!r}" if self.language else ""
            raise UserError(
                f"{path}: no examples{of_language} in this file; a line is {_shown(self.columns)}"
            )
        return examples


def _shown(columns: Sequence[str]) -> str:
    return " TAB ".join(columns)


def read_translated(paths: Sequence[Path], task, language: str) -> list[Example]:
    """XTREME's translations: `premise TAB hypothesis TAB label`, before them perhaps the text they
    were translated from; the first line tells. Texts may be lost (see `Table.translated`)."""
    path = paths[0]
    quoted = is_quoted(path)
    _, first = next(_rows(path, quoted), (1, []))
    original: tuple[str, ...] = ()
    if len(first) == 5:
        original = ("original premise", "original hypothesis")
    table = Table(
        (*original, *Table.columns),
        quoted=quoted,
        unlabelled=False,
        translated=True,
        original=original,
    )
    return table.examples(path, task.labels)


def is_quoted(path: str | Path) -> bool:
    """Whether every field that holds a quotation mark is written as Python's csv writer does:
    between marks, those inside doubled. A file without such a mark is not. XTREME's scripts write
    XNLI and PAWS-X so."""
    # Every field must obey: one that only begins with a mark shows that the file is not csv-quoted.
    quoted = False
    for _, line in read_lines(path):
        if '"' not in line:
            continue
        for cell in line.split("\t"):
            inner = cell[1:-1]
            if '"' not in cell:
                continue
            # The writer puts marks only around a field that has some: "word" is a text.
            if f'"{inner}"' != cell or '"' not in inner or '"' in inner.replace('""', ""):
                return False
            quoted = True
    return quoted


def _rows(path: Path, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    for number, line in read_lines(path):
        # A line of tabs is a row of empty cells, which has its own message.
        if not line.strip(" "):
            continue
        if quoted:
            # A line at a time, so that an open quotation mark cannot swallow the lines after it.
            yield number, next(csv.reader([line], delimiter="\t"))
        else:
            yield number, line.split("\t")


def read_xcopa(paths: Sequence[Path], task, language: str) -> list[Example]:
    """XCOPA, COPA, JSON by line: premise, question ("cause"/"effect"), choice1, choice2, label 0/1.

    An example reads the premise with the question and both choices; its label is the right
    choice's: "0" is the first. XTREME's script (utils_preprocess.py: xcopa_preprocess) writes 0 in
    every line of a test set to hide the answers: a file of at least `_HIDDEN` lines whose labels
    are all 0 has none.
    """
    path = paths[0]
    examples = []
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        row = parse_object(line, where)
        texts = []
        for key in ("premise", "question", "choice1", "choice2"):
            if not isinstance(row.get(key), str) or not row[key].strip():
                raise UserError(f"{where}: no text {key!r}")
            texts.append(row[key].strip())
        premise, question, first, second = texts
        label = None
        if row.get("label") is not None:
            label = known_label(str(row["label"]), task.labels, where)
        examples.append(Example(f"{premise} {question}", f"{first} / {second}", label, number))
    if not examples:
        raise UserError(f"{path}: no examples in this file")
    # Few lines may all be 0 by chance, hence the least number.
    labels = {example.label for example in examples}
    if len(examples) >= _HIDDEN and labels == {"0"}:
        return [replace(example, label=None) for example in examples]
    return examples


def read_xsid_intents(paths: Sequence[Path], task, language: str) -> list[Example]:
    """xSID: the `# text` of each block and its `# intent`."""
    path = paths[0]
    examples = []
    text = None
    start = 0
    for number, line in read_lines(path):
        value = line.partition("=")[2].strip()
        if line.startswith("# text ="):
            text = value
            start = number
        elif line.startswith("# intent ="):
            where = f"{path}, line {number}"
            if not text:
                raise UserError(f"{where}: an intent without a '# text =' line before it")
            label = known_label(value, task.labels, where)
            examples.append(Example(text, None, label, start))
            # So that a second intent is not taken for the same text's.
            text = None
    if not examples:
        raise UserError(
            f"{path}: no utterances in this file; each has lines '# text =' and '# intent ='"
        )
    return examples
