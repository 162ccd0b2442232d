"""`xlingjax start`: from two files of lines to the folder that AutoModel opens."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from xlingjax import demo, open_run
from xlingjax.cli.main import main
from xlingjax.data.held_out_pairs import read_pairs
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.workflows import start


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """Moses' names, of three letters, and neither side is English by its name."""
    folder = tmp_path_factory.mktemp("lines")
    demo.write(folder / "demo", ["en", "de"])
    for code, name in (("de", "fur"), ("en", "kab")):
        found = (folder / f"demo/parallel/de-en.{code}").read_text("utf-8").splitlines()[:600]
        (folder / f"train.{name}").write_text("".join(f"{one}\n" for one in found), "utf-8")
    return folder


def on_one_device(words):
    """What the command prints, of a process without the eight devices of the tests: so many would
    wait for each other on two cores, and XLA ends a process that waits too long."""
    done = subprocess.run(
        [sys.executable, "-m", "xlingjax", *words, "--platform", "cpu"],
        env=os.environ | {"XLA_FLAGS": ""},
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def test_from_two_files_to_a_model_that_transformers_opens(lines, tmp_path, capsys):
    words = ["start", f"{lines}/train.kab", f"{lines}/train.fur", "--to", f"{tmp_path}/out"]
    printed = on_one_device(words)
    out = tmp_path / "out"
    held = read_pairs(out / "text/held_out")["fur"]
    assert held.pivot == "kab" and "fur to kab: the right translation is found for" in printed
    # No line of what is measured on is learned from, in whatever capitals.
    learned = (out / "text/train/fur-kab.fur").read_text("utf-8").casefold().splitlines()
    assert not {one.casefold() for one in held.foreign} & {*learned}
    run = json.loads((out / "run/result.json").read_text())
    assert run["steps"] > 0 and (out / "run/report.html").is_file()
    # What is handed over gives the vectors that were measured.
    ours = open_run(out / "run").embed([*held.foreign[:8]], "fur")[-1]
    np.testing.assert_allclose(_theirs(out / "model", held.foreign[:8]), ours, atol=1e-4)
    # The same command goes on: nothing is trained again.
    before = (out / "run/metrics.jsonl").read_bytes()
    on_one_device(words)
    assert (out / "run/metrics.jsonl").read_bytes() == before
    assert main([*words, "--minutes", "3"]) == 2
    assert "was begun with other options" in capsys.readouterr().err


def _theirs(folder, texts):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    rows = tokenizer([*texts], padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**rows).last_hidden_state
    weights = rows["attention_mask"][..., None]
    return ((states * weights).sum(1) / weights.sum(1)).numpy()


@pytest.mark.parametrize(
    ("files", "options", "told"),
    [
        ({"a.txt": "", "b.txt": ""}, [], "the names do not tell the languages"),
        ({"a.en": "one\n", "a.sw": "moja\n"}, [], "en-sw: 1 different pairs with text"),
        ({"a.en": "?\n" * 3, "a.sw": "!\n" * 3}, [], "of letters and digits"),
        ({"a.en": "one\ntwo\n", "a.sw": "moja\n"}, [], "has 2 lines, "),
        ({"m.tmx": "<tmx><body>"}, [], "m.tmx is no translation memory that can be read"),
        ({"m.tmx": "<tmx/>"}, [], "m.tmx: its languages are none"),
        ({"m.tmx": "<?xml version='1.0' encoding='foo-9'?><tmx/>"}, [], "m.tmx is no translation"),
        ({"m.tsv": "one\tmoja\n"}, [], "m.tsv: neither its name nor its first line tells"),
        ({"a.en": "one\n"}, [], "a.en: give its other side"),
        ({"en-sw.tsv": "one\tmoja\n"}, ["--languages", "fr", "de"], "en-sw is named by its file"),
        ({"a.en": "", "a.sw": ""}, ["--languages", "en", "en"], "give two languages"),
        ({"a.en": "", "a.sw": ""}, ["--languages", "en", "english"], "'english' is no code like"),
    ],
)
def test_what_cannot_be_read_is_told_in_a_line(tmp_path, capsys, files, options, told):
    for name, content in files.items():
        (tmp_path / name).write_text(content, "utf-8")
    paths = [str(tmp_path / name) for name in files]
    assert main(["start", *paths, *options, "--to", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
    assert main(["start", *paths, f"{tmp_path}/trian.sw", "--to", str(tmp_path / "out2")]) == 2
    assert "no aligned file matches" in capsys.readouterr().err


def test_what_lies_in_the_folder_stays(tmp_path, lines, capsys):
    (tmp_path / "own/text").mkdir(parents=True)
    (tmp_path / "own/text/a.txt").write_text("mine")
    words = ["start", f"{lines}/train.kab", f"{lines}/train.fur", "--to", f"{tmp_path}/own"]
    assert main(words) == 2
    assert (tmp_path / "own/text/a.txt").read_text() == "mine"
    assert "is not empty" in capsys.readouterr().err


def test_pairs_that_are_shifted_are_told_and_read_again_when_repaired(lines, tmp_path, capsys):
    first, second = (
        (lines / f"train.{code}").read_text("utf-8").splitlines(True) for code in ("fur", "kab")
    )
    (tmp_path / "t.de").write_text("".join(first), "utf-8")
    (tmp_path / "t.en").write_text("".join([*second[1:], "Nothing.\n"]), "utf-8")
    words = ["start", f"{tmp_path}/t.de", f"{tmp_path}/t.en", "--to", f"{tmp_path}/out"]
    assert main(words) == 2
    printed = capsys.readouterr()
    assert "line i is translated by line i-1 of the other file" in printed.out
    assert "the text has errors (above)" in printed.err
    (tmp_path / "t.en").write_text("".join(second), "utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(start, "_trained", lambda *_: 0)
        assert main(words) == 0
        assert "error" not in capsys.readouterr().out
        (tmp_path / "t.en").write_text("".join(second[:-1]), "utf-8")
        assert main(words) == 2
        assert "t.en has changed since" in capsys.readouterr().err


def test_a_held_out_sentence_is_learned_in_no_pair(tmp_path):
    """One English text, in two orders, translated into two languages."""
    english = [f"sentence {number} of many" for number in range(400)]
    orders = {"sw": english, "yo": english[::-1]}
    texts = {
        ("en", code): [(line, f"{code} {line[::-1]}") for line in lines]
        for code, lines in orders.items()
    }
    start._write_text(texts, tmp_path, seed=0)
    learned = {
        line
        for code in ("sw", "yo")
        for line in (tmp_path / f"train/en-{code}.en").read_text("utf-8").splitlines()
    }
    held = {
        line
        for code in ("sw", "yo")
        for line in (tmp_path / f"held_out/en-{code}.en").read_text("utf-8").splitlines()
    }
    assert len(held) >= 40 and not held & learned


@pytest.mark.parametrize(
    ("codes", "objective"), [("en sw", "distillation"), ("fr sw", "hardest_negative")]
)
def test_without_english_no_side_is_the_teacher(tmp_path, monkeypatch, codes, objective):
    pair = tmp_path / "text/train" / codes.replace(" ", "-")
    pair.parent.mkdir(parents=True)
    for code in codes.split():
        Path(f"{pair}.{code}").write_text("a\n", "utf-8")
    asked = []
    monkeypatch.setattr(start, "default_objectives", lambda *_: ("distillation",))
    monkeypatch.setattr(start, "adapt", lambda request, *_: asked.append(request) or 1)
    request = start.Start((), (), minutes=1, source="hf")
    assert start._adapted(request, tmp_path, RuntimeConfig()) == 1
    assert asked[0].objectives == (objective,)


def test_a_folder_that_is_read_is_not_written_to(lines, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code in ("fur", "kab"):
        shutil.copy(lines / f"train.{code}", tmp_path / f"fur-kab.{code}")
    assert main(["start", ".", "--to", "runs/start"]) == 2
    assert "lies in ., whose files are read; choose another --to" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_file_that_was_added_is_not_passed_over(lines, tmp_path, capsys, monkeypatch):
    pairs = tmp_path / "pairs"
    pairs.mkdir()
    for code in ("fur", "kab"):
        shutil.copy(lines / f"train.{code}", pairs / f"fur-kab.{code}")
    words = ["start", str(pairs), "--to", f"{tmp_path}/out"]
    monkeypatch.setattr(start, "_trained", lambda *_: 0)
    assert main(words) == 0
    # The minutes have decided nothing yet.
    assert main([*words, "--minutes", "3"]) == 0
    for code in ("fur", "kab"):
        shutil.copy(lines / f"train.{code}", pairs / f"more.fur-kab.{code}")
    assert main(words) == 2
    assert "more.fur-kab.fur has changed since" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.skipif("XLINGJAX_DATA" not in os.environ, reason="XLINGJAX_DATA is not set")
def test_real_pairs_are_found_better_than_without_training(tmp_path):
    folder = Path(os.environ["XLINGJAX_DATA"]) / "pretrain/parallel/bible_nt"
    for code in ("en", "sw"):
        shutil.copy(folder / f"en-sw.{code}", tmp_path / f"verses.{code}")
    files = [str(tmp_path / f"verses.{code}") for code in ("en", "sw")]
    printed = on_one_device(["start", *files, "--to", str(tmp_path / "out")])
    (line,) = [one for one in printed.splitlines() if one.startswith("retrieval ")]
    assert "not above" not in line and float(line.split()[1]) > 95


def test_steps_are_those_that_fit_into_the_minutes(lines, tmp_path, monkeypatch):
    """By the speed of a trial, with a fifth of the time for all that is not a step."""
    launched = []
    speed = {"seconds_to_compile": 10.0, "seconds_per_step": 2.0}
    monkeypatch.setattr(start, "measured", lambda *_, **__: speed)
    monkeypatch.setattr(start, "launch", lambda recipe, *_: launched.append(recipe) or 1)
    pairs = tuple(f"{lines}/train.{code}" for code in ("kab", "fur"))
    request = start.Start(pairs, (), minutes=0.001, source=None)
    start._write_text(start.read_aligned(pairs, ()), tmp_path / "text", 0)
    until = time.monotonic() + 50
    assert start._trained(request, tmp_path, RuntimeConfig(), until) == 1
    # (0.8 * 50 - 10) / 2, less the seconds that have gone by.
    steps = launched[0].bound["steps"]
    assert 8 <= steps <= 15 and launched[0].bound["eval_every"] == -(-steps // 4)
