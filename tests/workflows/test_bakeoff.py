"""The bake-off runs each cell once, gives every mix its tokens, and loses nothing when it is
stopped."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers.files import write
from xlingjax.cli import bakeoff as verb
from xlingjax.cli import main
from xlingjax.config import recipe as recipes
from xlingjax.data.vocabulary.training import train_vocabulary
from xlingjax.errors import Stopped, UserError
from xlingjax.report import drawing
from xlingjax.runtime.files import write_json
from xlingjax.workflows import bakeoff, many
from xlingjax.workflows import bakeoff_page as told
from xlingjax.workflows.bakeoff_figures import summary

MIXES = {
    "MLM": ["mlm.gin"],
    "MLM + TLM": [
        "both.gin",
        "TLM_WEIGHT=4",
        "STAGE_1_STEPS=0.667*STEPS",
        "CAMLM_WEIGHT={0: 2, 0.5*STEPS: 8}",
    ],
}
TOKENS_A_STEP = {"MLM": 100, "MLM + TLM": 80}
SEED = "--gin.SEED=0"
HASHES = {"de": "a" * 64, "rows": "b" * 64}
"""Of what pretraining and fine-tuning read."""


@pytest.fixture
def commands(monkeypatch):
    """The commands that were run; each writes the result that its run would."""
    lines = []

    def run(line, **options):
        """The exit status."""
        lines.append(line[3:])
        workdir = Path(line[line.index("--workdir") + 1])
        bindings = dict(
            word.removeprefix("--gin.").split("=", 1) for word in line if word.startswith("--gin.")
        )
        if bindings.get("SEED") == "13":
            options["stdout"].write("error: unlucky\n")
            return 2
        steps = int(bindings.get("TRAIN_STEPS", 7))
        mix = "MLM + TLM" if "both.gin" in line else "MLM"
        values = {"test": 0.5 + 0.01 * int(bindings.get("SEED", 0))}
        evaluations = {
            "retrieval": {
                "retrieval_mean": values["test"],
                "by_layer": {
                    "mean": {
                        n: {"raw_en_to_xx": r, "centred_en_to_xx": 2 * r}
                        for n, r in (("0", 0.1), ("1", 0.2))
                    }
                },
            },
            "alignment": {
                "alignment_error": 0.3,
                "by_layer": {"0": {"itermax": 0.4}, "1": {"itermax": 0.3}},
            },
            "perplexity": {"accuracy_mean": 0.25, "accuracy_by_language": {"de": 0.2, "en": 0.3}},
            "nli_test": {"en": 0.9, "mean_other": values["test"]},
        }
        by_objective = {"mlm": 12.0} | ({"tlm": 8.0} if mix != "MLM" else {})
        result = {
            "exit_reason": "finished",
            "tokens_seen": steps * TOKENS_A_STEP[mix],
            "tokens_per_second": 10.0,
            "tokens_per_second_by_objective": by_objective,
            "evaluations": evaluations,
        }
        workdir.mkdir(parents=True, exist_ok=True)
        text = {language: value for language, value in HASHES.items() if language != "rows"}
        data = (
            {"nli": {"sha256": HASHES["rows"]}}
            if line[3] == "finetune"
            else {"mlm": {"text": text}}
        )
        write_json(workdir / "run.json", {"identity": {"data": data}})
        write_json(
            workdir / "result.json", result
        )  # whole, as a run's: other cells read it meanwhile
        return 0

    class Process:
        def __init__(self, line, **options):
            self.status = run(line, **options)

        def poll(self):
            return self.status

        wait = poll

    # Only the bake-off's own: matplotlib starts a process to find fonts where it has no list of
    # them yet.
    fake = SimpleNamespace(Popen=Process, DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT)
    monkeypatch.setattr(many, "subprocess", fake)
    return lines


def configured(**options):
    return bakeoff.Bakeoff(
        **{"base": ["base.gin"], "mixes": MIXES, "seeds": (0, 1), "tokens": 12_000, **options}
    )


def test_every_mix_reads_the_same_tokens_and_finished_cells_are_not_run_again(commands, tmp_path):
    found = bakeoff.run(
        configured(tasks={"nli": ["nli.gin"]}), tmp_path, read=" ".join, say=lambda line: None
    )
    assert [cell["figures"]["tokens"] for cell in found["cells"]] == [12_000] * 4
    assert len(commands) == 2 + 4 + 4  # calibration, pretraining, fine-tuning
    both = [line for line in commands if "both.gin" in line and "--gin.SEED=1" in line]
    assert (
        both[0][:1] == ["pretrain"]
        and "--gin.TRAIN_STEPS=150" in both[0]
        and "--gin.STAGE_1_STEPS=100" in both[0]
    )
    assert "--gin.CAMLM_WEIGHT={0: 2, 75: 8}" in both[0]
    tuned = [line for line in commands if line[0] == "finetune"]
    assert all(any(word.startswith("--gin.INIT_FROM=") for word in line) for line in tuned)
    done = len(commands)
    (tmp_path / "cells" / "mlm-1" / "nli" / "result.json").unlink()
    again = bakeoff.run(
        configured(tasks={"nli": ["nli.gin"]}), tmp_path, read=" ".join, say=lambda line: None
    )
    assert again == found and len(commands) == done + 1
    assert json.loads((tmp_path / "bakeoff.json").read_text())["cells"] == found["cells"]


@pytest.mark.parametrize(
    "mixes",
    [
        ["--gin.MIXES={'spans': ['recipes/xdae_tiny.gin', 'objectives/span_corruption.gin']}"],
        pytest.param([], marks=pytest.mark.long),
    ],
    ids=["spans", "all"],
)
def test_encoder_decoders_are_compared_by_their_own_recipe(commands, tmp_path, monkeypatch, mixes):
    """Whose evaluations read no held-out text: gin itself says what each run may be told."""
    german = "Der Hund schläft im Haus.\nDie Katze trinkt Milch.\n" * 9
    text = write(tmp_path / "mono/de.txt", german)
    # The recipe's own pairs, as `make pretrain` writes them: some mixes read none.
    pairs = tmp_path / "runs/demo/data/parallel"
    write(pairs / "de-en.de", german)
    write(pairs / "de-en.en", "The dog sleeps at home.\nThe cat drinks milk.\n" * 9)
    monkeypatch.chdir(tmp_path)
    train_vocabulary(tmp_path / "vocab", mono=[str(text)], size=40)
    base = ["EVAL_EVERY=0", f"MONO='{text}'", f"VOCABULARY='{tmp_path}/vocab'"]
    words = ["bakeoff", "--gin_file", "gin/recipes/bakeoff_seq2seq.gin"]
    words += ["--workdir", str(tmp_path / "out"), f"--gin.BASE={base}"]
    words += [
        "--gin.TASKS={}",
        "--gin.TASKS_OF={}",
        "--gin.SEEDS=(0,)",
        "--gin.TOKENS=12000",
        *mixes,
    ]
    assert main.main(words) == 0
    assert len(commands) == (2 if mixes else 12)
    spans = [line for line in commands if "objectives/span_corruption.gin" in line]
    first, whole = spans
    assert "--gin.TRAIN_STEPS=60" in first and "--gin.TRAIN_STEPS=120" in whole
    held_out = [word for word in first if word.startswith("--gin.HELDOUT")]
    assert held_out == ["--gin.HELDOUT_PAIRS=None"]


def test_a_mix_has_words_of_its_own_for_a_task(commands, tmp_path):
    """Nothing but those words says where its run goes, where they say it."""
    found = bakeoff.run(
        configured(
            tasks={"nli": ["nli.gin"]},
            tasks_of={"MLM + TLM": {"nli": ["mt.gin", "INIT_ENCODER={encoder}", "A={b}"]}},
            seeds=(0,),
        ),
        tmp_path,
        read=" ".join,
        say=lambda line: None,
    )
    cells = tmp_path / "cells"
    first, second = [line[3:] for line in commands if line[0] == "finetune"]
    assert first == ["--gin_file", "nli.gin", f"--gin.INIT_FROM={cells}/mlm-0/pretrain", SEED]
    start = f"--gin.INIT_ENCODER={cells}/mlm_tlm-0/pretrain"
    assert second == ["--gin_file", "mt.gin", start, "--gin.A={b}", SEED]
    assert len(found["cells"]) == 2


@pytest.mark.parametrize(
    "tasks_of, refused",
    [
        (
            {"MLM+TLM": {"nli": []}},
            r"'MLM\+TLM' is no mix; there are MLM, MLM \+ TLM: set TASKS_OF",
        ),
        ({"MLM": {"nil": []}}, "'nil' is no task; there are nli"),
    ],
)
def test_a_misspelt_mix_or_task_of_its_own_is_refused(tasks_of, refused):
    with pytest.raises(UserError, match=refused):
        configured(tasks={"nli": ["nli.gin"]}, tasks_of=tasks_of)


def test_figures_are_those_of_the_test_set():
    """Of labels accuracy in English and elsewhere, of texts BLEU in the same way, of translations
    BLEU over all directions."""
    bleu = {"bleu_mean": 30.0, "bleu_trained": 60.0, "bleu_others": 20.0}
    cell = {
        "mix": "VECO",
        "seed": 0,
        "pretrain": {"tokens_seen": 7, "tokens_per_second": 1.0, "evaluations": {}},
        "tasks": {
            "nli": {"nli_dev": {"en": 0.1}, "nli_test": {"en": 0.9, "mean_other": 0.5}},
            "titles": {"generation_dev": {"bleu_mean": 1.0}, "generation_test": bleu},
            "translation": {"generation_test": {"bleu_mean": 36.0}},
        },
    }
    figures = summary(cell)["figures"]
    assert figures == {
        "nli_en": 0.9,
        "nli_other": 0.5,
        "titles_en": 60.0,
        "titles_other": 20.0,
        "translation": 36.0,
        "tokens": 7,
        "tokens_per_second": 1.0,
    }


def test_a_folder_of_other_settings_is_refused(commands, tmp_path):
    """Another learning rate would go on where the old one ended, and old figures would stand for
    the new mix."""
    told_nothing = {"read": "\n".join, "say": lambda line: None}
    bakeoff.run(configured(tasks={"nli": ["nli.gin"]}), tmp_path, **told_nothing)
    done = len(commands)
    other = {**MIXES, "MLM": ["mlm.gin", "LEARNING_RATE=1e-3"]}
    with pytest.raises(
        UserError,
        match="calibration/mlm was run with other settings.*LEARNING_RATE=1e-3.*delete that",
    ):
        bakeoff.run(configured(mixes=other, tasks={"nli": ["nli.gin"]}), tmp_path, **told_nothing)
    shutil.rmtree(tmp_path / "calibration" / "mlm")
    shutil.rmtree(tmp_path / "cells" / "mlm-0" / "pretrain")
    with pytest.raises(
        UserError, match="cells/mlm-0/nli was run with other settings.*LEARNING_RATE"
    ):
        bakeoff.run(
            configured(mixes=other, tasks={"nli": ["nli.gin"]}, seeds=(0,)),
            tmp_path,
            **told_nothing,
        )
    assert len(commands) == done + 2  # neither the old classifier nor the rest


def test_seeds_of_one_mix_that_read_other_data_are_refused(commands, monkeypatch, tmp_path):
    """Files that changed under the same name: figures of old and new text would stand in one
    table."""

    def run(seeds):
        bakeoff.run(configured(seeds=seeds, tasks={"nli": ["nli.gin"]}), tmp_path, " ".join, print)

    run((0,))
    monkeypatch.setitem(HASHES, "de", "d" * 64)
    run((0,))  # what is finished stays
    refused = (
        r"mlm-1/pretrain has read other data than \S*mlm-0/pretrain \(mlm, de: dddd.*, there aaaa"
    )
    for jobs in (
        len(commands) + 2,
        len(commands) + 2,
    ):  # found when the cell is done, and before the next is begun
        with pytest.raises(UserError, match=refused):
            run((0, 1))
        assert len(commands) == jobs
    monkeypatch.setitem(HASHES, "de", "a" * 64)
    shutil.rmtree(tmp_path / "cells" / "mlm-1")
    monkeypatch.setitem(HASHES, "fr", "f" * 64)  # text of another language beside it
    with pytest.raises(
        UserError,
        match=r"mlm-1/pretrain has read other data than \S*mlm-0/pretrain \(mlm, fr: ffff",
    ):
        run((0, 1))
    monkeypatch.delitem(HASHES, "fr")
    monkeypatch.setitem(HASHES, "rows", "c" * 64)
    shutil.rmtree(tmp_path / "cells" / "mlm-1")
    with pytest.raises(
        UserError, match=r"mlm-1/nli has read other data than \S*mlm-0/nli \(nli, examples: cccc"
    ):
        run((0, 1))


CHILD = """
import pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
def leave(*_):
    (folder / "saved").touch()
    sys.exit(75)
