"""Which checkpoints a run has: its steps, its best, and what RUN@STEP names."""

import json
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError
from xlingjax.training.run_record import run_and_checkpoint

BEST = "best.json"


def checkpoint_steps(folder: Path) -> list[int]:
    """Steps of the finalised checkpoints in a folder, ascending. An interrupted write has another
    name and does not count."""
    if not folder.is_dir():
        return []
    steps = []
    for path in folder.iterdir():
        # "007" and "²" are digits, too, and no names that a run gives.
        is_number = path.name.isascii() and path.name.isdigit()
        if is_number and str(int(path.name)) == path.name and path.is_dir():
            steps.append(int(path.name))
    return sorted(steps)


def read_best(workdir: Path) -> dict[str, dict[str, Any]]:
    """{metric: {"step", "value"}} of a run's best checkpoints; empty where it kept none."""
    path = workdir / BEST
    if not path.is_file():
        return {}
    return json.loads(path.read_text(encoding="utf-8"))


def find_checkpoint(path: str | Path) -> Path:
    """The checkpoint that `path` names: itself, the newest of a run's workdir or of a `checkpoints`
    folder, that of a step (RUN@STEP) or the best by a metric (RUN@METRIC, see `CheckpointConfig`).
    Raises UserError.
    """
    run, which = run_and_checkpoint(path)
    # A folder may have an "@" in its name, and goes first.
    if which and not Path(path).exists():
        return _named_checkpoint(run.absolute(), which)
    path = Path(path).absolute()
    if (path / "params").is_dir():
        return path
    # A user names the workdir or the folder within it.
    for folder in (path / "checkpoints", path):
        steps = checkpoint_steps(folder)
        if steps:
            return folder / str(steps[-1])
    raise UserError(
        f"no checkpoint in {path}; give a run's workdir or a folder checkpoints/STEP",
    )


def _named_checkpoint(run: Path, which: str) -> Path:
    best = read_best(run)
    steps = checkpoint_steps(run / "checkpoints")
    if which.isdigit():
        step = int(which)
    elif which in best:
        step = best[which]["step"]
    else:
        raise UserError(
            f"{run} kept no best checkpoint by {which} (but by {', '.join(best) or 'nothing'});"
            f" train with KEEP_BEST=1 and BEST_METRIC={which}",
        )
    # Named by number or by metric, it may have been removed since.
    if step not in steps:
        there = ", ".join(map(str, steps)) or "none"
        raise UserError(
            f"{run} has no checkpoint {step} (there are: {there}); KEEP_CHECKPOINTS keeps more of"
            " them",
        )
    return run / "checkpoints" / str(step)
