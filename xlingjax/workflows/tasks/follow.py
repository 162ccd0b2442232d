"""`xlingjax evaluate --mixture --follow`: every checkpoint of a run that is being trained."""

import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from xlingjax.errors import UserError
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.model.partition import mesh_of_all
from xlingjax.runtime.lock import IN_USE
from xlingjax.training.checkpoint_paths import checkpoint_steps
from xlingjax.training.run_record import run_and_checkpoint
from xlingjax.workflows.jobs.many import Say
from xlingjax.workflows.jobs.recipe_run import finished
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

    patience: minutes in which the run writes nothing, 0: for ever; then raises UserError. pause:
    seconds between two looks.
    """
    # Before the first checkpoint, which may be hours away.
    require_folder(measurement.output)
    folder = run_and_checkpoint(run)[0]
    # A folder is enough: the run may not have begun.
    if not (folder / "run.json").is_file() and not folder.is_dir():
        raise UserError(f"--follow {run}: no such folder; give the --to of a run")
    last_step = -1
    changed, changed_at = _changed(folder), clock()
    while not patience or clock() - changed_at < 60 * patience:
        # Read before the steps are listed: a run that ends in between has its last checkpoint
        # measured at the next look.
        has_finished = finished(folder)
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
        if has_finished:
            return 0
        # Any change shows that the run is alive: log lines come between checkpoints.
        before, changed = changed, _changed(folder)
        if changed != before:
            changed_at = clock()
        wait(pause)
    last = f"after step {last_step}" if last_step >= 0 else "before its first checkpoint"
    raise UserError(
        f"--follow {run}: nothing was written there for {patience:g} minutes and it has not"
        f" finished ({last}): start it again and follow it again, or raise --patience"
    )


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
