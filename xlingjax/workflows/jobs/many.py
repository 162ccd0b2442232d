"""Many runs: which are finished already, and the others in order, one or several at a time.

A sweep's cells, a table's sweeps, a bake-off's runs and a suite's tasks are jobs. Some are done in
this process, where a training hears signals itself and gives its exit status; some in one of their
own (`Command`), which `Stop` ends. Several commands, on this host or others, may share jobs that
have a folder: one is at a job at a time, the others come back to it and go on with what a process
that died has left.
"""

import abc
import contextlib
import dataclasses
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from xlingjax.errors import Stopped, UserError
from xlingjax.runtime.lock import holder, take
from xlingjax.runtime.machine import all_agree, barrier, is_primary, primary_says
from xlingjax.runtime.shutdown import stop_requested

Say = Callable[[str], None]  # tells the user a line
LOCK = "job.lock"  # in the folder of a job: who is at it
AT_WORK = 3  # exit status of a job that others are at, and of a command that left it to them
LOOK = 2.0  # seconds between two looks at what the others have done


class Job(abc.ABC):
    """One of many runs."""

    name: str  # what messages call it; where its result stands in a folder, that folder
    folder: Path | None = None  # of a job that commands share: one process does it at a time
    needs: Collection[str] = ()  # names of the jobs that come first

    def is_finished(self) -> bool:
        """Whether its result is there. Raises UserError where that of another run is."""
        return False

    @abc.abstractmethod
    def run(self) -> int:
        """Do it; the exit status, which is not 0 where it was asked to stop, and `AT_WORK` where
        others are at the rest of it. Raises UserError where it failed."""


class Call(Job):
    """A job that is a function of this process, which gives the exit status."""

    def __init__(self, name: str, function: Callable[[], int]):
        self.name = name
        self._function = function

    def run(self) -> int:
        return self._function()


class Stop:
    """Whether the runs of a verb were asked to stop."""

    def __init__(self, verb: str):
        self.verb = verb
        # An event: several threads wait for it, each beside its process.
        self.requested = threading.Event()

    def listen(self) -> contextlib.AbstractContextManager[None]:
        """SIGTERM, SIGINT and SIGHUP request it."""
        return stop_requested(self.requested, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def leave_if_requested(self) -> None:
        """Raise Stopped where it was requested."""
        if self.requested.is_set():
            raise Stopped(f"{self.verb}: stopped; the same command goes on")


@dataclasses.dataclass
class Command(Job):
    """A job that is a command line, in a process of its own."""

    name: str
    line: Sequence[str]
    stop: Stop
    say: Say
    log: Path | None = None  # the file of all that it prints; None: the terminal
    passed: Collection[int] = ()  # statuses, beside 0, that are no failure
    folder: Path | None = None
    needs: Collection[str] = ()

    def run(self) -> int:
        # Without `python -m xlingjax`.
        self.say(f"{self.name}: {' '.join(self.line[3:])}")
        if self.log is not None:
            with open(self.log, "w", encoding="utf-8") as output:
                status = self._status(stdout=output, stderr=subprocess.STDOUT)
        else:
            status = self._status()
        if status in self.passed:
            return status
        if status:
            # A run that was made to stop has not failed.
            self.stop.leave_if_requested()
            evidence = "; what it said stands above"
            if self.log is not None:
                last = self.log.read_text(encoding="utf-8", errors="replace")
                last = last.strip().splitlines()[-1:]
                evidence = f" ({' '.join(last)}); its log is {self.log}"
            raise UserError(f"{self.stop.verb}: {self.name} ended with status {status}{evidence}")
        return 0

    def _status(self, **output) -> int:
        # In a group of its own: Ctrl-C reaches this process alone, which has the run save.
        child = subprocess.Popen(
            self.line,
            # In a group of its own a child that read the terminal would be stopped by SIGTTIN.
            stdin=subprocess.DEVNULL,
            process_group=0,
            **output,
        )
        while child.poll() is None and not self.stop.requested.wait(0.5):
            pass
        if child.poll() is None:
            # SIGTERM has a run save before it ends, so nothing is lost.
            child.terminate()
        # However long it saves: killing it would lose that.
        return child.wait()


def difference(before: Sequence[str], now: Sequence[str]) -> str:
    """The first lines of two settings that the other has not."""
    lost = next((line for line in before if line not in now), "nothing")
    new = next((line for line in now if line not in before), "nothing")
    return f"there: {lost}; now: {new}"


def run_all(
    jobs: Iterable[Job],
    at_once: int = 1,
    say: Say = print,
    stop: Stop | None = None,
    on_error: Callable[[str, UserError], None] | None = None,
    wait: bool = True,
) -> int:
    """Run the jobs that are not finished, begun in their order, and say which were. The exit
    status: 0, that of the first one that was asked to stop, or `AT_WORK` where others are at the
    rest and it is not to wait for them. After a job that was asked to stop, and after one that
    raised, none is begun; those that run meanwhile are finished.

    on_error: takes the name of a job and its UserError, and the others are run all the same, unless
    it raises; None: the error is raised.
    Raises Stopped where `stop` was requested before a job.
    """
    ended = threading.Event()
    done: set[str] = set()
    told: set[str] = set()

    def status_of(job: Job) -> int:
        # The job that ended all comes before this one, so its status or error is the one given.
        if ended.is_set():
            return 0
        if not done.issuperset(job.needs):
            return AT_WORK
        try:
            try:
                status = _status(job, say, stop, told)
            except UserError as error:
                if on_error is None:
                    raise
                on_error(job.name, error)
                status = 0
        except BaseException:
            ended.set()
            raise
        if status == 0:
            done.add(job.name)
        elif status != AT_WORK:
            ended.set()
        return status

    left = [*jobs]
    while left:
        # Here where it is one at a time: a training hears signals in the main thread alone.
        if at_once == 1:
            statuses = [status_of(job) for job in left]
        else:
            # Threads and not processes, since each only waits for its run.
            with ThreadPoolExecutor(at_once) as pool:
                statuses = [*pool.map(status_of, left)]
        for status in statuses:
            if status not in (0, AT_WORK):
                return status
        busy = [job for job, status in zip(left, statuses, strict=True) if status == AT_WORK]
        if busy and not wait:
            return AT_WORK
        if len(busy) == len(left):
            time.sleep(LOOK)
            if stop is not None:
                stop.leave_if_requested()
        left = busy
    return 0


def _status(job: Job, say: Say, stop: Stop | None, told: set[str]) -> int:
    """A job's exit status; `AT_WORK` where another process is at it, said once (`told`)."""
    own = None
    if job.folder is not None and is_primary():
        try:
            own = take(job.folder / LOCK)
        except UserError:
            # Its folder cannot be written, and need not be where all is done.
            if not job.is_finished():
                raise
            say(f"{job.name}: finished before")
            return 0
        if own is None and job.name not in told:
            say(f"{job.name}: left to {holder(job.folder / LOCK)}")
            told.add(job.name)
    # One decides for all processes of a run.
    if job.folder is not None and not all_agree(own is not None or not is_primary()):
        return AT_WORK
    try:
        # Before the stop is heeded, so that a folder of another run is refused whenever it is seen.
        finished = job.is_finished()
        if job.folder is not None:
            # What another command has just written may not be seen by each host yet: one looks.
            finished = primary_says(finished)
        if stop is not None:
            stop.leave_if_requested()
        status = 0
        if finished:
            say(f"{job.name}: finished before")
        else:
            status = job.run()
        if job.folder is not None:
            # The others may still write where the first has ended.
            barrier("job")
        return status
    finally:
        if own is not None:
            own.release()
