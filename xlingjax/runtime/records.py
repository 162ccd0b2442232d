"""Files of JSON that a run or a workflow wrote, read again: one line names the file, the place in
it and the remedy where it is not what was written."""

from __future__ import annotations

import json
import math
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.errors import UserError
from xlingjax.runtime.files import is_of_system, parsed_json

ANY = object  # a shape that any value has
NUMBER = (int, float, type(None))  # as the tracker writes numbers: null for one that is not finite


def misfit(value: Any, shape: Any, where: str = "") -> str:
    """What of a JSON value has not the shape, in words; "": nothing.

    A shape is a type or several; `(None, shape)`, null or that; `[shape]`, a list; `{str: shape}`,
    a table of any names; `{"name": shape, "name?": shape}`, a table with these names, of which some
    may be missing.
    """
    if isinstance(shape, tuple) and shape[0] is None:
        if value is None:
            return ""
        shape = shape[1]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{where or 'it'} is no list"
        for number, item in enumerate(value):
            if wrong := misfit(item, shape[0], f"{where}[{number}]"):
                return wrong
        return ""
    if isinstance(shape, dict):
        return _misfit_of_table(value, shape, where)
    is_odd = isinstance(value, bool) and shape not in (bool, ANY)
    if isinstance(value, float) and not math.isfinite(value):
        is_odd = shape is not ANY
    if is_odd or not isinstance(value, shape):
        return f"{where or 'it'} is {json.dumps(value)[:40]}"
    return ""


def _misfit_of_table(value: Any, shape: dict[Any, Any], where: str) -> str:
    if not isinstance(value, dict):
        return f"{where or 'it'} is no table"
    if str in shape:
        for name, item in value.items():
            if wrong := misfit(item, shape[str], _below(where, name)):
                return wrong
        return ""
    for name, of_item in shape.items():
        may_lack = name.endswith("?")
        name = name.removesuffix("?")
        if name in value:
            if wrong := misfit(value[name], of_item, _below(where, name)):
                return wrong
        elif not may_lack:
            return f"{_below(where, name)} is missing"
    return ""


def _below(where: str, name: str) -> str:
    if not where:
        return name
    return f"{where}.{name}"


def _read(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except (IsADirectoryError, NotADirectoryError) as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None


def read_text(path: Path, remedy: str) -> str:
    """Raises UserError: a folder, not UTF-8 (with the line); OSError, as FileNotFoundError."""
    content = _read(path, remedy)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path} line {line}: not UTF-8; {remedy}") from None


def read_record(path: Path, shape: Any, remedy: str) -> Any:
    """A file of JSON that has `shape` (see `misfit`). Raises UserError, and FileNotFoundError."""
    text = read_text(path, remedy)
    try:
        value = parsed_json(text, parse_constant=_null)
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error}); {remedy}") from None
    wrong = misfit(value, shape)
    if wrong:
        raise UserError(f"{path}: {wrong}; {remedy}")
    return value


def read_lines(path: Path, shape: Any, say: Callable[[str], None] | None = None) -> list[Any]:
    """The values of a file of JSON lines, each of `shape`; of one that is not there, none. A last
    line without its end is that of a process that was killed, and left out.

    say: is told of other damaged lines, which are left out; without it they raise UserError.
    """
    if not path.exists():
        return []
    values = []
    content = _read(path, "move it away")
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            continue
        wrong = ""
        try:
            value = parsed_json(line, parse_constant=_null)
            wrong = misfit(value, shape)
        except UnicodeDecodeError:
            wrong = "not UTF-8"
        except ValueError:
            wrong = "not valid JSON"
        if not wrong:
            values.append(value)
        elif say:
            say(f"{path} line {number}: {wrong}; left out")
        else:
            raise UserError(f"{path} line {number}: {wrong}; put the line back, or remove it")
    return values


# What NumPy raises: a header is Python that is parsed.
_NO_ARRAY = (
    *(EOFError, ValueError, TypeError, SyntaxError, ArithmeticError, LookupError, RecursionError),
    *(MemoryError, tokenize.TokenError),
)


def read_npy(path: Path, remedy: str) -> np.ndarray:
    """An array of a `.npy`, read-only through a map. Raises UserError where it is missing, damaged
    or shorter than its header tells; no memory is taken for what that tells."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        why = "an archive of arrays"  # .npz
    # A file of less than a header, one of another kind, one that is not there.
    except _NO_ARRAY as error:
        why = f"{error}"
    except OSError as error:
        if is_of_system(error):
            raise
        why = f"{error.strerror or error}"
    why = (why.splitlines() or [""])[0]
    raise UserError(f"{path} is missing or damaged ({why}); {remedy}")


def _null(constant: str) -> None:
    """NaN and infinities, which JSON has not: as the tracker writes them."""
    return
