"""Disks that are full or read-only, limits of the system, another process that works in the same
place. Small file systems are mounted, which needs root."""

import contextlib
import dataclasses
import gc
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.faults.cases import case
from benchmarks.faults.place import Place, Said, cli, write

FULL, READ_ONLY, LIMITS, LOCKS = (
    "a full disk",
    "a read-only place",
    "limits of the system",
    "another process in the place",
)


@contextlib.contextmanager
def disk(place: Place, size: str) -> Iterator[Path]:
    """The folder of a file system of so many bytes."""
    folder = place.root / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    subprocess.run(command, check=True)
    try:
        yield folder
    finally:
        # Lazily: threads of what failed may have files open.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def left(folder: Path, said: Said) -> Said:
    """A fault where what was refused has left something under its name."""
    names = sorted(str(x) for x in folder.rglob("*") if x.is_file())
    if said.status == 2 and names:
        return Said(None, said.out, said.err, f"left behind: {names}")
    return said


WORDS: dict[str, Callable[[Place, Path], list[object]]] = {
    "encode": lambda place, to: [
        *("encode", place.run, "--language", "de"),
        *("--input", place.root / "mono/de/a.txt", "--output", to / "v"),
    ],
    "align": lambda place, to: [
        *("align", place.run, "--languages", "de", "en"),
        *("--stem", place.root / "pairs/de-en", "--output", to / "a"),
    ],
    "mine": lambda place, to: [
        *("mine", place.run, "--languages", "de", "en", "--files"),
        *(place.root / "mono/de/a.txt", place.root / "mono/en/a.txt"),
        *("--output", to / "m"),
    ],
    "vocab": lambda place, to: [
        *("vocab", "--mono", place.root / "mono", "--size", "90"),
        *("--output", to / "vocab"),
    ],
    "data clean": lambda place, to: [
        *("data", "clean", "--mono", place.root / "mono", "--runner", "none"),
        *("--output", to / "clean"),
    ],
    "freeze": lambda place, to: [
        *("freeze", "--gin_file", place.recipe(6), "--batches", "40"),
        *("--output", to / "frozen"),
    ],
    "demo": lambda place, to: ["demo", to / "world", "--languages", "de,en"],
    "average": lambda place, to: [
        *("average", place.run, "--last", "2", "--output", to / "mean"),
    ],
    "export": lambda place, to: [
        *("export", place.run, "--to", to / "model", "--unverified"),
    ],
    "pretrain": lambda place, to: [
        *("pretrain", "--gin_file", place.recipe(6)),
        *("--workdir", to / "run"),
    ],
}  # fmt: skip


def _add_full(verb: str) -> None:
    needed = "No space left on device"
    # It looks before it begins.
    if verb == "pretrain":
        needed = "make room"

    @case(FULL, f"`{verb}`", needed, slow=True)
    def run(place: Place) -> Said:
        words = WORDS[verb](place, place.root / "disk")
        with disk(place, "8k") as to:
            said = cli(*words)
            # What is begun goes on there.
            if verb in ("pretrain", "data clean", "mine", "demo"):
                return said
            return left(to, said)


def _add_read_only(verb: str) -> None:
    @case(READ_ONLY, f"`{verb}`", "Read-only file system", slow=True)
    def run(place: Place) -> Said:
        words = WORDS[verb](place, place.root / "disk")
        with disk(place, "1m") as to:
            remounted(to)
            return cli(*words)


def remounted(folder: Path) -> None:
    options = "remount,ro"
    subprocess.run(["mount", "-o", options, str(folder)], check=True)


for _verb in WORDS:
    _add_full(_verb)
    _add_read_only(_verb)


@case(FULL, "the token cache", "write the token cache", slow=True)
def _cache(place: Place) -> Said:
    with disk(place, "8k") as folder, cache_in(folder):
        words = ("--mono", place.root / "mono", "--vocabulary")
        return cli("data", "check", *words, place.root / "vocab")


