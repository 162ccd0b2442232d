"""Checked files of the caches (see `runtime.checked_file`), and what is done about damaged ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.errors import UserError
from xlingjax.runtime.checked_file import (
    Damaged,
    read_array,
    read_index,
    write_array,
    write_index,
    write_parts,
)

__all__ = [
    "Damaged",
    "array_at",
    "index_at",
    "is_whole",
    "read_array",
    "read_index",
    "remove",
    "say_mended",
    "unmendable",
    "write_array",
    "write_index",
    "write_parts",
]


def is_whole(path: Path) -> bool:
    """Whether a file has the size that its header tells; its content is not looked at."""
    try:
        _header(path)
    except (Damaged, FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    return True


def _header(path: Path) -> tuple[np.dtype, tuple[int, ...], int, Any]:
    """(dtype, shape, bytes before the array, the file's status). Raises Damaged and OSError. No
    memory is taken for what the header tells."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if np.lib.format.read_magic(file) != (1, 0):
                raise Damaged(path, "another version of arrays")
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            offset = file.tell()
    except OSError:
        raise
    # NumPy's parser lets through whatever Python's raises.
    except Exception as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(path, "no array begins there") from None
    count = 1
    for length in shape:
        count *= length
    wanted = offset + count * dtype.itemsize + 16
    if dtype.hasobject or min(shape, default=0) < 0:
        raise Damaged(path, "no array of numbers")
    if status.st_size != wanted:
        raise Damaged(path, f"{status.st_size:,} bytes of {wanted:,}")
    return dtype, shape, offset, status


# ---- mending -------------------------------------------------------------------------------------


def index_at(path: Path) -> dict[str, Any] | None:
    """None where there is none. A damaged one is removed, which is said: what it tells of is made
    again. Raises UserError where it cannot be removed."""
    try:
        return read_index(path)
    except FileNotFoundError:
        return None
    except Damaged as fault:
        say_mended(fault)
        remove(fault, path)
        return None


def array_at(path: Path) -> np.ndarray | None:
    """As `index_at`, of an array."""
    try:
        return read_array(path)
    except FileNotFoundError:
        return None
    except Damaged as fault:
        say_mended(fault)
        remove(fault, path)
        return None


def say_mended(fault: Damaged) -> None:
    print(f"{fault}; it is made again", flush=True)


def unmendable(fault: Damaged) -> UserError:
    """For a file that was removed, and that only a new start makes again."""
    return UserError(f"{fault} and was removed: start again, it is made again")


def remove(fault: Damaged, *paths: Path) -> None:
    """Removes files, a folder in the place of one too. Raises UserError."""
    for path in paths:
        try:
            if path.is_dir() and not path.is_symlink():
                path.rename(path.with_name(f"{path.name}.folder"))
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(
                f"{fault} and cannot be removed ({error.strerror or error}): remove {path}"
            ) from None
