"""A place that one process works in at a time, on this host or another that sees the same folder.

A claim is a file: who has it (host, process, since when), and a sign of life that its process gives
by touching it. It is linked into its place, which is atomic on NFS too. One whose process has
died is known and taken over.

`alone_in` and `alone_at` refuse whoever comes second; `claim` tells him, who may do something else.
"""

import contextlib
import dataclasses
import errno
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json, refused_by_system

SIGN_OF_LIFE = 20.0
"""Seconds between two."""
SILENCE = 300.0
"""Seconds without one after which a process of another host counts as dead."""

IN_USE = "in_use.json"
"""In a folder, or behind the name of a file: who works there."""
LOOK = 2.0
"""Seconds between two looks for a sign of life."""

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


@dataclasses.dataclass(frozen=True)
class Holder:
    """Who has a claim."""

    host: str
    machine: str
    """What tells whether its processes can be seen from here: the boot and the process
    namespace."""
    process: int
    began: str
    """When the process began, since numbers of processes are given again."""
    since: float
    """When it was claimed, in seconds since 1970."""

    @classmethod
    def here(cls) -> "Holder":
        return cls(socket.gethostname(), _machine(), os.getpid(), _began(os.getpid()), time.time())

    def is_dead(self, silence: float) -> bool:
        """silence: seconds since its last sign of life."""
        if self.machine != _machine():
            return silence > SILENCE
        began = _began(self.process)
        # Where nothing tells when a process began, its number alone counts.
        return not began or began != self.began

    def is_this_process(self) -> bool:
        return (self.machine, self.process) == (_machine(), os.getpid())

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}, for {_minutes(self):.0f} min"


_UNKNOWN = Holder("a host that is not named", "", 0, "", 0.0)


class Claim:
    """A claim that this process has; a context manager, which gives it up."""

    def __init__(self, path: Path):
        self._path = path
        self._ended = threading.Event()
        self._alive = threading.Thread(target=self._live, daemon=True)
        self._alive.start()

    def _live(self) -> None:
        while not self._ended.wait(SIGN_OF_LIFE):
            # The folder may be gone, which is for the work in it to say.
            with contextlib.suppress(OSError):
                holder, _ = _holder(self._path)
                # Lost to another process, whose sign of life it would be.
                if holder is None or not holder.is_this_process():
                    return
                os.utime(self._path)

    def give_up(self) -> None:
        self._ended.set()
        self._alive.join()
        # The folder may be gone or its disk full, and that is not what ends the work in it.
        with contextlib.suppress(OSError):
            holder, _ = _holder(self._path)
            # A process that was silent for too long has lost it to another.
            if holder is not None and holder.is_this_process():
                self._path.unlink(missing_ok=True)

    def __enter__(self) -> "Claim":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.give_up()


@contextlib.contextmanager
def alone_in(folder: Path, other: str = "choose another folder") -> Iterator[None]:
    """While it is open this process alone works in `folder`, which is made. other: what a second
    one can do instead. Raises UserError where another process works there."""
    with _alone(folder / IN_USE, folder, other):
        yield


@contextlib.contextmanager
def alone_at(path: str | Path, other: str = "choose another --output") -> Iterator[None]:
    """As `alone_in`, of a file, or a folder that is made later: who writes it is told beside it."""
    place = Path(os.path.abspath(path))
    beside = place.with_name(f"{place.name or 'root'}.{IN_USE}")
    # A folder that others have made, as a mount is.
    if place.is_dir() and not os.access(place.parent, os.W_OK):
        beside = place / IN_USE
    with _alone(beside, Path(path), other):
        yield


@contextlib.contextmanager
def _alone(path: Path, place: Path, other: str) -> Iterator[None]:
    there = path.parent.is_dir()
    try:
        with _own(path, place, other):
            yield
    finally:
        # Of a work that was refused nothing stays.
        if not there:
            with contextlib.suppress(OSError):
                path.parent.rmdir()


def _own(path: Path, place: Path, other: str) -> Claim:
    found = claim(path)
    if isinstance(found, Holder):
        found = _heard_of(path, found)
    if isinstance(found, Claim):
        return found
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.since))
    raise UserError(
        f"{place} is in use: process {found.process} on {found.host} has it since {since}"
        f" ({_minutes(found):.0f} min); let that end, or {other} (if there is no such process,"
        f" delete {path})"
    )


