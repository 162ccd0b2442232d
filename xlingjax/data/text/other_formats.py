"""Files that are no running text: tables, markup and JSON under the names of text."""

from __future__ import annotations

from pathlib import Path

from xlingjax.data.text.files import plain_name, read_lines
from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json

_OTHERS = {"csv", "xls", "xlsx", "xml", "html", "htm", "tmx", "sgm", "sgml"}
_OTHERS |= {"conllu", "conll", "iob2", "parquet", "arrow", "json"}
"""Endings of what is no running text."""


def refuse_other_formats(path: Path) -> None:
    """Raises UserError where a file of lines is certainly something else: by its ending, or since
    it begins with a JSON object."""
    if plain_name(path).rpartition(".")[2].lower() in _OTHERS or _is_object(_first_line(path)):
        raise UserError(
            f"{path} is not read as text: write a sentence per line, a .tsv whose header names a"
            ' column `text`, or a .jsonl of {"text": ...}; or name other files, like folder/*.txt'
        )


def refuse_no_lines(path: str | Path) -> None:
    """As `refuse_other_formats`, where each line is taken as a text whatever the file's name: also
    of tables and JSON lines, whose rows are records. A pipe is told by its name alone."""
    path = Path(path)
    ending = plain_name(path).rpartition(".")[2].lower()
    # What is read of a pipe here would be missing later.
    first = _first_line(path) if path.is_file() else ""
    is_table = ending == "tsv" and "\t" in first
    if ending in _OTHERS or ending == "jsonl" or is_table or _is_object(first):
        raise UserError(f"{path} is not read as text: write its texts to a file, one per line")


def _first_line(path: Path) -> str:
    try:
        return next((line for _, line in read_lines(path) if line.strip()), "")
    # A file that cannot be read is told by who reads it, with all that is wrong with it.
    except UserError:
        return ""


def _is_object(line: str) -> bool:
    try:
        return line.startswith("{") and isinstance(parsed_json(line), dict)
    except ValueError:
        return False
