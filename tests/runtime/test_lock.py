"""A place that one process writes at a time."""

import errno
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from xlingjax.errors import UserError
from xlingjax.runtime.lock import alone_at, alone_in, holder, is_held, take

OTHER = """
import sys, time
from pathlib import Path
from xlingjax.runtime.lock import take
lock = take(Path(sys.argv[1]))
print(lock is not None, flush=True)
time.sleep(float(sys.argv[2]))
"""


def other(path, seconds):
    """Another process that tries to have it; (itself, whether it has it)."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(path), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    return process, process.stdout.readline().strip() == "True"


def test_a_lock_is_one_process_s_and_leaves_nothing(tmp_path):
    path = tmp_path / "cell" / "job.lock"
    with take(path):
        assert take(path) is None and is_held(path)
        process, got = other(path, 0)
        assert not got and process.wait() == 0
        assert holder(path).startswith(f"process {os.getpid()} on {socket.gethostname()}, since 20")
    assert [*path.parent.iterdir()] == [] and not is_held(path)


def test_that_of_a_killed_process_is_taken_at_once(tmp_path):
    path = tmp_path / "job.lock"
    process, got = other(path, 60)
    assert got and is_held(path) and holder(path).startswith(f"process {process.pid} on ")
    process.kill()
    process.wait()
    assert path.exists() and not is_held(path)
    with take(path) as lock:
        assert lock is not None and holder(path).startswith(f"process {os.getpid()} on ")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("alone, place", [(alone_in, "run"), (alone_at, "run/model")])
def test_who_comes_second_is_told_who_is_there_and_since_when(tmp_path, alone, place):
    place = tmp_path / place
    with alone(place, "choose another --to"):
        # Refusing does no harm, so a third is refused, too.
        for _ in range(2):
            with pytest.raises(UserError) as refused, alone(place, "choose another --to"):
                pass
    message = rf"{place} is in use: process {os.getpid()} on {socket.gethostname()}, since"
    message += r" \d{4}-\d\d-\d\d \d\d:\d\d:\d\d; let that end, or choose another --to"
    assert re.fullmatch(message, str(refused.value))
    # It may be gone when it is left.
    with alone(place):
        shutil.rmtree(place, ignore_errors=True)
    # A folder that was made for nothing does not stay.
    assert not [*tmp_path.glob("**/*.lock")] and not place.exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file: cannot be written \(.*\); choose another folder"):
        take(tmp_path / "file" / "job.lock")
    (tmp_path / "in_use.lock").mkdir()
    with pytest.raises(IsADirectoryError):
        take(tmp_path / "in_use.lock")

    def full(self, *_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UserError, match="No space left on device"):
        take(tmp_path / "new" / "job.lock")
    assert [*(tmp_path / "new").iterdir()] == []
