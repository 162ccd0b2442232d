"""Which checkpoints a run has: its steps, its best, and what RUN@STEP names."""

import contextlib
import re
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError
from xlingjax.runtime.records import NUMBER, read_record
from xlingjax.training.run_record import run_and_checkpoint

BEST = "best.json"


def checkpoint_steps(folder: Path) -> list[int]:
    """Steps of finalised checkpoints, ascending; an interrupted write has another name."""
    if not folder.is_dir():
        return []
    named = {step_of(path.name): path for path in folder.iterdir()}
    return sorted(step for step, path in named.items() if step is not None and path.is_dir())


def last_step(workdir: Path) -> int:
    """That of a run's last checkpoint; 0: it has none."""
    return max(checkpoint_steps(workdir / "checkpoints"), default=0)


def step_of(name: str) -> int | None:
    """The step whose checkpoint a folder of this name is; None: it is none's."""
    # Not by int(): it takes digits of every script, spaces and zeros before them.
    if re.fullmatch("0|[1-9][0-9]*", name):
        return int(name)
    return None


def require_not_lost(workdir: Path) -> None:
    """Raise UserError where a run has lost its checkpoints: it would start over its logs."""
    steps = 0
    # Of a run that ended, behind its last checkpoint; and each start tells where it went on from.
    shape = {"steps?": int, "sessions?": [{"step?": int}]}
    for name in ("result.json", "run.json"):
        with contextlib.suppress(FileNotFoundError, UserError):
            record = read_record(workdir / name, shape, "")
            saved = [one.get("step", 0) for one in record.get("sessions", ())]
            # run.json tells by "steps" how many the run is to take.
            steps = max(steps, record.get("steps", 0) if name == "result.json" else 0, *saved)
    if steps:
        raise UserError(
            f"{workdir} is a run that has saved step {steps}, and its checkpoints are gone: put"
            f" them back into {workdir / 'checkpoints'}, or choose another --to"
        )


def read_best(workdir: Path) -> dict[str, dict[str, Any]]:
    """{metric: {"step", "value"}} of a run's best checkpoints. Raises UserError: damaged."""
    try:
        return read_record(
            workdir / BEST,
            {str: {"step": int, "value": NUMBER}},
            "remove it: the run's next evaluation begins it anew",
        )
    except FileNotFoundError:
        return {}


def find_checkpoint(path: str | Path) -> Path:
    """The checkpoint that `path` names: itself, the newest of a run's workdir or of a `checkpoints`
    folder, that of a step (RUN@STEP) or the best by a metric (RUN@METRIC, see `CheckpointConfig`).
    Raises UserError."""
    run, which = run_and_checkpoint(path)
    # A folder may have an "@" in its name, and goes first.
    if which and not Path(path).exists():
        return _named_checkpoint(run.absolute(), which)
    path = Path(path).absolute()
    if (path / "params").is_dir():
        return path
    for folder in (path / "checkpoints", path):
        steps = checkpoint_steps(folder)
        if steps:
            return folder / str(steps[-1])
    raise no_checkpoint(path)


def no_checkpoint(path: Path) -> UserError:
    """Where a user named a run, or anything else, that has none."""
    return UserError(f"no checkpoint in {path}; give a run's workdir or a folder checkpoints/STEP")


def _named_checkpoint(run: Path, which: str) -> Path:
    best = read_best(run)
    steps = checkpoint_steps(run / "checkpoints")
    step = best[which]["step"] if which in best else step_of(which)
    if step not in steps:
        kept = ", ".join([*map(str, steps), *best]) or "none"
        raise UserError(
            f"{run} has no checkpoint {which} (there are: {kept}); name one of these, or train with"
            " KEEP_CHECKPOINTS, or KEEP_BEST=1 and BEST_METRIC"
        )
    return run / "checkpoints" / str(step)
