"""Where the sources of a run stand in their data: `data_state/STEP/positions.json`."""

import json
import os
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

import jax

from xlingjax.runtime.files import parsed_json
from xlingjax.runtime.hashes import hash_of

Positions = dict[str, int]
"""{objective: the number of its next batch}."""
_FILE = "positions.json"


def write_positions(folder: Path, step: int, positions: Positions) -> None:
    """Write those of `step` into the folder `data_state`. Raises OSError."""
    of_step = folder / str(step)
    of_step.mkdir(parents=True, exist_ok=True)
    # Written beside and renamed, so that a file under its name is whole. By process, since all
    # hosts write the same.
    partial = of_step / f"{_FILE}.partial-{jax.process_index()}"
    with open(partial, "w", encoding="utf-8") as file:
        # A number that has changed may still parse, and would skip text in silence.
        json.dump({"positions": positions, "xxh3": _hash(positions)}, file)
        file.flush()
        # Before Orbax finalises the checkpoint, which must never be without it.
        os.fsync(file.fileno())
    partial.replace(of_step / _FILE)


def _hash(positions: Positions) -> str:
    return hash_of([json.dumps(positions, sort_keys=True).encode()])


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
        saved = parsed_json(path.read_bytes())
        positions = saved["positions"]
        whole = saved["xxh3"] == _hash(positions)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    except (KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise ValueError(f"{path} is damaged")
    missing = set(objectives) - set(positions)
    if missing:
        raise ValueError(f"{path} lacks the data position of {', '.join(sorted(missing))}")
    return positions