def _heard_of(path: Path, holder: Holder) -> Claim | Holder:
    """The holder, who is alive; or his claim: a process that cannot be seen from here may have
    died since its last sign of life, as that of a job that is started again elsewhere has."""
    found: Claim | Holder = holder
    told = False
    before = _sign(path)
    while isinstance(found, Holder) and found.machine != _machine() and _sign(path) == before:
        if not told:
            told = True
            print(
                f"{path}: waiting for a sign of life of process {found.process} on {found.host},"
                f" at most {SILENCE:.0f} s",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(LOOK)
        found = claim(path)
    return found


def _sign(path: Path) -> float:
    """The time of the last sign of life; 0: the claim is gone."""
    try:
        # Opened, for NFS then asks the server.
        with open(path, "rb") as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return 0.0


def _minutes(holder: Holder) -> float:
    return (time.time() - holder.since) / 60


def claim(path: Path) -> Claim | Holder:
    """The claim on `path`, a file of whose folder nothing else is called so; or who has it. The
    folder is made. Raises UserError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if _linked(path):
            return Claim(path)
        holder, silence = _holder(path)
        if holder is not None and not holder.is_dead(silence):
            return holder
        return _taken_over(path)
    except OSError as error:
        # In another folder it would be the same, or this one is as good.
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.EISDIR):
            error.filename = os.fspath(path)
            raise UserError(refused_by_system(error)) from error
        raise UserError(
            f"{path.parent}: cannot be written ({error.strerror or error}); choose another folder"
        ) from error


def holder_of(path: Path) -> Holder | None:
    """Who has the claim at `path`; None: nobody who is alive."""
    try:
        holder, silence = _holder(path)
    # The folder cannot be written, or is gone.
    except OSError:
        return None
    if holder is None or holder.is_dead(silence):
        return None
    return holder


def _taken_over(path: Path) -> Claim | Holder:
    """The claim of a process that has died; or who was faster."""
    # Of several that see a dead claim one takes it: each holds this second one while it looks again
    # and replaces the first.
    second = path.with_name(path.name + ".taking")
    if not _linked(second):
        holder, silence = _holder(second)
        # It died in between, which takes no time.
        if holder is None or holder.is_dead(silence) or silence > SILENCE:
            second.unlink(missing_ok=True)
        return holder or Holder.here()
    try:
        holder, silence = _holder(path)
        if holder is not None and not holder.is_dead(silence):
            return holder
        path.unlink(missing_ok=True)
        if _linked(path):
            return Claim(path)
        holder, _ = _holder(path)
        return holder or Holder.here()
    finally:
        second.unlink(missing_ok=True)


def _linked(path: Path) -> bool:
    """Whether a file that names this process is at `path` now, and was not there before."""
    here = Holder.here()
    # Hosts of one name may have processes of one number.
    whole = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        whole.write_text(json.dumps(dataclasses.asdict(here)), encoding="utf-8")
        # Linking fails where the name is taken, in one step; the file is whole already.
        os.link(whole, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _created(path, whole.read_bytes())
    finally:
        whole.unlink(missing_ok=True)
    return True


def _created(path: Path, content: bytes) -> bool:
    """As `_linked`, where the file system has no links: NFS of old may let two have it."""
    try:
        with open(path, "xb") as file:
            file.write(content)
    except FileExistsError:
        return False
    return True


def _holder(path: Path) -> tuple[Holder | None, float]:
    """(who has the claim at `path`, seconds since its sign of life); None: nobody, or a file that
    names nobody."""
    try:
        record = parsed_json(path.read_text(encoding="utf-8"))
        return Holder(**record), _now(path.parent) - path.stat().st_mtime
    except FileNotFoundError:
        return None, 0.0
    except (ValueError, TypeError):
        pass
    silence = _now(path.parent) - path.stat().st_mtime
    # Without links a file is empty for a moment before it names its process.
    if silence < SIGN_OF_LIFE:
        return _UNKNOWN, silence
    return None, silence


def _now(folder: Path) -> float:
    """By the clock of the file system, which may be that of a server."""
    probe = folder / f".now.{uuid.uuid4().hex}"
    probe.touch()
    now = probe.stat().st_mtime
    probe.unlink()
    return now


def _machine() -> str:
    """This boot of this machine and what of its processes can be seen."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    # Not Linux.
    except OSError:
        return socket.gethostname()
    return f"{boot} {namespace}"


def _began(process: int) -> str:
    """When a process began, as far as it is told; "": there is none."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
        # The second field is a name, which may hold spaces and parentheses.
        fields = stat.rpartition(")")[2].split()
    except OSError:
        if Path("/proc/self/stat").exists():
            return ""
        return _signalled(process)
    # A process that has ended and that nobody has waited for.
    if fields[0] == "Z":
        return ""
    return fields[19]


def _signalled(process: int) -> str:
    """Without /proc: "there", whenever it began; "": there is none."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "there"
