"""Readers of labelled texts and pairs of texts: tables of XNLI, PAWS-X, XGLUE and SIB-200, intents
of xSID and MTOD, XCOPA."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from xlingjax.data.labelled.records import Example, existing, is_lost
from xlingjax.data.text.files import is_damage, open_bytes, read_lines
from xlingjax.data.text.given import parse_object
from xlingjax.errors import UserError

_REMEDY = (
    "fetch the file again, or in one to train on remove the line (of a test set every line is"
    " predicted)"
)
_HIDDEN = 20
# As MultiNLI's translations write it.
_RENAMED = {"contradictory": "contradiction"}


def read_labelled_tsv(
    path: str | Path, labels: Sequence[str] | None = None, *, quoted: bool | None = False
) -> list[Example]:
    """`premise TAB hypothesis TAB label` per line, no header.

    labels: the labels allowed; None allows any. MultiNLI's "contradictory" is read as
    "contradiction". quoted: fields may be csv-quoted, as XTREME writes them (PAWS-X fr, es, de);
    None: see `is_quoted`. Raises UserError naming file and line for a wrong number of columns, an
    empty text, invalid UTF-8 or an unknown label.
    """
    path = existing(path, "in TRAIN_FILES, DEV_FILES and TEST_FILES {language} is the code")
    return Table(quoted=quoted, unlabelled=False).examples(path, labels)


def read_own_table(paths: Sequence[Path], task, language: str) -> list[Example]:
    """The examples of the first file (see `read_labelled_tsv`); a second one holds those that they
    translate, line by line.

    Raises UserError naming both files where their numbers of examples differ, and with the lines
    where labels do.
    """
    examples, *pivots = (read_labelled_tsv(path, task.labels) for path in paths)
    for pivot in pivots:
        if len(examples) != len(pivot):
            raise UserError(
                f"{paths[0]} has {len(examples)} examples and {paths[1]} has {len(pivot)}: plug-in"
                " fine-tuning reads the same examples in two languages, line by line; translate the"
                " rest or remove it"
            )
        # Plug-in fine-tuning adds two texts into one
        # example: labels that differ show lines that moved.
        for a, b in zip(examples, pivot, strict=True):
            if a.label != b.label:
                raise UserError(
                    f"{paths[0]}, line {a.line}: label {a.label!r}, and {b.label!r} in {paths[1]},"
                    f" line {b.line}: the two files must hold the same examples in the same order"
                )
    return examples


@dataclass(frozen=True)
class Table:
    """A reader of one tab-separated file whose columns are named; `Files.read` of many tasks.

    Columns that no other field names are passed over. With a header the file's own names say where
    each stands;
    without one its lines have exactly these columns. Texts of several columns are joined with a
    space.
    """

    columns: tuple[str, ...] = ("premise", "hypothesis", "label")
    premise: tuple[str, ...] = ("premise",)
    hypothesis: tuple[str, ...] = ("hypothesis",)
    """Empty: single texts."""
    label: str = "label"
    header: bool = False
    quoted: bool | None = False
    """Whether fields may be csv-quoted; None: see `is_quoted`."""
    language: str = ""
    """The column that says whose language a row is: only those of the language are read. Empty: all
    rows are."""
    unlabelled: bool = True
    """The column of labels may be missing, from every line alike (a test set); it must then be the
    last."""
    may_be_empty: tuple[str, ...] = ()
    """Columns whose text may be missing, when another column of the same text has some."""
    translated: bool = False
    """By a machine, which lost texts here and there: they are "" (see `is_lost`), but not in every
    row."""
    original: tuple[str, ...] = ()
    """Columns of the text that was translated; empty: it is not there."""

    def __call__(self, paths: Sequence[Path], task, language: str) -> list[Example]:
        return self.examples(existing(paths[0]), task.labels or None, language)

    def examples(
        self, path: Path, labels: Sequence[str] | None, language: str = ""
    ) -> list[Example]:
        """Raises UserError naming file and line: a wrong number of columns, an empty text, invalid
        UTF-8, an unknown label, a label that is an id."""
        quoted = self.quoted
        if quoted is None:
            quoted = is_quoted(path)
        rows = _rows(path, quoted)
        names = None
        if self.header:
            names = self._header(path, rows)
        examples = []
        languages = set()
        for number, cells in rows:
            if not names:
                # Whether the column of labels is there is known from the first line.
                names = self._names(path, number, len(cells))
            if len(cells) != len(names):
                raise self._wrong_count(path, number, len(cells), len(names), self.header)
            row = dict(zip(names, map(str.strip, cells), strict=True))
            # Before the texts are looked at: rows of other
            # languages may be broken and are not read.
            if self.language:
                languages.add(row[self.language])
                if row[self.language] != language:
                    continue
            where = f"{path}, line {number}"
            premise = self._text(where, row, self.premise)
            hypothesis = None
            if self.hypothesis:
                hypothesis = self._text(where, row, self.hypothesis)
            label = row.get(self.label)
            if label is not None:
                label = known_label(_RENAMED.get(label, label), labels, where)
            original = tuple(row[name] for name in self.original)
            examples.append(Example(premise, hypothesis, label, number, original))
        if not examples and languages:
            raise UserError(
                f"{path}: no rows of {language!r}; its column {self.language} has"
                f" {', '.join(sorted(languages))}"
            )
        if not examples:
            raise UserError(f"{path}: no examples in this file; a line is {_shown(self.columns)}")
        # A few lost texts are a machine's; all of them are a file with other columns.
        if all(map(is_lost, examples)):
            raise UserError(f"{path}: every line lacks a text; fetch the file again")
        return examples

    def _header(self, path: Path, rows: Iterator[tuple[int, list[str]]]) -> list[str]:
        number, names = next(rows, (1, []))
        needed = [*self.premise, *self.hypothesis]
        if self.language:
            needed.append(self.language)
        if not self.unlabelled:
            needed.append(self.label)
        for name in needed:
            if name not in names:
                raise UserError(
                    f"{path}, line {number}: no column {name!r} in the header; expected"
                    f" {_shown(self.columns)}"
                )
        return names

    def _names(self, path: Path, number: int, count: int) -> Sequence[str]:
        label_is_last = self.columns[-1] == self.label
        if self.unlabelled and label_is_last and count == len(self.columns) - 1:
            return self.columns[:-1]
        if count != len(self.columns):
            raise self._wrong_count(path, number, count, len(self.columns), False)
        return self.columns

    def _wrong_count(
        self, path: Path, number: int, count: int, expected: int, header: bool
    ) -> UserError:
        names = f": {_shown(self.columns[:expected])}"
        if header:
            names = " as its header has"
        elif self.columns == Table.columns:
            # The user's own table, which may have been written for another program.
            names += "; a header or single texts cannot be read"
        return UserError(f"{path}, line {number}: {count} columns, expected {expected}{names}")

    def _text(self, where: str, row: dict[str, str], names: Sequence[str]) -> str:
        texts = [row[name] for name in names]
        # Most rows are whole.
        if all(texts):
            return " ".join(texts)
        empty = [name for name in names if not row[name]]
        fault = ""
        for name in empty:
            if name not in self.may_be_empty:
                fault = name
                break
        if len(empty) == len(names):
            fault = " and the ".join(names)
        if not fault:
            # An optional part that is empty leaves no space behind.
            return " ".join(row[name] for name in names if row[name])
        if self.translated:
            return ""
        verb = "are"
        if fault in names:
            verb = "is"
        raise UserError(f"{where}: the {fault} {verb} empty: {_REMEDY}")


def _shown(columns: Sequence[str]) -> str:
    return " TAB ".join(columns)


def read_translated(paths: Sequence[Path], task, language: str) -> list[Example]:
    """XTREME's translations: `premise TAB hypothesis TAB label`, before them perhaps the text they
    were translated from; the first line tells. Texts may be lost (see `Table.translated`)."""
    path = existing(paths[0])
    quoted = is_quoted(path)
    _, first = next(_rows(path, quoted), (1, []))
    columns = Table.columns
    original: tuple[str, ...] = ()
    if len(first) == 5:
        original = ("original premise", "original hypothesis")
        columns = (*original, *columns)
    table = Table(columns, quoted=quoted, unlabelled=False, translated=True, original=original)
    return table.examples(path, task.labels or None)


def is_quoted(path: str | Path) -> bool:
    """Whether every field that holds a quotation mark is written as Python's csv writer does:
    between marks, those inside doubled. A file without such a mark is not. XTREME's scripts write
    XNLI and PAWS-X so."""
    try:
        with open_bytes(path) as file:
            # As most files are: their lines need not be looked at.
            if not any(b'"' in block for block in iter(lambda: file.read(1 << 24), b"")):
                return False
    except Exception as error:
        if not is_damage(error):
            raise
        # Reading its lines, which comes next, says where it is damaged.
        return False
    # Every field must obey: one that only begins with a mark shows that the file is not csv-quoted.
    quoted = False
    for _, line in read_lines(path):
        for cell in line.split("\t"):
            if '"' not in cell:
                continue
            if not _is_quoted_field(cell):
                return False
            quoted = True
    return quoted


def _is_quoted_field(cell: str) -> bool:
    if len(cell) < 2 or not cell[0] == cell[-1] == '"':
        return False
    inner = cell[1:-1]
    # The writer puts marks only around a field that has some: "word" is a text with its quotes.
    return '"' in inner and '"' not in inner.replace('""', "")


def known_label(label: str, labels: Sequence[str] | None, where: str) -> str:
    """The label, if it is one of `labels` (None: any). Raises UserError beginning with `where`."""
    if labels is None or label in labels:
        return label
    if label.isdigit() and not any(known.isdigit() for known in labels):
        order = ", ".join(f"{i} {known}" for i, known in enumerate(labels))
        raise UserError(
            f"{where}: the label {label!r} is an id, and code bases number the labels otherwise:"
            f" write names; if the file keeps the order of this task, they are {order}"
        )
    message = f"{where}: unknown label {label!r}, expected one of {', '.join(labels)}"
    for known in labels:
        if known.lower() == label.lower():
            raise UserError(f"{message}; write {known!r}")
    raise UserError(message)


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


# --- Other layouts --------------------------------------------------------------------------------


def read_xcopa(paths: Sequence[Path], task, language: str) -> list[Example]:
    """XCOPA and COPA, a JSON object per line: premise, question ("cause" or "effect"), choice1,
    choice2, label 0 or 1.

    An example reads the premise with the question and both choices; its label is the right
    choice's: "0" is the first. XTREME's script (utils_preprocess.py: xcopa_preprocess) writes 0 in
    every line of a test set to hide the answers: a file of at least `_HIDDEN` lines whose labels
    are all 0 has none.
    """
    path = existing(paths[0])
    examples = []
    for number, line in read_lines(path):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        row = parse_object(line, where)
        for key in ("premise", "question", "choice1", "choice2"):
            if not isinstance(row.get(key), str) or not row[key].strip():
                raise UserError(f"{where}: no text {key!r}")
        label = None
        if row.get("label") is not None:
            label = known_label(str(row["label"]), task.labels or None, where)
        premise = f"{row['premise'].strip()} {row['question'].strip()}"
        choices = f"{row['choice1'].strip()} / {row['choice2'].strip()}"
        examples.append(Example(premise, choices, label, number))
    if not examples:
        raise UserError(
            f"{path}: no examples in this file; a line is a JSON object with premise, choice1,"
            " choice2"
        )
    # Few lines may all be 0 by chance, hence the least number.
    labels = {example.label for example in examples}
    if len(examples) >= _HIDDEN and labels == {"0"}:
        return [replace(example, label=None) for example in examples]
    return examples


def read_xsid_intents(paths: Sequence[Path], task, language: str) -> list[Example]:
    """xSID: the `# text` of each block and its `# intent`."""
    path = existing(paths[0])
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
            label = known_label(value, task.labels or None, where)
            examples.append(Example(text, None, label, start))
            # So that a second intent is not taken for the same text's.
            text = None
    if not examples:
        raise UserError(
            f"{path}: no utterances in this file; each has lines '# text =' and '# intent ='"
        )
    return examples


def read_mtod_intents(paths: Sequence[Path], task, language: str) -> list[Example]:
    """Facebook's multilingual task-oriented dialogues: `intent TAB start:end:slot,... TAB text TAB
    locale`, and in the full set a fifth column of tokens."""
    path = existing(paths[0])
    examples = []
    for number, line in read_lines(path):
        if not line.strip():
            continue
        cells = line.split("\t")
        where = f"{path}, line {number}"
        if len(cells) not in (4, 5):
            raise UserError(
                f"{where}: {len(cells)} columns, expected 4: intent TAB slots TAB text TAB locale"
            )
        intent, slots, text = cells[:3]
        if not text.strip():
            raise UserError(f"{where}: the text is empty: {_REMEDY}")
        # Slots are not learnt, but wrong ones tell that the columns are others.
        for slot in filter(None, slots.split(",")):
            match = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9}):\S+", slot)
            if not match or not int(match[1]) < int(match[2]) <= len(text):
                raise UserError(
                    f"{where}: the slot {slot!r} is not start:end:name within the {len(text)}"
                    " characters"
                )
        label = known_label(intent.strip(), task.labels or None, where)
        examples.append(Example(text.strip(), None, label, number))
    if not examples:
        raise UserError(
            f"{path}: no utterances in this file; a line is intent TAB slots TAB text TAB locale"
        )
    return examples
