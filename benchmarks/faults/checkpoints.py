"""Checkpoints of a run that are damaged, missing, or none."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.faults.place import write
from benchmarks.faults.runs import of_run, until_3, whole


@of_run(
    "folders and files of no step in checkpoints (², ٣, -1, 1.5, 007, 7)",
    "",
    0,
    "encode pretrain",
    like=whole,
)
def _strays(run: Path) -> None:
    for name in ("²", "٣", "-1", "1.5", "007", " 8", "1_0", "8.orbax-x"):
        (run / "checkpoints" / name).mkdir()
    write(run / "checkpoints/7", "a file")


@of_run("an empty folder 9 in checkpoints", "checkpoints/9", 2, "encode export average")
def _stray_step(run: Path) -> None:
    (run / "checkpoints/9").mkdir()


@of_run("an empty folder 9 in checkpoints", "set aside as 9.unreadable", 0, "pretrain", like=whole)
def _stray_step_goes_on(run: Path) -> None:
    (run / "checkpoints/9").mkdir()


@of_run("checkpoints vanished", "checkpoint", 2, "encode evaluate export average")
def _vanished(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")


@of_run("checkpoints vanished", "its checkpoints are gone", 2, "pretrain")
def _vanished_goes_on(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")


@of_run(
    "checkpoints, positions, run.json and result.json vanished",
    "its checkpoints are gone",
    2,
    "pretrain",
)
def _all_vanished(run: Path) -> None:
    for name in ("checkpoints", "data_state"):
        shutil.rmtree(run / name)
    for name in ("result.json", "run.json"):
        (run / name).unlink()


@of_run("checkpoints is a file", "checkpoint", 2, "encode pretrain")
def _file(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    write(run / "checkpoints", "x")


def largest(folder: Path) -> Path:
    """Of the arrays' files."""
    files = [x for x in folder.rglob("*") if x.is_file() and "d" in x.parts]
    return max(files, key=lambda path: path.stat().st_size)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@of_run(
    "one bit of an array of the newest checkpoint",
    "has other bytes than were written",
    2,
    "encode evaluate export average",
)
def _flipped(run: Path) -> None:
    flip(largest(run / "checkpoints/6/params"))


@of_run(
    "one bit of an array of the newest checkpoint",
    "set aside as 6.unreadable",
    0,
    "pretrain",
    like=until_3,
)
def _flipped_goes_on(run: Path) -> None:
    flip(largest(run / "checkpoints/6/params"))


@of_run(
    "one bit of the optimizer's state in the newest checkpoint",
    "set aside as 6.unreadable",
    0,
    "pretrain",
    like=until_3,
)
def _flipped_state(run: Path) -> None:
    flip(largest(run / "checkpoints/6/training"))


def _of_hashes(what: str, change: Callable[[str], str | None]) -> None:
    """change: the table of hashes, as text, into what stands there; None: nothing."""

    def spoil(run: Path) -> None:
        path = run / "checkpoints/6/params/hashes.json"
        text = change(path.read_text("utf-8"))
        path.unlink()
        if text is not None:
            write(path, text)

    name = f"hashes of the newest checkpoint that {what}"
    of_run(name, "hashes.json", 2, "encode export")(spoil)
    aside = "set aside as 6.unreadable"
    of_run(name, aside, 0, "pretrain", like=until_3)(spoil)


_of_hashes("are an empty table", lambda text: "{}")
_of_hashes("are gone", lambda text: None)
_of_hashes("have an infinite size", lambda text: re.sub(r"\[\s*\d+", "[Infinity", text, count=1))
_of_hashes(
    "have a size that is a text", lambda text: re.sub(r"\[\s*(\d+)", r'["\1"', text, count=1)
)


@of_run("one bit in every checkpoint", "none can be read", 2, "pretrain")
def _flipped_all(run: Path) -> None:
    for step in (3, 6):
        flip(largest(run / f"checkpoints/{step}/params"))


@of_run(
    "every file of the newest checkpoint is empty", "checkpoints/6", 2, "encode evaluate export"
)
def _emptied(run: Path) -> None:
    for path in (run / "checkpoints/6").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")


@of_run(
    "every file of the newest checkpoint is empty",
    "set aside as 6.unreadable",
    0,
    "pretrain",
    like=until_3,
)
def _emptied_goes_on(run: Path) -> None:
    _emptied(run)


@of_run(
    "the data position of the newest checkpoint is gone",
    "set aside as 6.unreadable",
    0,
    "pretrain",
    like=until_3,
)
def _no_position(run: Path) -> None:
    shutil.rmtree(run / "data_state/6")
