"""Where the sources of a run stand in their data: `data_state/STEP/positions.json`."""

import os
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

from xlingjax.runtime.checked_file import Damaged, read_index, write_index

Positions = dict[str, int]
"""{objective: the number of its next batch}."""
_FILE = "positions.json"


def write_positions(folder: Path, step: int, positions: Positions) -> None:
    """Write those of `step` into the folder `data_state`, as all hosts do alike. Raises OSError."""
    of_step = folder / str(step)
    of_step.mkdir(parents=True, exist_ok=True)
    # With a hash: a number that has changed would still parse, and skip text in silence.
    write_index(of_step / _FILE, positions)
    # Before Orbax finalises the checkpoint, which must never be without it.
    with open(of_step / _FILE, "rb") as file:
        os.fsync(file.fileno())


def keep_positions(folder: Path, steps: Iterable[int]) -> None:
    """Remove those of all other steps."""
    names = set(map(str, steps))
    for of_step in folder.glob("*"):
        if of_step.name not in names:
            shutil.rmtree(of_step, ignore_errors=True)


def read_positions(folder: Path, step: int, objectives: Collection[str]) -> Positions:
    """Those of `step`. Raises ValueError where the file is damaged or an objective has none."""
    path = folder / str(step) / _FILE
    try:
        positions = read_index(path)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    except Damaged as error:
        raise ValueError(str(error)) from None
    missing = set(objectives) - set(positions)
    if missing:
        raise ValueError(f"{path} lacks the data position of {', '.join(sorted(missing))}")
    return positions
