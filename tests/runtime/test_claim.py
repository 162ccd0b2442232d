"""A place that one process works in at a time: who has it, who may take it over."""

import dataclasses
import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys

import pytest

from xlingjax.errors import UserError
from xlingjax.runtime import claim as claims
from xlingjax.runtime.claim import Claim, Holder, alone_at, alone_in, claim, holder_of

OTHER = """
import sys, time
from pathlib import Path
from xlingjax.runtime.claim import claim
print(type(claim(Path(sys.argv[1]))).__name__, flush=True)
time.sleep(float(sys.argv[2]))
"""


def other(path, seconds):
    """Another process that tries to have it; (itself, what it got)."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(path), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    return process, process.stdout.readline().strip()


def test_a_claim_is_one_process_and_gone_when_it_is_given_up(tmp_path):
    path = tmp_path / "cell" / "claim.json"
    with claim(path) as mine:
        assert isinstance(mine, Claim)
        held = json.loads(path.read_text())
        assert (held["host"], held["process"]) == (socket.gethostname(), os.getpid())
        process, got = other(path, 0)
        assert got == "Holder" and process.wait() == 0
        assert str(holder_of(path)) == f"process {os.getpid()} on {held['host']}, for 0 min"
    # Nothing of it stays, not the files that it was made with either.
    assert [*path.parent.iterdir()] == []


def test_that_of_a_living_process_is_left_and_that_of_a_killed_one_taken_over(tmp_path):
    path = tmp_path / "claim.json"
    process, got = other(path, 60)
    assert got == "Claim"
    holder = claim(path)
    assert isinstance(holder, Holder) and holder.process == process.pid
    process.kill()
    # Not waited for yet: a process that has ended is dead, whoever has not looked.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert holder_of(path) is None
    mine = claim(path)
    assert isinstance(mine, Claim) and json.loads(path.read_text())["process"] == os.getpid()
    mine.give_up()
    process.wait()
    assert [*tmp_path.iterdir()] == []


def write(path, silent=0.0, **changes):
    holder = dataclasses.replace(Holder.here(), **changes)
    path.write_text(json.dumps(dataclasses.asdict(holder)))
    then = path.stat().st_mtime - silent
    os.utime(path, (then, then))


@pytest.mark.parametrize(
    "silent, changes, dead",
    [
        # The number of a process that died, given to one that began later.
        (0, {"began": "1"}, True),
        # Of another host, whose processes cannot be seen: by its sign of life.
        (10, {"host": "far", "machine": "another boot"}, False),
        (claims.SILENCE + 10, {"host": "far", "machine": "another boot"}, True),
        # This one, however long it was silent: it is seen to live.
        (claims.SILENCE + 10, {}, False),
    ],
)
def test_who_is_dead(silent, changes, dead, tmp_path):
    path = tmp_path / "claim.json"
    write(path, silent, **changes)
    assert (holder_of(path) is None) == dead
    found = claim(path)
    assert isinstance(found, Claim) == dead
    if dead:
        found.give_up()


def test_a_process_that_lost_its_claim_leaves_the_other_s(tmp_path):
    path = tmp_path / "claim.json"
    mine = claim(path)
    write(path, host="far", machine="another boot")
    mine.give_up()
    assert json.loads(path.read_text())["host"] == "far"


def test_of_several_that_find_a_dead_one_a_single_one_has_it(tmp_path):
    path = tmp_path / "claim.json"
    write(path, began="1")
    both = [
        subprocess.Popen(
            [sys.executable, "-c", OTHER, str(path), "1"], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    got = sorted(process.communicate()[0].strip() for process in both)
    assert got == ["Claim", "Holder", "Holder", "Holder"]


def test_a_file_that_names_nobody_is_taken(tmp_path):
    path = tmp_path / "claim.json"
    path.write_text("{")
    # A file of this moment may be one that is being written.
    assert isinstance(claim(path), Holder)
    then = path.stat().st_mtime - 60
    os.utime(path, (then, then))
    with claim(path) as mine:
        assert isinstance(mine, Claim)


def test_where_there_are_no_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "claim.json"
    with claim(path):
        assert other(path, 0)[1] == "Holder"
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file: cannot be written \(.*\); choose another folder"):
        claim(tmp_path / "file" / "claim.json")


@pytest.mark.parametrize("alone, place", [(alone_in, "run"), (alone_at, "run/model")])
def test_who_comes_second_is_told_who_is_there_and_since_when(tmp_path, alone, place):
    place = tmp_path / place
    with alone(place, "choose another --to"):
        with pytest.raises(UserError) as refused, alone(place, "choose another --to"):
            pass
        # Refusing did no harm.
        with pytest.raises(UserError), alone(place):
            pass
    said = rf"{place} is in use: process {os.getpid()} on {socket.gethostname()} has it since"
    said += r" \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(0 min\); let that end, or choose another --to"
    assert re.match(said, str(refused.value)) and "\n" not in str(refused.value)
    with alone(place):
        pass
    # A folder that was made for nothing does not stay.
    assert not [*tmp_path.glob("**/*.json*")] and not place.exists()


def test_a_folder_keeps_what_was_written_in_it(tmp_path):
    with alone_in(tmp_path / "run"):
        (tmp_path / "run" / "log.txt").write_text("")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["log.txt"]


@pytest.mark.parametrize("lives", [True, False])
def test_a_process_that_cannot_be_seen_is_waited_for(lives, tmp_path, monkeypatch, capsys):
    """As that of a job which a cluster starts again on another host, a moment after its death."""
    path = tmp_path / claims.IN_USE
    write(path, 5, host="far", machine="another boot")
    looks = []

    def look(seconds):
        looks.append(seconds)
        if lives and len(looks) == 2:
            os.utime(path)
        if len(looks) == 4:
            os.utime(path, (0, 0))

    monkeypatch.setattr(claims.time, "sleep", look)
    if lives:
        with pytest.raises(UserError, match="on far has it since"), alone_in(tmp_path):
            pass
        assert len(looks) == 2
    else:
        monkeypatch.setattr(claims, "_sign", lambda path: 0.0)
        with alone_in(tmp_path):
            assert json.loads(path.read_text())["process"] == os.getpid()
        assert len(looks) == 4
    assert capsys.readouterr().err.count("waiting for a sign of life of process") == 1


def test_a_claim_whose_folder_is_gone_is_given_up_in_silence(tmp_path):
    with alone_in(tmp_path / "run"):
        shutil.rmtree(tmp_path / "run")


def test_a_full_disk_leaves_nothing_of_a_claim(tmp_path, monkeypatch):
    def full(self, *_, **__):
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(UserError, match="No space left on device"):
        claim(tmp_path / "claim.json")
    assert [*tmp_path.iterdir()] == []


def test_a_folder_in_the_place_of_a_claim_is_named(tmp_path):
    """Another folder would be no remedy."""
    (tmp_path / "in_use.json").mkdir()
    with pytest.raises(UserError, match="in_use.json: Is a directory; a file is needed there"):
        claim(tmp_path / "in_use.json")
