"""Where the sources of a run stand in their data: `data_state/STEP/OBJECTIVE/shard-i.bin`, each the
SHA-256 of its content followed by the content."""

import hashlib
import os
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

import jax

Positions = dict[str, dict[str, bytes]]
"""{objective: {shard: position}}."""


def write_positions(folder: Path, step: int, positions: Positions) -> None:
    """Write those of `step` into the folder `data_state`. Raises OSError."""
    for objective, shards in positions.items():
        of_objective = folder / str(step) / objective
        of_objective.mkdir(parents=True, exist_ok=True)
        for name, content in shards.items():
            # Written beside and renamed, so that a file under its name is whole. By process,
            # since hosts may hold the same shard.
            partial = of_objective / f"{name}.partial-{jax.process_index()}"
            with open(partial, "wb") as file:
                # A position that is cut short may still parse, and would skip text in silence.
                file.write(hashlib.sha256(content).digest() + content)
                file.flush()
                # Before Orbax finalises the checkpoint, which must never be without it.
                os.fsync(file.fileno())
            partial.replace(of_objective / f"{name}.bin")


def keep_positions(folder: Path, steps: Iterable[int]) -> None:
    """Remove those of all other steps."""
    names = set(map(str, steps))
    for of_step in folder.glob("*"):
        if of_step.name not in names:
            shutil.rmtree(of_step, ignore_errors=True)


def read_positions(folder: Path, step: int, objectives: Collection[str]) -> Positions:
    """Those of `step`. Raises ValueError where a file is damaged or an objective has none."""
    positions: Positions = {}
    of_step = folder / str(step)
    # Not by glob, which takes a folder that may not be read for an empty one.
    folders = [of_step / objective for objective in sorted(objectives)]
    files = [file for folder in folders if folder.is_dir() for file in sorted(folder.iterdir())]
    for file in files:
        if file.suffix != ".bin":
            continue
        raw = file.read_bytes()
        digest = raw[:32]
        content = raw[32:]
        if hashlib.sha256(content).digest() != digest:
            raise ValueError(f"{file} is damaged")
        positions.setdefault(file.parent.name, {})[file.stem] = content
    missing = set(objectives) - set(positions)
    if missing:
        raise ValueError(f"{of_step} lacks the data position of {', '.join(sorted(missing))}")
    return positions
