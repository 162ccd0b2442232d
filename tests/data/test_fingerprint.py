"""A hash of what code does: equal in every process, another where the code or what it reads is."""

import os
import subprocess
import sys
import threading
import types

import pytest

from xlingjax.data.fingerprint import fingerprint

MODULE = """
import functools, re
import numpy as np

LIMIT = 3
NAMES = {"b", "a", "c"}

def inner(text):
    return text[:LIMIT]

def outer(lines, seen=(1, 2), *, by=None):
    made = [inner(line) for line in lines if line not in NAMES]
    return outer(made) if len(made) > 10 else made

def closed(n, table):
    return lambda line: line[:n] + table[0]

class Cut:
    factor = 2

    def __init__(self, n):
        self.n = n

    def __call__(self, line):
        return line[: self.n * self.factor]

class Deep(Cut):
    pass

made = [
    outer,
    closed(3, np.array([1, 2])),
    functools.partial(outer, seen=(4,)),
    Deep(3),
    Cut(3).__call__,
    {"a": re.compile("x+"), "b": functools.cache(inner)},
]
"""


def made(text=MODULE):
    module = types.ModuleType("mine")
    sys.modules["mine"] = module
    try:
        exec(compile(text, "mine.py", "exec"), module.__dict__)
        return [fingerprint(one) for one in module.made]
    finally:
        del sys.modules["mine"]


def test_it_is_equal_in_another_process_and_wherever_the_code_stands():
    found = made()
    assert None not in found and len({*found}) == len(found)
    assert made("# a line\n\n" + MODULE) == found
    script = "import tests.data.test_fingerprint as of; print(*of.made())"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    other = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert other.stdout.split() == found


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        # A global that a called function reads, what is closed over, a default, an attribute.
        ("LIMIT = 3", "LIMIT = 4", {0, 2, 5}),
        ('"c"}', '"d"}', {0, 2}),
        ("line not in NAMES", "line in NAMES", {0, 2}),
        ("closed(3, np", "closed(4, np", {1}),
        ("[1, 2])),", "[1, 3])),", {1}),
        ("seen=(1, 2)", "seen=(1, 3)", {0, 2}),
        ("by=None", "by=0", {0, 2}),
        ("seen=(4,)", "seen=(5,)", {2}),
        ("Deep(3)", "Deep(4)", {3}),
        ("Cut(3)", "Cut(4)", {4}),
        ("factor = 2", "factor = 3", {3, 4}),
        ("self.n * self", "self.n + self", {3, 4}),
        ('"x+"', '"y+"', {5}),
    ],
)
def test_any_change_of_what_it_does_changes_it(old, new, changed):
    assert MODULE.count(old) == 1
    before, after = made(), made(MODULE.replace(old, new))
    assert {i for i in range(len(before)) if before[i] != after[i]} == changed


def test_what_holds_an_object_outside_python_has_none(tmp_path):
    lock = threading.Lock()
    with (tmp_path / "file").open("w") as file:
        assert fingerprint(lambda: lock) is fingerprint([file]) is None