@case(READ_ONLY, "the token cache", "write the token cache", slow=True)
def _read_only_cache(place: Place) -> Said:
    with disk(place, "1m") as folder, cache_in(folder):
        remounted(folder)
        words = ("--mono", place.root / "mono", "--vocabulary")
        return cli("data", "check", *words, place.root / "vocab")


@contextlib.contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    before = os.environ["XLINGJAX_CACHE"]
    os.environ["XLINGJAX_CACHE"] = str(folder / "cache")
    try:
        yield
    finally:
        os.environ["XLINGJAX_CACHE"] = before


@contextlib.contextmanager
def run_on_disk(place: Place) -> Iterator[Path]:
    """A copy of the run on a disk that can no longer be written to."""
    with disk(place, "8m") as folder:
        subprocess.run(["cp", "-r", str(place.run), str(folder)], check=True)
        remounted(folder)
        yield folder / "run"


@case(READ_ONLY, "`evaluate` of a run there", "may not be written to", slow=True)
def _evaluate(place: Place) -> Said:
    with run_on_disk(place) as run:
        return cli("evaluate", run)


@case(READ_ONLY, "`report` of a run there", "report.html: Read-only", slow=True)
def _report(place: Place) -> Said:
    with run_on_disk(place) as run:
        return cli("report", run)


@case(READ_ONLY, "`pretrain` that goes on there", "Read-only", slow=True)
def _resume(place: Place) -> Said:
    with run_on_disk(place) as run:
        words = ("--gin_file", place.recipe(8), "--workdir", run)
        return cli("pretrain", *words)


@case(READ_ONLY, "`encode` with a run there", "v.npy", 0, slow=True)
def _encode(place: Place) -> Said:
    with run_on_disk(place) as run:
        words = ("--language", "de", "--input", place.root / "held/de.txt")
        return cli("encode", run, *words, "--output", place.root / "v")


@case(READ_ONLY, "`adapt --to` there", "Read-only file system", slow=True)
def _adapt(place: Place) -> Said:
    with disk(place, "1m") as folder:
        remounted(folder)
        words = ("--mono", place.root / "mono", "--steps", "2")
        return cli("adapt", place.run, "--to", folder / "x", *words)


@case(FULL, "`report`", "report.html: No space left on device", slow=True)
def _full_report(place: Place) -> Said:
    with disk(place, "4m") as folder:
        subprocess.run(["cp", "-r", str(place.run), str(folder)], check=True)
        filled(folder)
        return cli("report", folder / "run")


@case(FULL, "`evaluate`", "evaluations.jsonl: No space left", slow=True)
def _full_evaluate(place: Place) -> Said:
    with disk(place, "4m") as folder:
        subprocess.run(["cp", "-r", str(place.run), str(folder)], check=True)
        log = folder / "run/evaluations.jsonl"
        # To the end of its last page, of which the next line needs another.
        page = os.sysconf("SC_PAGE_SIZE")
        rest = -log.stat().st_size % page
        log.write_text(log.read_text() + "\n".rjust(rest or page))
        filled(folder)
        return cli("evaluate", folder / "run")


def filled(folder: Path) -> None:
    """The rest of the disk."""
    with contextlib.suppress(OSError), open(folder / "rest", "wb", 0) as file:
        while True:
            file.write(b"\0" * 4096)


# ---- limits --------------------------------------------------------------------------------------


