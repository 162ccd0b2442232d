"""Jobs that several processes share, on this host or others: each is done by one of them.

A process takes the jobs in their order, but for those that another has at hand. It comes back to
these, and goes on with what a process that died has left.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from xlingjax.errors import UserError
from xlingjax.runtime.lock import Lock, holder, take
from xlingjax.runtime.machine import all_agree, barrier, is_primary, primary_says
from xlingjax.workflows.many import Job

LOCK = "job.lock"
"""In the folder of a job: who is at it."""
AT_WORK = 3
"""The exit status of a command that has left jobs to others, who are at them."""
LOOK = 2.0
"""Seconds between two looks at what the others have done."""


class SharedJob(Job):
    """A job that one process does at a time."""

    folder: Path
    """Its own."""


def share_all(
    jobs: Sequence[SharedJob], say: Callable[[str], None] = print, wait: bool = True
) -> int:
    """Run the jobs that are not finished. The exit status: 0, that of the first one that was asked
    to stop, or `AT_WORK` where others are at the rest and it is not to wait for them. Raises
    UserError where a job fails."""
    left = [*jobs]
    told: set[str] = set()
    while left:
        busy = []
        for job in left:
            try:
                lock = _locked(job, say, told)
            except UserError:
                # Its folder cannot be written, and need not be where all is done.
                if not job.is_finished():
                    raise
                say(f"{job.name}: finished before")
                continue
            if lock is None:
                busy.append(job)
                continue
            with lock:
                status = _run(job, say)
            if status:
                return status
        if busy and not wait:
            return AT_WORK
        if len(busy) == len(left):
            time.sleep(LOOK)
        left = busy
    return 0


def _run(job: SharedJob, say: Callable[[str], None]) -> int:
    # What another command has just written may not be seen by each host yet: one looks for all.
    if primary_says(job.is_finished()):
        say(f"{job.name}: finished before")
        return 0
    return job.run()


class _Together:
    """The lock of the first of several processes that run one job."""

    def __init__(self, own: Lock | None):
        self._own = own

    def __enter__(self) -> "_Together":
        return self

    def __exit__(self, *error) -> None:
        # The others may still write where the first has ended.
        if error == (None, None, None):
            barrier("job")
        if self._own is not None:
            self._own.release()


def _locked(job: SharedJob, say: Callable[[str], None], told: set[str]) -> _Together | None:
    """None: others are at it, which is said once. told: the jobs of which it was said."""
    own = None
    if is_primary():
        own = take(job.folder / LOCK)
        if own is None and job.name not in told:
            say(f"{job.name}: left to {holder(job.folder / LOCK)}")
            told.add(job.name)
    # One decides for all processes of a run.
    if not all_agree(own is not None or not is_primary()):
        return None
    return _Together(own)
