"""The jobs of a table, done by one command or by several that share them: those that others need
come first, a sweep's cells are shared among all, any other job is one command's."""

from collections.abc import Callable, Sequence
from pathlib import Path

from xlingjax.runtime.lock import holder, is_held, take
from xlingjax.workflows.jobs.many import AT_WORK, LOCK, Stop, run_job
from xlingjax.workflows.tables.jobs import SWEEP, TableJob, command_of
from xlingjax.workflows.tables.table import Table

LOOK = 5.0
"""Seconds between two looks at what other commands have done."""
SHARING = ("--worker", "leave")
"""Of a sweep: it leaves the cells that others are at, and this command does other jobs."""


def run(
    table: Table,
    data: str | Path,
    output: str | Path,
    arguments: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> None:
    """Run the jobs, but for those that another command on `output` is at. data: folder of the
    benchmarks' files. output: of the folders of the sweeps. arguments: given to every command
    (`--platform cpu`). Raises UserError naming the row that failed; Stopped after SIGTERM, SIGINT
    or SIGHUP.
    """
    for name in table.left_out():
        say(f"left out, since {table.lacks(name)}: {name}")
    stop = Stop("table")
    with stop.listen():
        share_jobs(table.jobs(data, output), arguments, stop, say)
        # A signal that found the last sweep at its end is a request to stop all the same.
        stop.leave_if_requested()


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
