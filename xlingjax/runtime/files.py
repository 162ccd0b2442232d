"""Files written whole or not at all, whether they can be, and what the system refuses."""

import contextlib
import errno
import fcntl
import glob
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from xlingjax.errors import UserError

_DISK = "see that the disk is there and can be written"
_LIMITS = {
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "end other programs, or raise the system's limit on open files",
    errno.ENOMEM: "end other programs, or take a machine with more memory",
}
_REMEDIES = {
    **_LIMITS,
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EISDIR: "a file is needed there: move the folder away",
    errno.EEXIST: "a folder is needed there: move the file away",
    errno.ENOTDIR: "a folder is needed there: move the file away",
    errno.ELOOP: "repair the links that lead to each other",
}
_OF_DISKS = "EROFS EACCES EPERM EIO ESTALE ENODEV ENOTCONN ETIMEDOUT EINTR"
_REMEDIES |= {getattr(errno, name): _DISK for name in _OF_DISKS.split()}
"""{number of an error: its remedy}."""
_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


def is_of_system(error: Exception) -> bool:
    """Whether a file could not be read for a reason that lies not in it: the next start may read
    it, and it must never be taken for a damaged or missing one."""
    if isinstance(error, OSError):
        return error.errno is not None and not isinstance(error, _MISSING)
    passing = (number for number in _REMEDIES if number in _LIMITS or _REMEDIES[number] == _DISK)
    return any(os.strerror(number) in str(error) for number in passing)


def refused_by_system(error: OSError) -> str:
    """What a disk, a mount or a limit of the system refused, with the file and a remedy; "": the
    error is another one, and may be a fault of the program."""
    if error.errno not in _REMEDIES:
        return ""
    line = f"{error.strerror or error}; {_REMEDIES[error.errno]}"
    if error.filename is None and error.errno in _LIMITS:
        return line
    return f"{os.fsdecode(error.filename or 'the output')}: {line}"


def require_file(path: str | Path) -> None:
    """Raises UserError where a file cannot be written at `path`: a folder is there, or what it
    would lie in is a file or may not be written to."""
    if Path(path).is_dir() or str(path).endswith(os.sep):
        raise UserError(f"--to {path} is a folder; name a file in it")
    # A device or a pipe would be replaced by the file, or be written beside.
    if Path(path).exists() and not Path(path).is_file():
        raise UserError(f"--to {path} is no ordinary file; name another one")
    _require_parent(Path(path), "--to")


def require_apart(output: str | Path, read: Mapping[str, Any]) -> None:
    """Raises UserError where a file cannot be written at `output`, or is one that is read. read:
    {option: path, or none}."""
    require_file(output)
    for option, path in read.items():
        if path and os.path.realpath(path) == os.path.realpath(output):
            raise UserError(f"--to {output} is the file of {option}: name another one")


def require_unicode(name: str | os.PathLike) -> None:
    """Raises UserError for the name of a file that is not Unicode: no log could have it."""
    name = os.fspath(name)
    shown = name.encode(errors="backslashreplace").decode()
    if shown != name:
        raise UserError(f"{shown}: this name is not UTF-8; rename the file or folder")


def require_folder(path: str | Path, option: str = "--to") -> None:
    """Raises UserError where a folder at `path` can be neither made nor written to."""
    place = Path(path)
    if place.exists() and not place.is_dir():
        raise UserError(f"{option} {path} is a file; give a folder")
    _require_parent(place / "file", option)


def _require_parent(path: Path, option: str) -> None:
    parent = next(one for one in Path(os.path.abspath(path)).parents if one.exists())
    if not parent.is_dir():
        raise UserError(f"{option} {path}: {parent} is a file; choose another place")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(f"{option} {path}: {parent} may not be written to; choose another place")


def parsed_json(text: str | bytes, **options: Any) -> Any:
    """The value of JSON. Raises ValueError, also for too many brackets within brackets, and for
    half a surrogate pair, which no file and no terminal takes."""
    if isinstance(text, bytes):
        # Python's reader of bytes guesses at encodings, and lets half a surrogate pair pass.
        text = text.decode("utf-8-sig")
    try:
        value = json.loads(text, **options)
    except RecursionError:
        raise ValueError("brackets within brackets, too many") from None
    if "\\ud" in text.lower():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("half a surrogate pair") from None
    return value


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when it is whole: a reader never sees half of one. Raises
    OSError, which names `path`."""
    # With the number of the process, since several may write one file.
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        _clear(path)
        with _locked(partial) as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise _of_file(error, path) from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _clear(path: Path) -> None:
    """Removes what processes that were killed have left of `path`: nobody holds its lock."""
    for left in path.parent.glob(f"{glob.escape(path.name)}.*.partial"):
        with contextlib.suppress(OSError), open(left, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def _locked(partial: Path) -> IO[bytes]:
    while True:
        file = open(partial, "wb")  # noqa: SIM115 - the caller's to close
        # Some file systems have no locks, and keep what was left.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        # Another process may have cleared it before it had its lock.
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


def write_json(path: Path, value: Any) -> None:
    """Write whole or not at all."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    write_text(path, text + "\n")


def write_text(path: Path, text: str) -> None:
    """Write whole or not at all, as UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write whole or not at all."""
    with replaced(path) as file:
        file.write(content)


def append_line(path: Path, line: str) -> None:
    """Writes a line behind the others, all of it or nothing. Raises OSError."""
    content = f"{line}\n".encode()
    try:
        # Unbuffered, since closing would write once more what a full disk refused.
        with open(path, "ab", buffering=0) as file:
            size = file.tell()
            try:
                if file.write(content) < len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                with contextlib.suppress(OSError):
                    os.truncate(path, size)
                raise
    except OSError as error:
        raise _of_file(error, path) from None


def _of_file(error: OSError, path: Path) -> OSError:
    """The error, naming the file to be written: a full disk's names none, another the partial."""
    return OSError(error.errno, error.strerror, os.fspath(path))
