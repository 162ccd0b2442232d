"""Every verb that writes is alone at its output: a second one is refused in a line, before it reads
anything."""

import os
import re

import pytest

from xlingjax.cli import main
from xlingjax.errors import UserError
from xlingjax.runtime.lock import alone_at, alone_in
from xlingjax.training.workdir import whole
from xlingjax.workflows.adapt.run import adapt
from xlingjax.workflows.bakeoff import runs as bakeoff
from xlingjax.workflows.files.translate import Partial

HERE = f"is in use: process {os.getpid()} on "
WORDS = {
    "vocab": "vocab --mono {other}/x --to {output}",
    "data clean": "data clean --mono {other}/x --to {output}",
    "encode": "encode {other} --language de --input {other}/x --to {output}",
    "align": "align {other} --stem {other}/x --languages de en --to {output}",
    "mine": "mine {other} --languages de en --files {other}/x {other}/y --to {stem}",
    "demo": "demo {output}",
    "mine --negatives": "mine --negatives --parallel {other}/x --vocabulary x --to {output}",
}


@pytest.mark.parametrize("verb", WORDS)
def test_a_verb_is_refused_where_another_process_writes(verb, tmp_path, capsys):
    # What it reads is not there, and it is not read.
    output = tmp_path / "output.de-en.tsv"
    words = WORDS[verb].format(other=tmp_path, output=output, stem=tmp_path / "output").split()
    with alone_at(output):
        assert main.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {output} {HERE}")
    assert [*tmp_path.iterdir()] == []


def nothing(*_):
    raise AssertionError("it was not refused")


def exported(folder):
    with whole(str(folder)):
        nothing()


def translated(path):
    with Partial(str(path), {}):
        nothing()


def baked_off(folder):
    config = bakeoff.Bakeoff(base=[], mixes={"mlm": []}, tasks={}, tokens=1000)
    bakeoff.run(config, folder, nothing)


@pytest.mark.parametrize(
    "write, alone",
    [
        (exported, alone_at),
        (translated, alone_at),
        (lambda folder: adapt(None, str(folder), None), alone_in),
        (baked_off, alone_in),
    ],
)
def test_a_second_writer_is_refused_and_the_first_left_alone(write, alone, tmp_path):
    output = tmp_path / "output"
    with alone(output):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(UserError, match=f"{re.escape(str(output))} {HERE}"):
            write(output)
        assert sorted(tmp_path.rglob("*")) == before


def test_token_cache_is_filled_by_one_command_at_a_time(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path))
    with alone_at(tmp_path / "tokens"):
        words = ["cache", "--mono", str(tmp_path / "x"), "--vocabulary", str(tmp_path)]
        assert main.main(words) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path}/tokens {HERE}" in said and "set XLINGJAX_CACHE to another folder" in said
