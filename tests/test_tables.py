"""The runs behind the papers' tables."""

import json
import os
import re
import signal
import sys
import threading
import time
from collections import Counter

import pytest

from xlingjax import cli, tables
from xlingjax.arguments import parser
from xlingjax.errors import Stopped, UserError
from xlingjax.probes import words
from xlingjax.tables import Table

TABLES = sorted((cli.gin_folder() / "recipes" / "tables").glob("*.gin"))
ENCODERS = {name: f"runs/{name}" for name in ("base", "large", "xdae", "xfnp")}
ROW = {"task": "xnli/xnli", "settings": ["finetuning/veco.gin", "LENGTH=64"]}


def read(name, encoders=ENCODERS):
    return cli.read_table([f"recipes/tables/{name}.gin"], [f"ENCODERS={json.dumps(encoders)}"])


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_row_names_files_and_macros_that_are_there(path):
    table = read(path.stem)
    known = {
        name
        for layer in cli.gin_folder().rglob("*.gin")
        for name in re.findall(r"^([A-Z][A-Z0-9_]*) = ", layer.read_text("utf-8"), re.MULTILINE)
    } | {"TRANSLATED", "TEST_LANGUAGES"}  # of sweeps
    assert not table.left_out()
    for row in table.rows.values():
        assert re.fullmatch(r"(xnli|xtreme|xglue|applications)/\w+", row["task"])
        for word in row["settings"]:
            assert word.split("=")[0] in known if "=" in word else (cli.gin_folder() / word).is_file(), word
        assert {*row.get("grid", ())} <= known


def test_the_papers_rows():
    assert [*read("ernie_m_1").rows] == [
        f"{size}, {setting}"
        for size in ("base", "large")
        for setting in ("cross-lingual transfer", "translate-train-all")
    ]
    assert read("ernie_m_1").seeds == read("ernie_m_2").seeds == 5
    assert {row["task"] for row in read("xglue_4").rows.values()} == {
        f"xglue/{name}" for name in ("ner", "pos", "nc", "mlqa", "xnli", "pawsx", "qadsm", "wpr", "qam")
    }
    assert {row["task"].split("/")[1] for row in read("veco_2").rows.values()} == {
        "xnli", "pawsx", "udpos", "panx", "xquad", "mlqa", "tydiqa", "bucc2018", "tatoeba"
    }  # fmt: skip
    sets = {n: [words(row["languages"]) for row in read(f"unicoder_{n}").rows.values()][0] for n in (4, 6)}
    assert Counter(name.count("+") + 1 for name in sets[4]) == {1: 6, 2: 5, 6: 1, 15: 1}
    assert Counter(name.count("+") + 1 for name in sets[6]) == {1: 1, 2: 14} and len({*sets[6]}) == 15
    assert {name for path in TABLES if read(name := path.stem).select == "mean"} == {
        "veco_2", "xglue_4", "xglue_4_generation", "xglue_7"  # whose papers say so
    }  # fmt: skip
    assert read("veco_2").rows["xnli"]["grid"]["LEARNING_RATE"] == "5e-6,8e-6,1e-5,2e-5,3e-5"
    translated = {name.partition(",")[0]: row for name, row in read("veco_2").rows.items() if name.endswith("-all")}
    assert [*translated] == ["xnli", "pawsx", "xquad", "mlqa", "tydiqa"]
    rates = {row["grid"]["LEARNING_RATE"] for row in translated.values()}
    assert rates == {"5e-6,6e-6,7e-6,8e-6,9e-6"}


def test_a_row_becomes_a_sweep():
    rows = {"Row 1 (x)": ROW | {"strategy": "pivot", "languages": "de fr", "grid": {"BATCH": "16,32", "EPOCHS": "3"}}}
    table = Table(rows, {"My encoder": "runs/x"}, seeds=3)
    line = table.command("My encoder", "Row 1 (x)", "data", "out")
    assert line[:4] == [sys.executable, "-m", "xlingjax.cli", "finetune"]
    assert line[4:] == [
        "--task", "xnli/xnli", "--from", "runs/x", "--data", "data", "--to", "out/my_encoder/row_1_x",
        "--strategy", "pivot", "--seeds", "3", "--languages", "de", "fr", "--grid", "BATCH=16,32", "EPOCHS=3",
        "--gin_file", "finetuning/veco.gin", "--gin.LENGTH=64",
    ]  # fmt: skip
    chosen = Table(rows, {"My encoder": "runs/x"}, select="mean").command("My encoder", "Row 1 (x)", "data", "out")
    assert chosen[-4:] == ["--gin.SELECT='mean'", "--gin_file", "finetuning/veco.gin", "--gin.LENGTH=64"]
    plain = Table({"x": {"task": "xnli/xnli"}}, {"e": "runs/x"}).command("e", "x", "data", "out")
    assert plain[-4:] == ["--strategy", "transfer", "--seeds", "1"]


