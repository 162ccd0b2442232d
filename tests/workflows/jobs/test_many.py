"""Many runs: their order, those that are finished, a failure, being asked to stop; several
processes that share them."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from xlingjax.errors import Stopped, UserError
from xlingjax.runtime.lock import take
from xlingjax.workflows.jobs import many
from xlingjax.workflows.jobs.many import AT_WORK, Call, Command, Job, Stop, run_all


class Noted(Job):
    """Writes its name in `ran`."""

    def __init__(self, name, ran, status=0, finished=False, error=None, needs=(), folder=None):
        self.name, self.ran, self.status = name, ran, status
        self.needs, self.folder = needs, folder
        self.finished, self.error = finished, error

    def is_finished(self):
        return self.finished

    def run(self):
        self.ran.append(self.name)
        if self.error:
            raise self.error
        return self.status


def test_jobs_run_in_order_but_for_those_that_are_finished():
    ran = []
    said = []
    jobs = [Noted("a", ran), Noted("b", ran, finished=True), Noted("c", ran)]
    assert run_all(jobs, say=said.append) == 0
    assert ran == ["a", "c"]
    assert said == ["b: finished before"]


@pytest.mark.parametrize("at_once", [1, 2])
def test_failures_that_are_noted_leave_the_others(at_once):
    ran = []
    noted = []
    jobs = [Noted("a", ran, error=UserError("a is bad")), Noted("b", ran)]
    status = run_all(jobs, at_once, on_error=lambda name, error: noted.append((name, str(error))))
    assert status == 0
    assert sorted(ran) == ["a", "b"]
    assert noted == [("a", "a is bad")]


def test_of_jobs_beside_one_another_a_failure_lets_those_that_run_end():
    ran = []
    begun = threading.Event()
    failed = threading.Event()

    def slow():
        begun.set()
        assert failed.wait(30)
        ran.append("slow")
        return 0

    def bad():
        assert begun.wait(30)
        threading.Timer(0.2, failed.set).start()  # once its error was seen
        raise UserError("bad")

    with pytest.raises(UserError, match="bad"):
        run_all([Call("slow", slow), Call("bad", bad), Noted("next", ran)], at_once=2)
    assert ran == ["slow"]


def test_a_request_to_stop_is_heeded_before_the_next_job():
    ran = []
    stop = Stop("sweep")

    def interrupted():
        stop.requested.set()
        return 0

    with pytest.raises(Stopped, match="^sweep: stopped; the same command goes on$"):
        run_all([Call("a", interrupted), Noted("b", ran)], stop=stop)
    assert ran == []


def python(code, name="run", stop=None, say=print, log=None):
    """A command; what `Command` shows of its line begins at the code."""
    return Command(name, [sys.executable, "-E", "-c", code], stop or Stop("verb"), say, log)


def test_a_command_that_fails_is_named_with_where_to_look(tmp_path):
    log = tmp_path / "log"
    code = "import sys; print('first'); print('last'); sys.exit(2)"
    with pytest.raises(UserError) as raised:
        run_all([python(code, log=log)])
    assert str(raised.value) == f"verb: run ended with status 2 (last); its log is {log}"
    assert log.read_text() == "first\nlast\n"


SAVES = """
import pathlib, signal, sys
def leave(*_):
    pathlib.Path({saved!r}).touch()
    sys.exit(75)
signal.signal(signal.SIGTERM, leave)
signal.alarm(60)  # no orphan outlives a failed test
pathlib.Path({begun!r}).touch()
signal.pause()
"""


def test_a_signal_has_a_command_save_and_stops_the_others(tmp_path):
    begun = tmp_path / "begun"
    saved = tmp_path / "saved"
    ran = []

    def interrupt():
        until = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    stop = Stop("verb")
    code = SAVES.format(begun=str(begun), saved=str(saved))
    threading.Thread(target=interrupt).start()
    with stop.listen(), pytest.raises(Stopped):
        run_all([python(code, stop=stop), Noted("next", ran)], stop=stop)
    assert saved.exists()
    assert ran == []


# ---- several processes --------------------------------------------------------------------------

WORKER = """
import sys, time
from pathlib import Path
from xlingjax.workflows.jobs.many import Job, run_all

class Marked(Job):
    def __init__(self, folder):
        self.name, self.folder = folder.name, folder
    def is_finished(self):
        return (self.folder / "done").exists()
    def run(self):
        with open(self.folder / "runs", "a") as file:
            file.write("x")
        time.sleep(float(sys.argv[2]))
        (self.folder / "done").touch()
        return 0

jobs = [Marked(Path(sys.argv[1]) / str(i)) for i in range(6)]
run_all(jobs, say=lambda line: print(line, flush=True))
print("ended", flush=True)
"""


def worker(folder, seconds):
    line = [sys.executable, "-c", WORKER, str(folder), str(seconds)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, text=True)


def test_two_processes_do_each_job_once_and_both_end_when_all_are_done(tmp_path):
    both = [worker(tmp_path, 0.3) for _ in range(2)]
    said = [process.communicate(timeout=60)[0] for process in both]
    assert [(tmp_path / str(i) / "runs").read_text() for i in range(6)] == ["x"] * 6
    assert all(text.endswith("ended\n") for text in said)
    # Both worked, and nothing of their locks is left.
    assert not [*tmp_path.rglob("*.lock")]


@pytest.mark.long
def test_what_a_killed_process_left_is_gone_on_with(tmp_path):
    first = worker(tmp_path, 60)
    while not (tmp_path / "0" / "runs").exists():
        time.sleep(0.05)
    first.kill()
    first.wait()
    second = worker(tmp_path, 0)
    said = second.communicate(timeout=60)[0]
    assert said.endswith("ended\n") and "left to" not in said
    assert (tmp_path / "0" / "runs").read_text() == "xx"


def test_what_others_are_at_is_left_until_last_or_to_them(tmp_path, monkeypatch):
    ran = []
    said = []
    jobs = [Noted(name, ran, folder=tmp_path / name) for name in "abc"]
    # Of this very process, as another thread would have it.
    held = take(tmp_path / "a" / many.LOCK)
    assert run_all(jobs, say=said.append, wait=False) == AT_WORK
    assert ran == ["b", "c"] and len(said) == 1 and said[0].startswith("a: left to process ")
    monkeypatch.setattr(many.time, "sleep", lambda _: held.release())
    ran.clear()
    assert run_all(jobs, say=said.append) == 0
    assert ran == ["b", "c", "a"]


def test_a_job_waits_for_those_that_it_needs_and_goes_on_with_what_others_were_at(monkeypatch):
    """A sweep whose cells others are at is looked into again."""
    ran = []
    sweep = Noted("sweep", ran, status=AT_WORK)
    jobs = [Noted("row", ran, needs=["encoder"]), sweep, Noted("encoder", ran)]
    monkeypatch.setattr(many.time, "sleep", lambda _: setattr(sweep, "status", 0))
    assert run_all(jobs) == 0
    assert ran == ["sweep", "encoder", "row", "sweep", "sweep", "sweep"]


def test_shared_jobs_that_were_asked_to_stop_and_that_failed_end_all(tmp_path):
    ran = []
    jobs = [Noted(name, ran, 75, folder=tmp_path / name) for name in "ab"]
    assert run_all(jobs) == 75 and ran == ["a"]
    jobs[0].error = UserError("a is bad")
    with pytest.raises(UserError, match="a is bad"):
        run_all(jobs)
    # Neither is held: the same command goes on with it.
    assert not [*tmp_path.rglob("*.lock")]
