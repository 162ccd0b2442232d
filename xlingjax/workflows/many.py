"""Many runs: which are finished already, and the others in order, one or several at a time.

A sweep's cells, a table's sweeps, a bake-off's runs and a suite's tasks are jobs. Some are done in
this process, where a training hears signals itself and gives its exit status; some in one of their
own (`Command`), which `Stop` ends.
"""

import abc
import contextlib
import dataclasses
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from xlingjax.errors import Stopped, UserError
from xlingjax.runtime.shutdown import stop_requested


class Job(abc.ABC):
    """One of many runs."""

    name: str
    """What messages call it; where its result stands in a folder, that folder."""

    def is_finished(self) -> bool:
        """Whether its result is there. Raises UserError where that of another run is."""
        return False

    @abc.abstractmethod
    def run(self) -> int:
        """Do it; the exit status, which is not 0 where it was asked to stop. Raises UserError where
        it failed."""


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
    say: Callable[[str], None]
    log: Path | None = None
    """The file of all that it prints; None: the terminal."""
    prefix: str = ""
    """Before each line that it prints on the terminal; "": it has the terminal for itself."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Variables that differ from this process's."""
    passed: Collection[int] = ()
    """Statuses, beside 0, that are no failure."""

    def run(self) -> int:
        # Without `python -m xlingjax`.
        self.say(f"{self.name}: {' '.join(self.line[3:])}")
        if self.log is not None:
            with open(self.log, "w", encoding="utf-8") as output:
                status = self._status(stdout=output, stderr=subprocess.STDOUT)
        elif self.prefix:
            status = self._prefixed()
        else:
            status = self._status()
        if status in self.passed:
            return status
        if status:
            # A run that was made to stop has not failed.
            self.stop.leave_if_requested()
            raise UserError(
                f"{self.stop.verb}: {self.name} ended with status {status}{self._evidence()}"
            )
        return 0

    def _prefixed(self) -> int:
        """Its exit status; its lines are said, each behind the prefix."""
        reading, writing = os.pipe()

        def pass_on() -> None:
            with open(reading, encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    self.say(f"{self.prefix}{line.rstrip()}")

        teller = threading.Thread(target=pass_on)
        teller.start()
        try:
            return self._status(stdout=writing, stderr=subprocess.STDOUT)
        finally:
            # Else the reader would wait for more.
            os.close(writing)
            teller.join()

    def _status(self, **output) -> int:
        # In a group of its own: Ctrl-C reaches this process alone, which has the run save.
        child = subprocess.Popen(
            self.line,
            # In a group of its own a child that read the terminal would be stopped by SIGTTIN.
            stdin=subprocess.DEVNULL,
            process_group=0,
            env=os.environ | self.environment,
            **output,
        )
        while child.poll() is None and not self.stop.requested.wait(0.5):
            pass
        if child.poll() is None:
            # SIGTERM has a run save before it ends, so nothing is lost.
            child.terminate()
        # However long it saves: killing it would lose that.
        return child.wait()

    def _evidence(self) -> str:
        """Where a reader finds why it failed."""
        if self.log is None:
            return "; what it said stands above"
        last = self.log.read_text(encoding="utf-8", errors="replace")
        last = last.strip().splitlines()[-1:]
        return f" ({' '.join(last)}); its log is {self.log}"


def difference(before: Sequence[str], now: Sequence[str]) -> str:
    """The first lines of two settings that the other has not."""
    lost = _first_missing(before, now)
    new = _first_missing(now, before)
    return f"there: {lost}; now: {new}"


def _first_missing(lines: Sequence[str], others: Sequence[str]) -> str:
    """The first line that is not one of the others."""
    for line in lines:
        if line not in others:
            return line
    return "nothing"


def run_all(
    jobs: Iterable[Job],
    at_once: int = 1,
    say: Callable[[str], None] = print,
    stop: Stop | None = None,
    on_error: Callable[[str, UserError], None] | None = None,
) -> int:
    """Run the jobs that are not finished, begun in their order, and say which were. The exit
    status: 0, or that of the first one that was asked to stop. After it, and after one that raised,
    none is begun; those that run meanwhile are finished.

    on_error: takes the name of a job and its UserError, and the others are run all the same, unless
    it raises; None: the error is raised.
    Raises Stopped where `stop` was requested before a job.
    """
    ended = threading.Event()

    def status_of(job: Job) -> int:
        # The job that ended all comes before this one, so its status or error is the one given.
        if ended.is_set():
            return 0
        try:
            status = _tried(job, say, stop, on_error)
        except BaseException:
            ended.set()
            raise
        if status:
            ended.set()
        return status

    # Here where it is one at a time: a training hears signals in the main thread alone.
    if at_once == 1:
        for job in jobs:
            status = status_of(job)
            if status:
                return status
        return 0
    # Threads and not processes, since each only waits for its run.
    with ThreadPoolExecutor(at_once) as pool:
        statuses = list(pool.map(status_of, jobs))
    return next(filter(None, statuses), 0)


def _tried(
    job: Job,
    say: Callable[[str], None],
    stop: Stop | None,
    on_error: Callable[[str, UserError], None] | None,
) -> int:
    try:
        return run_job(job, say, stop)
    except UserError as error:
        if on_error is None:
            raise
        on_error(job.name, error)
        return 0


def run_job(job: Job, say: Callable[[str], None], stop: Stop | None = None) -> int:
    """Run a job unless it is finished. Its exit status; raises as it does, and Stopped."""
    # Before the stop is heeded, so that a folder of another run is refused whenever it is seen.
    finished = job.is_finished()
    if stop is not None:
        stop.leave_if_requested()
    if finished:
        say(f"{job.name}: finished before")
        return 0
    return job.run()
