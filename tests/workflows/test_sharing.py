"""Jobs that several processes share."""

import subprocess
import sys
import time

import pytest

from xlingjax.errors import UserError
from xlingjax.runtime.lock import take
from xlingjax.workflows import sharing
from xlingjax.workflows.sharing import AT_WORK, SharedJob, share_all

WORKER = """
import sys, time
from pathlib import Path
from xlingjax.workflows.sharing import SharedJob, share_all

class Job(SharedJob):
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

share_all([Job(Path(sys.argv[1]) / str(i)) for i in range(6)], lambda line: print(line, flush=True))
print("ended", flush=True)
"""


class Noted(SharedJob):
    def __init__(self, folder, ran, status=0, error=None):
        self.name, self.folder = folder.name, folder
        self.ran, self.status, self.error = ran, status, error

    def run(self):
        self.ran.append(self.name)
        if self.error:
            raise self.error
        return self.status


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
    jobs = [Noted(tmp_path / name, ran) for name in "abc"]
    held = take(tmp_path / "a" / sharing.LOCK)
    # Of this very process, as another thread would have it.
    assert share_all(jobs, said.append, wait=False) == AT_WORK
    assert ran == ["b", "c"] and len(said) == 1 and said[0].startswith("a: left to process ")
    monkeypatch.setattr(sharing.time, "sleep", lambda _: held.release())
    ran.clear()
    assert share_all(jobs, said.append) == 0
    assert ran == ["b", "c", "a"]


def test_a_job_that_was_asked_to_stop_and_one_that_failed_end_all(tmp_path):
    ran = []
    jobs = [Noted(tmp_path / "a", ran, 75), Noted(tmp_path / "b", ran)]
    assert share_all(jobs) == 75 and ran == ["a"]
    jobs[0].error = UserError("a is bad")
    with pytest.raises(UserError, match="a is bad"):
        share_all(jobs)
    # Neither is held: the same command goes on with it.
    assert not [*tmp_path.rglob("*.lock")]
