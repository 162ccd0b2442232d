"""The jobs of a table, done by one command or by several that share them: those that others need
come first, a sweep's cells are shared among all, any other job is one command's."""

from collections.abc import Callable, Sequence

from xlingjax.runtime.lock import holder, is_held, take
from xlingjax.workflows.many import Stop, run_job
from xlingjax.workflows.sharing import AT_WORK, LOCK
from xlingjax.workflows.table_jobs import SWEEP, TableJob, command_of

LOOK = 5.0
"""Seconds between two looks at what other commands have done."""
SHARING = ("--worker", "leave")
"""Of a sweep: it leaves the cells that others are at, and this command does other jobs."""


def share_jobs(
    jobs: Sequence[TableJob],
    arguments: Sequence[str],
    stop: Stop,
    say: Callable[[str], None] = print,
) -> None:
    """Run all jobs that are not done, and wait for those that other commands are at. arguments:
    given to every command. Raises UserError where one failed, Stopped where `stop` was
    requested."""
    done: set[str] = set()
    left = [*jobs]
    told: set[str] = set()
    while left:
        later = []
        for job in left:
            stop.leave_if_requested()
            if done.issuperset(job.needs) and _is_done(job, arguments, stop, say, told):
                done.add(job.name)
            else:
                later.append(job)
        if len(later) == len(left):
            stop.requested.wait(LOOK)
        left = later


def _is_done(
    job: TableJob, arguments: Sequence[str], stop: Stop, say: Callable[[str], None], told: set[str]
) -> bool:
    """Whether a job is done now; not where another command is at it. told: what was said to be."""
    if job.kind == SWEEP:
        # A sweep that was looked into waits for the others: another look takes a process.
        if job.name in told and _held(job):
            return False
        command = command_of(job, [*arguments, *SHARING], stop, say)
        command.passed = (AT_WORK,)
        told.add(job.name)
        return run_job(command, say, stop) == 0
    lock = take(job.folder / LOCK)
    if lock is None:
        if job.name not in told:
            say(f"{job.name}: left to {holder(job.folder / LOCK)}")
        told.add(job.name)
        return False
    with lock:
        run_job(command_of(job, arguments, stop, say), say, stop)
    return True


def _held(sweep: TableJob) -> bool:
    """Whether another command is at a cell."""
    return any(map(is_held, sweep.folder.glob(f"cells/**/{LOCK}")))
