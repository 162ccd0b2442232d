"""Calls in processes of their own."""

import functools
import os
from pathlib import Path

import pytest

from xlingjax.errors import UserError
from xlingjax.runtime.workers import in_processes


def calls(folder, count):
    return [
        (f"call {number}", functools.partial(Path.write_text, folder / str(number), f"{number}"))
        for number in range(count)
    ]


def test_every_call_is_made_once(tmp_path):
    # What no other program can import is left out.
    in_processes([("own", lambda: None), *calls(tmp_path, 5)], 2)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        str(number): str(number) for number in range(5)
    }
    in_processes([], 2)


def test_the_first_fault_is_said_and_nothing_else_begins(tmp_path):
    wrong = functools.partial(Path.read_text, tmp_path / "missing")
    with pytest.raises(UserError, match="No such file .*missing"):
        in_processes([("x", wrong), *calls(tmp_path, 300)], 1)
    assert len(list(tmp_path.iterdir())) < 300


def test_a_process_that_ends_without_an_answer_is_told(tmp_path):
    with pytest.raises(
        UserError, match="^de.txt: a process that read it or another text was ended; is the memory"
    ):
        in_processes([("de.txt", functools.partial(os._exit, 3))], 2)
