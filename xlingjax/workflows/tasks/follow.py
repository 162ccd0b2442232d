"""`xlingjax evaluate --mixture --follow`: every checkpoint of a run that is being trained."""

import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from xlingjax.errors import Stopped, UserError
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.model.partition import mesh_of_all
from xlingjax.runtime.lock import IN_USE
from xlingjax.training.checkpoint_paths import checkpoint_steps
from xlingjax.training.run_record import read_result, run_and_checkpoint
from xlingjax.workflows.jobs.many import Say
from xlingjax.workflows.tasks.measure import Measurement, Recipe, measure_checkpoint
from xlingjax.workflows.tasks.sweep import require_folder


def follow(
    measurement: Measurement,
    run: str,
    recipe: Recipe = dict,
    say: Say = print,
    patience: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
    pause: float = 5.0,
) -> int:
    """`measure` on each checkpoint of a run that is being trained, until it has finished and its
    last is measured. A checkpoint that the run deleted first (KEEP_CHECKPOINTS) is passed over.

    patience: minutes in which nothing in the run's folder changes, 0: for ever. Then: raises
    Stopped where the run was asked to stop, UserError where it does not say why. pause: seconds
    between two looks.
    """
    # Before the first checkpoint, which may be hours away.
    require_folder(measurement.output)
    folder = run_and_checkpoint(run)[0]
    # A folder is enough: the run may not have begun.
    if not (folder / "run.json").is_file() and not folder.is_dir():
        raise UserError(f"--follow {run}: no such folder; give the --workdir of a run")
    last_step = -1
    waiting = False
    changed = _changed(folder)
    changed_at = clock()
    while True:
        # Read before the steps are listed: a run that ends in between has its last checkpoint
        # measured at the next look.
        reason = _exit_reason(folder)
        for step in checkpoint_steps(folder / "checkpoints"):
            # A run that goes on from an earlier checkpoint writes steps once more.
            if step <= last_step:
                continue
            trained = _opened(folder, step, pause, wait)
            if trained:
                at_step = dataclasses.replace(measurement, source=f"{folder}@{step}")
                measure_checkpoint(at_step, trained, step, recipe(), say)
            else:
                say(
                    f"step {step}: passed over, the run deleted this checkpoint (KEEP_CHECKPOINTS"
                    " keeps more)"
                )
            last_step = step
        if reason == "finished":
            return 0
        if reason and not waiting:
            say(f"{folder}: the run was asked to stop; waiting for it to be started again")
        waiting = bool(reason)
        # Any change shows that the run is alive: log lines come between checkpoints.
        before, changed = changed, _changed(folder)
        if changed != before:
            changed_at = clock()
        elif patience and clock() - changed_at >= 60 * patience:
            break
        wait(pause)
    last = "before its first checkpoint"
    if last_step >= 0:
        last = f"after step {last_step}"
    if reason:
        raise Stopped(f"--follow {run}: it was asked to stop {last} and not started again")
    raise UserError(
        f"--follow {run}: nothing was written there for {patience:g} minutes and it has not"
        f" said that it ended ({last}): start it again and follow it again, or raise --patience"
    )


def _exit_reason(folder: Path) -> str:
    """ "finished", "preempted" (asked to stop; it may go on); "": it has not ended, or was
    killed."""
    result = read_result(folder)
    return result.get("exit_reason", "finished") if result else ""


def _changed(folder: Path) -> list[tuple[str, int]]:
    """(name, time of its last change) of what lies in a run's folder and among its checkpoints."""
    changed = []
    for path in (*folder.glob("*"), *folder.glob("checkpoints/*")):
        # The lock is there as long as the process lives, whether its run does anything or not.
        if path.name != IN_USE:
            with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
                changed.append((str(path), path.stat().st_mtime_ns))
    return sorted(changed)


def _opened(
    folder: Path, step: int, pause: float, wait: Callable[[float], None]
) -> TrainedRun | None:
    """The run at a step; None: that checkpoint is deleted. Raises UserError where it is there and
    cannot be read."""
    try:
        return open_run(f"{folder}@{step}", mesh=mesh_of_all())
    except UserError:
        if step in checkpoint_steps(folder / "checkpoints"):
            wait(pause)  # a checkpoint is deleted file by file
        if step in checkpoint_steps(folder / "checkpoints"):
            raise
        return None
