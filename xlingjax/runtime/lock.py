"""A place that one process writes at a time, on this host or another that sees the same folder.

The lock is the system's own (`flock`, through `filelock`): it ends with the process that holds it,
however that ends. Its file says who holds it.
"""

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from xlingjax.errors import UserError

IN_USE = "in_use.lock"  # in a folder, or behind the name of a file: who works there


class Lock(contextlib.AbstractContextManager):
    """A lock that this process holds; as a context manager it releases it."""

    def __init__(self, path: Path, lock: FileLock):
        self._path = path
        self._lock = lock

    def release(self) -> None:
        # While it is held, so that nobody loses a lock; the folder may be gone.
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._lock.release(force=True)

    def __exit__(self, *error) -> None:
        self.release()


def take(path: Path) -> Lock | None:
    """The lock at `path`, in a folder made for it; None: taken (`holder`). Raises UserError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, thread_local=False)
        lock.acquire(blocking=False)
        # Where the file system has no flock, the file is the lock, and what it says is filelock's.
        if isinstance(lock, FileLock):
            _write_holder(path, lock)
        return Lock(path, lock)
    except Timeout:
        return None
    except OSError as error:
        # Another folder would be no remedy; the command line says what is.
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.EISDIR):
            raise
        raise UserError(
            f"{path.parent}: cannot be written ({error.strerror or error}); choose another folder"
        ) from error


def _write_holder(path: Path, lock: FileLock) -> None:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    try:
        path.write_text(f"process {os.getpid()} on {socket.gethostname()}, since {since}\n")
    except OSError:
        Lock(path, lock).release()
        raise


def holder(path: Path) -> str:
    """Who holds the lock at `path`, in words."""
    with contextlib.suppress(OSError, ValueError):
        if words := path.read_text().split():
            return " ".join(words)
    return "another process"


def is_held(path: Path) -> bool:
    """Whether another process holds the lock at `path`."""
    if not path.is_file():
        return False
    try:
        lock = take(path)
    except (OSError, UserError):
        return False
    if lock is not None:
        lock.release()
    return lock is None


@contextlib.contextmanager
def alone_in(folder: Path, other: str = "choose another folder") -> Iterator[None]:
    """While it is open this process alone works in `folder`, which is made. other: what a second
    process can do instead. Raises UserError where another process works there."""
    with _alone(folder / IN_USE, folder, other):
        yield


@contextlib.contextmanager
def alone_at(path: str | Path, other: str = "choose another --to") -> Iterator[None]:
    """As `alone_in`, for a file, or a folder that is made later: the lock lies beside it."""
    place = Path(os.path.abspath(path))
    beside = place.with_name(f"{place.name or 'root'}.{IN_USE}")
    # A folder that others have made, such as a mount.
    if place.is_dir() and not os.access(place.parent, os.W_OK):
        beside = place / IN_USE
    with _alone(beside, Path(path), other):
        yield


@contextlib.contextmanager
def _alone(path: Path, place: Path, other: str) -> Iterator[None]:
    existed = path.parent.is_dir()
    try:
        lock = take(path)
        if lock is None:
            raise UserError(f"{place} is in use: {holder(path)}; let that end, or {other}")
        with lock:
            yield
    finally:
        # A refused command leaves no folder behind.
        if not existed:
            with contextlib.suppress(OSError):
                path.parent.rmdir()