signal.signal(signal.SIGTERM, leave)
signal.alarm(60)  # no orphan outlives a failed test
(folder / "begun").touch()
signal.pause()
"""
PARENT = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
from xlingjax.workflows import bakeoff
from xlingjax.errors import Stopped
bakeoff.command = lambda verb, words, workdir, *_: [sys.executable, "-c", {CHILD!r}, str(workdir)]
try:
    mixes = {{"a": [], "b": [], "c": []}}
    bakeoff.run(bakeoff.Bakeoff(base=[], mixes=mixes, jobs=2), sys.argv[1], lambda line: "")
except Stopped as stopped:
    sys.exit(str(stopped))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_runs_save_and_end_with_the_bakeoff(number, tmp_path):
    """An orphan would go on in the workdir in which the same command then starts a second
    process."""

    def wait_for(name):
        until = time.monotonic() + 60
        while (
            len(
                found := sorted(
                    path.parts[-3] for path in tmp_path.glob(f"cells/*/pretrain/{name}")
                )
            )
            < 2
        ):
            assert time.monotonic() < until, f"{name}: {found}"
            time.sleep(0.05)
        return found

    line = [sys.executable, "-c", PARENT, tmp_path]
    parent = subprocess.Popen(line, start_new_session=True, stderr=subprocess.PIPE, text=True)
    try:
        wait_for("begun")
        os.killpg(parent.pid, number)  # as Ctrl-C does
        assert "stopped; the same command goes on" in parent.communicate(timeout=60)[1]
    finally:
        parent.kill()
    assert wait_for("saved") == wait_for("begun") == ["a-0", "b-0"]


def test_being_asked_to_stop_is_status_75(monkeypatch, tmp_path, capsys):
    def stopped(*_, **__):
        raise Stopped("bakeoff: stopped; the same command goes on")

    monkeypatch.setattr(bakeoff, "run", stopped)
    assert (
        main.main(["bakeoff", "--gin_file", "gin/recipes/bakeoff.gin", "--workdir", str(tmp_path)])
        == 75
    )
    assert capsys.readouterr().err == "bakeoff: stopped; the same command goes on\n"


def test_a_row_is_mean_and_deviation_over_seeds(commands, tmp_path):
    found = bakeoff.run(configured(), tmp_path, read=" ".join, say=lambda line: None)
    mean, deviation = told.by_mix(found["cells"])["MLM"]["retrieval"]
    assert mean == pytest.approx(0.505) and deviation == pytest.approx(0.01 / 2**0.5)
    assert told.shown("retrieval", (mean, deviation)) == "0.505 ± 0.007"
    assert (
        told.shown("tokens", (12_000.0, 0.0)) == "12,000" and told.shown("retrieval", None) == "–"
    )
    assert found["cells"][0]["retrieval_by_layer"] == {
        "raw": {"0": 0.1, "1": 0.2},
        "centred": {"0": 0.2, "1": 0.4},
    }
    assert found["cells"][0]["alignment_error_by_layer"] == {"0": 0.4, "1": 0.3}


def test_the_page_shows_every_mix_its_pictures_and_what_each_objective_takes(commands, tmp_path):
    found = bakeoff.run(
        configured(tasks={"nli": ["nli.gin"]}, jobs=2),
        tmp_path,
        read=" ".join,
        say=lambda line: None,
    )
    assert [(cell["mix"], cell["seed"]) for cell in found["cells"]] == [
        (m, s) for s in (0, 1) for m in MIXES
    ]
    page = told.write(found, tmp_path).read_text()
    assert page.count("<svg") == 4 and "0.505 ± 0.007" in page
    assert told.objectives_table(found["cells"]) == (
        ["mix", "mlm", "tlm"],
        [["MLM", "12 (1.00 x)", "–"], ["MLM + TLM", "12 (1.00 x)", "8 (1.50 x)"]],
    )
    line = next(
        line
        for line in (tmp_path / "bakeoff.md").read_text().splitlines()
        if line.startswith("| MLM |")
    )
    assert line == "| MLM | 0.505 ± 0.007 | 0.300 | 0.250 | 0.900 | 0.505 ± 0.007 | 12,000 | 10 |"
    assert {path.name for path in tmp_path.glob("*.png")} == {"layers.png", "masked_accuracy.png"}


def test_the_page_says_what_the_mixes_share(commands, tmp_path):
    many = {
        f"mix {i}": ["mlm.gin"] for i in range(len(drawing.COLOURS) + 1)
    }  # more than there are colours
    found = bakeoff.run(
        configured(mixes=many, seeds=(0,), tokens=0), tmp_path, " ".join, say=lambda line: None
    )
    page = told.write(found, tmp_path).read_text()
    assert "trains for the steps of its recipe" in page and "as many tokens" not in page
    assert "reads as many tokens" in told.note({"config": {"tokens": 12_000}})


def test_devices_and_platform_reach_every_run(commands, tmp_path, monkeypatch):
    args = argparse.Namespace(
        platform="cpu", devices=8, workdir=str(tmp_path), gin_file=[], overrides=[]
    )
    request = configured(seeds=(0,), tasks={"nli": ["nli.gin"]})
    monkeypatch.setattr(recipes, "read_part", lambda *_: request)
    monkeypatch.setattr(
        recipes,
        "read_recipe",
        lambda files, overrides: recipes.Recipe({}, None, f"{files}, {overrides}"),
    )
    monkeypatch.setattr(recipes, "parse_gin", lambda *_: None)
    assert verb.run(args) == 0
    settings = (tmp_path / "cells" / "mlm-0" / "pretrain" / "bakeoff.settings").read_text()
    assert settings == "['base.gin', 'mlm.gin'], ['SEED=0', 'TRAIN_STEPS=120']"
    given = ["--platform", "cpu", "--devices", "8"]
    assert len(commands) == 6 and all(
        any(line[i : i + 4] == given for i in range(6)) for line in commands
    )


def test_a_failed_run_is_named_with_its_log(commands, tmp_path):
    with pytest.raises(
        UserError,
        match=r"cells/mlm-13/pretrain ended with status 2 \(error: unlucky\).*pretrain.log",
    ):
        bakeoff.run(configured(seeds=(13, 0)), tmp_path, read=" ".join, say=lambda line: None)
    assert len(commands) == 2 + 1  # no other cell was begun


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"MIXES": {"a": [], "b": ["TLM_WEIHGT=2"]}}, "mix 'b': --gin.TLM_WEIHGT: this recipe has"),
        ({"MIXES": {"a": [], "b": ["objectives/mlmm.gin"]}}, "mix 'b': missing file: "),
        (
            {"TASKS": {"nli": ["recipes/nli_tiny.gin", "LEARNING_RAET=2e-3"]}},
            "task 'nli' of mix 'MLM': --gin.LEARNING_RAET: this recipe has no macro",
        ),
        ({"TASKS": {"nli": []}}, "task 'nli' of mix 'MLM': no recipe: pass --gin_file"),
        (
            {"TASKS_OF": {"VECO": {"nli": ["recipes/nli_tiny.gin", "BATCH=x"]}}},
            "task 'nli' of mix 'VECO': --gin.BATCH=x: a number is needed, like 32",
        ),
        ({"TASKS": {"pretrain": ["recipes/nli_tiny.gin"]}}, "cannot be called 'pretrain'"),
        ({"TASKS": {"../x": ["recipes/nli_tiny.gin"]}}, "cannot be called '../x'"),
        ({"SEEDS": (0, 1, 0)}, "SEEDS=(0, 1, 0) has one twice"),
        ({"MIXES": {"混合": []}, "TASKS_OF": {}}, "a mix cannot be called '混合'"),
        (
            {"TASKS": {"nli": ["recipes/nli_tiny.gin", "INIT_FROM={encodr}"]}},
            "task 'nli' has INIT_FROM={encodr}: did you mean {encoder}?",
        ),
    ],
)
def test_every_word_is_read_before_anything_is_trained(commands, tmp_path, capsys, given, said):
    words = [f"--gin.{name}={value}" for name, value in given.items()]
    line = ["bakeoff", "--gin_file", "recipes/bakeoff.gin", "--workdir", str(tmp_path / "out")]
    assert main.main([*line, *words]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert said in error
    assert commands == [] and not (tmp_path / "out").exists()


def test_refusals(tmp_path):
    with pytest.raises(UserError, match="at least one mix"):
        configured(mixes={})
    with pytest.raises(UserError, match="two mixes would share a folder"):
        configured(mixes={"MLM + TLM": [], "mlm_tlm": []})
    with pytest.raises(UserError, match="set bakeoff.tokens"):
        bakeoff.command("pretrain", ["STAGE_1_STEPS=0.5*STEPS"], tmp_path, None)
