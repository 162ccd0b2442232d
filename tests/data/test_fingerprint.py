"""A hash of what code does: equal in every process, another where the code or its settings are."""

import functools
import importlib
import os
import subprocess
import sys

import pytest

from xlingjax.data.fingerprint import code_of, fingerprint

SCRIPT = "import functools, mine; from xlingjax.data.fingerprint import fingerprint as of\n"
SCRIPT += "print(of(mine.cut), of(functools.partial(mine.cut, n=%d)), of(mine.Cut(%d)), sep='\\n')"
MINE = """
import helpers


def cut(lines, n=3):
    return helpers.cut(lines, n)


class Cut:
    def __init__(self, n):
        self.n = n
"""
HELPERS = "def cut(lines, n):\n    return lines[:n]\n"


@pytest.fixture
def made(tmp_path):
    def made(mine=MINE, helpers=HELPERS, partial=4, instance=5):
        (tmp_path / "mine.py").write_text(mine)
        (tmp_path / "helpers.py").write_text(helpers)
        done = subprocess.run(
            [sys.executable, "-B", "-c", SCRIPT % (partial, instance)],
            env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    return made


def test_it_is_equal_in_another_process_and_goes_by_code_and_settings(made):
    before = made()
    assert "None" not in before and len({*before}) == 3 and made() == before
    for changes in ({"mine": MINE.replace("n=3", "n=2")}, {"helpers": HELPERS + "\n\nX = 1\n"}):
        assert not {*made(**changes)} & {*before}
    assert [a == b for a, b in zip(made(partial=9), before, strict=True)] == [True, False, True]
    assert [a == b for a, b in zip(made(instance=9), before, strict=True)] == [True, True, False]


def test_code_is_named_by_module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine_60.py").write_text("import helpers_60\n\n\nclass Own: ...\n")
    (tmp_path / "helpers_60.py").write_text("")
    own = importlib.import_module("mine_60").Own()
    before = code_of(own, 3)
    assert [*before] == ["xlingjax", "mine_60", "helpers_60"]
    (tmp_path / "helpers_60.py").write_text("# Another.\n")
    after = code_of(own, 3)
    assert [name for name in before if before[name] != after[name]] == ["helpers_60"]


def test_what_cannot_be_pickled_has_none(tmp_path):
    assert fingerprint(lambda line: line) is None
    with (tmp_path / "file").open("w") as file:
        assert fingerprint(functools.partial(print, file=file)) is None
