"""Which checkpoints a run has: its steps, its best, and what RUN@STEP names."""

import re
from pathlib import Path
from typing import Any

from xlingjax.errors import UserError
from xlingjax.runtime.records import NUMBER, read_record
from xlingjax.training.run_record import run_and_checkpoint

BEST = "best.json"


def checkpoint_steps(folder: Path) -> list[int]:
    """Steps of the finalised checkpoints in a folder, ascending. An interrupted write has another
    name and does not count."""
    if not folder.is_dir():
        return []
    steps = []
    for path in folder.iterdir():
        step = step_of(path.name)
        if step is not None and path.is_dir():
            steps.append(step)
    return sorted(steps)


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
    """Raise UserError where a run without checkpoints once had some: it would start afresh over
    its logs."""
    steps = _steps_saved(workdir)
    if steps:
        raise UserError(
            f"{workdir} is a run that has saved step {steps}, and its checkpoints are gone: put"
            f" them back into {workdir / 'checkpoints'}, or choose another --workdir; a run never"
            " starts afresh over one"
        )


def _steps_saved(workdir: Path) -> int:
    """The last step of which a run's other files tell that its checkpoint was whole; 0: none."""
    # Of a run that ended, behind its last checkpoint; and each start tells where it went on from.
    records = [_read(workdir / "result.json").get("steps")]
    for session in _read(workdir / "run.json").get("sessions", ()):
        records.append(session.get("step"))
    return max((step for step in records if isinstance(step, int)), default=0)


def _read(path: Path) -> dict[str, Any]:
    """A record as far as it can be read."""
    try:
        return read_record(path, {"steps?": int, "sessions?": [{"step?": int}]}, "")
    except (FileNotFoundError, UserError):
        return {}


def read_best(workdir: Path) -> dict[str, dict[str, Any]]:
    """{metric: {"step", "value"}} of a run's best checkpoints; empty where it kept none.
    Raises UserError: damaged."""
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
    raise no_checkpoint(path)


def no_checkpoint(path: Path) -> UserError:
    """Where a user named a run, or anything else, that has none."""
    remedy = "give a run's workdir or a folder checkpoints/STEP"
    if (path / "run.json").exists():
        remedy = f"this run has saved none, or lost them: put them back into {path}/checkpoints"
    return UserError(f"no checkpoint in {path}; {remedy}")


def _named_checkpoint(run: Path, which: str) -> Path:
    best = read_best(run)
    steps = checkpoint_steps(run / "checkpoints")
    step = step_of(which)
    if step is None and which in best:
        step = best[which]["step"]
    elif step is None and re.match(r"[-+]?[.]?\d", which):
        # A step is written in one way alone: 4, and neither 04 nor 4.0.
        names = ", ".join(map(str, steps)) or "none"
        raise UserError(f"{run} has no checkpoint {which} (there are: {names}); name one of these")
    elif step is None:
        raise UserError(
            f"{run} kept no best checkpoint by {which} (but by {', '.join(best) or 'nothing'});"
            f" train with KEEP_BEST=1 and BEST_METRIC={which}"
        )
    # Named by number or by metric, it may have been removed since.
    if step not in steps:
        names = ", ".join(map(str, steps)) or "none"
        raise UserError(
            f"{run} has no checkpoint {step} (there are: {names}); KEEP_CHECKPOINTS keeps more of"
            " them"
        )
    return run / "checkpoints" / str(step)