@contextlib.contextmanager
def limited(kind: int, value: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


@contextlib.contextmanager
def no_file_left() -> Iterator[None]:
    """No number of a file is free. The limit is one of numbers: the gaps below it are filled."""
    # What earlier commands have left open would be closed, and its number free, meanwhile.
    gc.collect()
    gc.disable()
    taken = max(map(int, os.listdir("/proc/self/fd")))
    try:
        with contextlib.ExitStack() as opened, limited(resource.RLIMIT_NOFILE, taken + 1):
            with contextlib.suppress(OSError):
                while True:
                    opened.enter_context(open(os.devnull, "rb"))
            yield
    finally:
        gc.enable()


def _add_limited(verb: str) -> None:
    @case(LIMITS, f"files of at most 2 kB (ulimit -f): `{verb}`", "File too large", slow=True)
    def run(place: Place) -> Said:
        to = place.root / "new"
        to.mkdir()
        words = WORDS[verb](place, to)
        with limited(resource.RLIMIT_FSIZE, 2048):
            return cli(*words)


for _verb in ("encode", "vocab", "freeze", "export", "average", "pretrain"):
    _add_limited(_verb)


@case(LIMITS, "no more open files (ulimit -n): `encode`", "Too many open files", slow=True)
def _files(place: Place) -> Said:
    to = place.root / "new"
    to.mkdir()
    words = WORDS["encode"](place, to)
    with no_file_left():
        return cli(*words)


# ---- locks ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def held(path: Path, **changes: object) -> Iterator[None]:
    """A claim of another process that lives."""
    from xlingjax.runtime import claim

    path.parent.mkdir(parents=True, exist_ok=True)
    sleeping = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        holder = claim.Holder(
            socket.gethostname(),
            claim._machine(),
            sleeping.pid,
            claim._began(sleeping.pid),
            time.time(),
        )
        path.write_text(json.dumps(dataclasses.asdict(holder) | changes))
        yield
    finally:
        sleeping.communicate(b"\n")


@case(LOCKS, "`pretrain` in a run that another trains", "is in use: process")
def _run(place: Place) -> Said:
    with held(place.run / "in_use.json"):
        return place.pretrain(steps=8)


@case(LOCKS, "`pretrain` where a process has died", "finished at step 6", 0, slow=True)
def _dead(place: Place) -> Said:
    with held(place.run / "in_use.json", process=2**22 - 7):
        return place.pretrain()


@case(LOCKS, "`pretrain` where a number of a process was given again", "finished", 0, slow=True)
def _again(place: Place) -> Said:
    with held(place.run / "in_use.json", began="1"):
        return place.pretrain()


@case(LOCKS, "`pretrain` where the claim is half a file of long ago", "finished", 0)
def _half(place: Place) -> Said:
    path = write(place.run / "in_use.json", '{"host": "a')
    os.utime(path, (0, 0))
    return place.pretrain()


@case(LOCKS, "`pretrain` where the claim is a folder", "in_use.json: Is a directory")
def _folder(place: Place) -> Said:
    (place.run / "in_use.json").mkdir()
    return place.pretrain()


@case(LOCKS, "`pretrain` where the claim has other types", "finished", 0, slow=True)
def _types(place: Place) -> Said:
    with held(place.run / "in_use.json", process="x", since=None, host=3):
        return place.pretrain()


@case(LOCKS, "`export` to a folder that another writes", "is in use: process")
def _export(place: Place) -> Said:
    with held(place.root / "model.in_use.json"):
        return cli("export", place.run, "--to", place.root / "model")


@case(LOCKS, "`encode` to a file that another writes", "is in use: process")
def _output(place: Place) -> Said:
    with held(place.root / "v.in_use.json"):
        words = ("--language", "de", "--input", place.root / "held/de.txt")
        return cli("encode", place.run, *words, "--output", place.root / "v")


@case(LOCKS, "`adapt` in a folder that another adapts in", "is in use: process")
def _adapt_in(place: Place) -> Said:
    with held(place.root / "x/in_use.json"):
        words = ("--mono", place.root / "mono", "--steps", "2")
        return cli("adapt", place.run, "--to", place.root / "x", *words)


@case(LOCKS, "`cache` of tokens that another fills", "is in use: process")
def _tokens(place: Place) -> Said:
    with held(place.root / "cache/tokens.in_use.json"):
        words = ("--mono", place.root / "mono", "--vocabulary")
        return cli("cache", *words, place.root / "vocab")
