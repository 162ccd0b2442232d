"""`xlingjax evaluate --mixture --follow`: every checkpoint of a run that is being trained."""

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
from xlingjax.workflows.measure import Recipe, measure_checkpoint
from xlingjax.workflows.measure_request import Request
from xlingjax.workflows.sweep import require_folder


def follow(
    request: Request,
    run: str,
    recipe: Recipe = dict,
    say: Callable[[str], None] = print,
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
    require_folder(request.output)
    folder = run_and_checkpoint(run)[0]
    # A folder is enough: the run may not have begun.
    if not (folder / "run.json").is_file() and not folder.is_dir():
        raise UserError(f"--follow {run}: no such folder; give the --workdir of a run")
    last_step = -1
    waiting = False
    contents = _contents(folder)
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
                at_step = dataclasses.replace(request, source=f"{folder}@{step}")
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
        contents_now = _contents(folder)
        if contents_now != contents:
            contents = contents_now
            changed_at = clock()
        elif patience and clock() - changed_at >= 60 * patience:
            raise _given_up(run, last_step, reason, patience)
        wait(pause)


def _given_up(run: str, last_step: int, reason: str, patience: float) -> Exception:
    """The error for a run in whose folder nothing has changed for so long."""
    last = "before its first checkpoint"
    if last_step >= 0:
        last = f"after step {last_step}"
    if reason:
        return Stopped(f"--follow {run}: it was asked to stop {last} and not started again")
    return UserError(
        f"--follow {run}: nothing was written there for {patience:g} minutes and it has not"
        f" said that it ended ({last}): start it again and follow it again, or raise"
        " --patience"
    )


def _exit_reason(folder: Path) -> str:
    """ "finished", "preempted" (asked to stop; it may go on); "": it has not ended, or was
    killed."""
    result = read_result(folder)
    if not result:
        return ""
    return result.get("exit_reason", "finished")


def _contents(folder: Path) -> set[tuple[str, int, int]]:
    """(name, time of its last change, size) of what lies in a run's folder and among its
    checkpoints."""
    contents = set()
    for path in (*folder.glob("*"), *folder.glob("checkpoints/*")):
        if path.name == IN_USE:
            continue
        try:
            status = path.stat()
        except FileNotFoundError:  # deleted since it was listed
            continue
        contents.add((str(path), status.st_mtime_ns, status.st_size))
    return contents


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