def test_rows_are_for_their_encoders():
    rows = {"a": ROW, "b": ROW | {"encoders": "large"}, "c": ROW | {"encoders": "base small"}}
    table = Table(rows, {"base": "runs/b", "other": "runs/o"})
    assert table.cells() == [("base", "a"), ("base", "c"), ("other", "a")] and table.left_out() == ["b"]


@pytest.mark.parametrize(
    "rows, encoders, message",
    [
        ({"x": ROW | {"stratgy": "pivot"}}, {"e": "r"}, "row 'x': 'stratgy' is not one of encoders, grid"),
        ({"x": {"strategy": "pivot"}}, {"e": "r"}, "row 'x': say which task"),
        ({"x": ROW}, {}, "give {name: pretrained run}"),
        ({"x": ROW}, "runs/x", "give {name: pretrained run}"),
        ({"x y": ROW, "x-y": ROW}, {"e": "r"}, "would share a folder"),
        ({"x": ROW | {"encoders": "large"}}, {"e": "r"}, "ENCODERS has e and the rows are for large"),
    ],
)
def test_refusals(rows, encoders, message):
    with pytest.raises(UserError, match=message):
        Table(rows, encoders)


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """A sweep is a line in a file; what ends in "bad" fails, "slow" waits."""
    script = "import sys, time; a = sys.argv; open(a[1], 'a').write(a[2] + ' ' + ' '.join(a[3:]) + chr(10)); "
    script += "time.sleep(60 * (a[2] == 'slow')); sys.exit(2 * (a[2] == 'bad'))"

    def command(self, encoder, name, data, output):
        return [sys.executable, "-c", script, str(tmp_path / "ran"), name]

    monkeypatch.setattr(Table, "command", command)
    return lambda: (tmp_path / "ran").read_text().splitlines()


def test_sweeps_run_one_after_another_and_a_failure_ends_the_table(commands):
    said = []
    rows = {"one": ROW, "two": ROW | {"encoders": "large"}, "bad": ROW, "three": ROW}
    with pytest.raises(UserError, match="table: e, bad ended with status 2"):
        tables.run(Table(rows, {"e": "r"}), "data", "out", ["--platform", "cpu"], said.append)
    assert commands() == ["one --platform cpu", "bad --platform cpu"]
    assert said[0] == "left out, since ENCODERS does not name large: two"


def test_a_signal_stops_the_sweep_and_the_table(commands, tmp_path):
    def stop():
        while not (tmp_path / "ran").is_file():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    with pytest.raises(Stopped, match="the same command goes on"):
        tables.run(Table({"slow": ROW, "next": ROW}, {"e": "r"}), "data", "out", say=lambda _: None)
    assert len(commands()) == 1


def test_a_table_has_one_card(monkeypatch, tmp_path, capsys):
    def write(table, data, output, arguments):
        for value, folder in enumerate(table.folders(output)):
            cell = {
                "task": "xnli/xnli", "strategy": "transfer", "variant": {}, "settings": {}, "seed": 0, "machine": "",
                "start": {"run": "r", "sha256": "s"}, "select": {"by": "en", "split": "dev", "step": 1, "steps": 1},
                "dev": {"means": {"en": 1.0}},
                "test": {"split": "test", "examples": {"en": 9}, "means": {"mean": 60.0 + value, "en": 60.0 + value},
                         "by_language": {"en": {"accuracy": 60.0 + value}}},
            }  # fmt: skip
            (folder / "cells").mkdir(parents=True)
            (folder / "cells" / "scores.json").write_text(json.dumps(cell))

    monkeypatch.setattr(tables, "run", write)
    encoders = f"--gin.ENCODERS={json.dumps({'my base': 'r'})}"
    recipe = tmp_path / "table.gin"
    recipe.write_text((cli.gin_folder() / "recipes/tables/xlm_1.gin").read_text("utf-8"))
    assert cli.main(["table", "--gin_file", str(recipe), "--data", "d", "--to", str(tmp_path / "out"), encoders]) == 0
    text = (tmp_path / "out/card.md").read_text()
    assert text in capsys.readouterr().out and re.search(r"\| transfer \(\w+\) \| 60.0 \(1 of 15 languages\) \|", text)


def test_the_verb():
    args = parser().parse_args(["table", "--gin_file", "recipes/tables/ernie_m_1.gin", "--data", "d", "--to", "o"])
    assert (args.name, args.data, args.output) == ("table", "d", "o")
    assert cli.main(["table", "--gin_file", "recipes/tables/xlm_1.gin", "--data", "d", "--to", "o"]) == 2  # no encoder
