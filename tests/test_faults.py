"""Every input of `python -m benchmarks.faults` gets its line, and damage to any file of a run is
told."""

import os
import re
import subprocess

import pytest

from benchmarks.faults import damaged
from benchmarks.faults.groups import GROUPS
from benchmarks.faults.place import Place, Said, cli

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    cache = os.environ.get("XLINGJAX_CACHE")
    yield Place(tmp_path_factory.mktemp("faults") / "p")
    del os.environ["XLINGJAX_CACHE"]
    if cache:
        os.environ["XLINGJAX_CACHE"] = cache


def mounts():
    """Whether a file system can be mounted here."""
    done = subprocess.run(["unshare", "-m", "true"], capture_output=True)
    return done.returncode == 0


@pytest.mark.parametrize("group", GROUPS)
def test_every_input_gets_its_line(group, place):
    mounted = "disk" in group or "read-only" in group
    if mounted and (os.getuid() != 0 or not mounts()):
        pytest.skip("nothing can be mounted here")
    faults = []
    for case in GROUPS[group]:
        said = case.run(place)
        place.fresh()
        if fault := case.fault(said):
            faults.append(f"{case.what}: {fault}")
    assert not faults, "\n".join(faults)


def test_damage_is_told_or_does_no_harm(place, capsys):
    assert damaged.damaged(place, 60, seed=1) == 0
    counted = re.search(r"(\d+) of \d+ \(file, damage, verb\)", capsys.readouterr().out)
    assert int(counted[1]) > 10


def test_a_traceback_and_silence_are_found():
    """What the two tests above would say."""
    refused = Said(2, "", "error: x\n")
    assert damaged._outcome(refused, False) == damaged.REFUSED
    assert damaged._outcome(Said(0, "done", ""), True) == damaged.FINE
    assert damaged._outcome(Said(0, "done", ""), False) == "silently wrong"
    assert damaged._outcome(Said(0, "", "warning: x"), False) == damaged.TOLD
    for said in (
        Said(None, "", "", "ValueError at x.py:1"),
        Said(2, "", "error: x\nerror: y\n"),
        Said(2, "", "usage"),
        Said(0, "Traceback (most recent call last):", ""),
        Said(-9, "", ""),
    ):
        assert damaged._outcome(said, True) == "traceback", said
    assert cli("pretrian").status == 2
