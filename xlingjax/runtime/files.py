"""Files that are written whole or not at all, whether they can be, before the work, and disks
that refuse."""

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT)
_GONE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EIO,
    errno.ESTALE,
    errno.ENODEV,
    errno.ENOTCONN,
)


def require_file(path: str | Path, option: str = "--output") -> None:
    """Raises UserError where a file cannot be written at `path`: a folder is there, or what it
    would lie in is a file or may not be written to. option: what named it."""
    if Path(path).is_dir() or str(path).endswith(os.sep):
        raise UserError(f"{option} {path} is a folder; name a file in it")
    _require_parent(Path(path), option)


def require_folder(path: str | Path, option: str = "--output") -> None:
    """Raises UserError where a folder at `path` can be neither made nor written to."""
    place = Path(path)
    if place.exists() and not place.is_dir():
        raise UserError(f"{option} {path} is a file; give a folder")
    # Asked for as a file in it would be.
    _require_parent(place / "file", option)


def require_appended(path: Path, remedy: str) -> None:
    """Raises UserError where nothing can be written behind what stands in a file, or the file can
    not be made. remedy: what can be done."""
    place = path
    if not path.exists():
        place = path.parent
    wanted = os.W_OK
    if place.is_dir():
        wanted |= os.X_OK
    if path.is_dir() or not os.access(place, wanted):
        raise UserError(f"{path} may not be written to; {remedy}")


def _require_parent(path: Path, option: str) -> None:
    for parent in Path(os.path.abspath(path)).parents:
        if not parent.exists():
            continue
        if not parent.is_dir():
            raise UserError(
                f"{option} {path}: {parent} is a file; choose another place",
            )
        if not os.access(parent, os.W_OK | os.X_OK):
            raise UserError(
                f"{option} {path}: {parent} may not be written to; choose another place",
            )
        return


def write_json(path: Path, value: Any) -> None:
    """Write whole or not at all."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    write_text(path, text + "\n")


def write_text(path: Path, text: str) -> None:
    """Write whole or not at all, as UTF-8."""
    # By its process, since several may write one file.
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        # Renaming replaces a file at once, so a reader never sees half of one.
        partial.replace(path)
    finally:
        # Only where it could not be written: it has its own name otherwise.
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def disk_explained(folder: Path) -> Iterator[None]:
    """A disk that is full, or gone, while a run writes to `folder` becomes a UserError."""
    try:
        yield
    except OSError as error:
        place = folder
        if error.filename is not None:
            place = Path(os.fsdecode(error.filename))
        # Of files elsewhere their readers speak.
        ours = place == folder or folder in place.parents
        why = error.strerror or error
        if error.errno in FULL:
            raise UserError(
                f"{place} could not be written: {why}; make room and start again",
            ) from error
        if error.errno in _GONE and ours:
            raise UserError(
                f"{place} could not be read or written: {why}; see that the disk is there and"
                " start again",
            ) from error
        raise
