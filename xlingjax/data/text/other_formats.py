"""Files that are no running text, whatever reads them: tables, markup and JSON under the names of
text."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Collection
from pathlib import Path

from xlingjax.data.languages import ENGLISH_NAMES, standard_code
from xlingjax.data.text.files import plain_name, read_lines
from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json

_TABLE = "write a .tsv whose first line names a column `text`, or a line per sentence"
_MARKUP = "extract its text, a sentence per line"
_REMEDIES = {
    "csv": _TABLE,
    "xls": _TABLE,
    "xlsx": _TABLE,
    "xml": _MARKUP,
    "html": _MARKUP,
    "htm": _MARKUP,
    "tmx": _MARKUP,
    "sgm": _MARKUP,
    "sgml": _MARKUP,
    "conllu": "it has a word per line; write a sentence per line",
    "conll": "it has a word per line; write a sentence per line",
    "iob2": "it has a word per line; write a sentence per line",
    "parquet": "write it as .jsonl (`Dataset.to_json`)",
    "arrow": "write it as .jsonl (`Dataset.to_json`)",
}
"""What to do with files of an ending that is no running text."""
_NOT_TEXT = re.compile(
    r"(README|LICENSE|LICENCE|COPYING|NOTICE|CHANGELOG|CHANGES|CITATION|AUTHORS|Makefile)\b"
)
_COLUMN = re.compile(
    r"(source|src|target|trg|tgt|original|translation|translated|reference|hypothesis|premise"
    r"|question|answer|query|document|article|summary|title|input|output|label|text|sentence|sent"
    r"|segment|sequence|lang|language|column|col)"
    r"([ _-]?(text|sentence|segment|lang|language))?[ _-]?[0-9ab]?"
)
"""What columns of a table are called, in small letters."""
LOOKED_AT = 20
"""Lines at the beginning of a file that tell what it is."""


def refuse_other_formats(path: Path) -> None:
    """Raises UserError where a file of lines is certainly something else: by its ending, or since
    its first lines are JSON objects."""
    ending = plain_name(path).rpartition(".")[2].lower()
    if ending in _REMEDIES:
        raise UserError(
            f"{path}: .{ending} is not read as text: {_REMEDIES[ending]}; or name other files, like"
            " folder/*.txt"
        )
    first = _first_lines(path)
    # One may stand in text about programs; a file of nothing else is no text.
    if first and all(map(_is_object, first)):
        raise UserError(
            f"{path}: its lines are JSON objects, which would be learnt as text: name it .jsonl"
        )
    if ending == "json":
        raise UserError(
            f'{path}: .json is not read as text: write an object per line, {{"text": ...}}, and'
            " name it .jsonl; or name other files, like folder/*.txt"
        )


def refuse_no_lines(path: str | Path) -> None:
    """Raises UserError where a file of which each line is taken as a text, whatever its name, is
    certainly something else: as `refuse_other_formats`, and tables and JSON lines too, whose rows
    are records. A pipe is told by its name alone."""
    path = Path(path)
    ending = plain_name(path).rpartition(".")[2].lower()
    first = []
    # What is read of a pipe here would be missing later.
    if path.is_file():
        first = _first_lines(path)
    name = shlex.quote(str(path))
    objects = bool(first) and all(map(_is_object, first))
    if ending in ("json", "jsonl") or objects:
        raise UserError(
            f"{path}: JSON is not read as text here: write its texts, one per line, `jq -r .text"
            f" {name} > text.txt`"
        )
    if ending == "tsv" and any("\t" in line for line in first):
        raise UserError(
            f"{path}: a table is not read as text here: write the column of its texts, `cut -f 1"
            f" {name} > text.txt`"
        )
    if ending in _REMEDIES:
        raise UserError(
            f"{path}: .{ending} is not read as text: write its texts to a file, one per line"
        )


def doubts(path: Path, lines: list[str]) -> str:
    """What the lines of a file of running text look like instead; "" of text."""
    if _NOT_TEXT.match(path.name):
        return (
            "its name is that of a description, and it is read as text; name other files, like"
            " folder/*.txt"
        )
    written = [line for line in lines if line]
    kinds = {
        "a markup tag": sum(line[0] == "<" and line[-1] == ">" for line in written),
        "tabs, as tables have": sum("\t" in line for line in written),
        "no letter": sum(not re.search(r"[^\W\d_]", line) for line in written),
    }
    for what, count in kinds.items():
        if count > len(written) / 2:
            return f"most lines have {what}; is it running text?"
    return ""


def is_header(cells: Collection[str], languages: Collection[str]) -> bool:
    """Whether all cells of a first line are names of columns, or of languages: in English, or the
    codes of `languages`."""
    codes = set(map(standard_code, languages))
    for cell in cells:
        word = cell.strip().lower()
        if (
            word not in ENGLISH_NAMES
            and not _COLUMN.fullmatch(word)
            and standard_code(word) not in codes
        ):
            return False
    return bool(cells)


def _first_lines(path: Path) -> list[str]:
    lines = (line.strip() for _, line in read_lines(path))
    try:
        return list(itertools.islice(filter(None, lines), LOOKED_AT))
    # A file that cannot be read is told by who reads it, with all that is wrong with it.
    except UserError:
        return []


def _is_object(line: str) -> bool:
    if not (line.startswith("{") and line.endswith("}")):
        return False
    try:
        return isinstance(parsed_json(line), dict)
    except (ValueError, RecursionError):
        return False
