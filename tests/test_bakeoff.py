"""The bake-off runs each cell once, gives every mix its tokens, and loses nothing when it is stopped."""

import argparse
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from xlingjax import bakeoff, verbs
from xlingjax.errors import UserError
from xlingjax.report import bakeoff as told
from xlingjax.report import plots

MIXES = {
    "MLM": ["mlm.gin"],
    "MLM + TLM": ["both.gin", "TLM_WEIGHT=4", "STAGE_1_STEPS=0.667*STEPS", "CAMLM_WEIGHT={0: 2, 0.5*STEPS: 8}"],
}
TOKENS_A_STEP = {"MLM": 100, "MLM + TLM": 80}


@pytest.fixture
def commands(monkeypatch):
    """The commands that were run; each writes the result that its run would."""
    lines = []

    def run(line, **options):
        lines.append(line[3:])
        workdir = Path(line[line.index("--workdir") + 1])
        bindings = dict(word.removeprefix("--gin.").split("=", 1) for word in line if word.startswith("--gin."))
        if bindings.get("SEED") == "13":
            options["stdout"].write("error: unlucky\n")
            return subprocess.CompletedProcess(line, 2)
        steps = int(bindings.get("TRAIN_STEPS", 7))
        mix = "MLM + TLM" if "both.gin" in line else "MLM"
        values = {"test": 0.5 + 0.01 * int(bindings.get("SEED", 0))}
        evaluations = {
            "retrieval": {
                "retrieval_mean": values["test"],
                "by_layer": {
                    "mean": {n: {"raw_en_to_xx": r, "centred_en_to_xx": 2 * r} for n, r in (("0", 0.1), ("1", 0.2))}
                },
            },
            "alignment": {"alignment_error": 0.3, "by_layer": {"0": {"itermax": 0.4}, "1": {"itermax": 0.3}}},
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
        (workdir / "result.json").write_text(json.dumps(result))
        return subprocess.CompletedProcess(line, 0)

    monkeypatch.setattr(subprocess, "run", run)
    return lines


def configured(**options):
    return bakeoff.Bakeoff(**{"base": ["base.gin"], "mixes": MIXES, "seeds": (0, 1), "tokens": 12_000, **options})


def test_every_mix_reads_the_same_tokens_and_finished_cells_are_not_run_again(commands, tmp_path):
    found = bakeoff.run(configured(tasks={"nli": ["nli.gin"]}), tmp_path, read=" ".join, say=lambda line: None)
    assert [cell["figures"]["tokens"] for cell in found["cells"]] == [12_000] * 4
    assert len(commands) == 2 + 4 + 4  # calibration, pretraining, fine-tuning
    both = [line for line in commands if "both.gin" in line and "--gin.SEED=1" in line]
    assert both[0][:1] == ["pretrain"] and "--gin.TRAIN_STEPS=150" in both[0] and "--gin.STAGE_1_STEPS=100" in both[0]
    assert "--gin.CAMLM_WEIGHT={0: 2, 75: 8}" in both[0]
    tuned = [line for line in commands if line[0] == "finetune"]
    assert all(any(word.startswith("--gin.INIT_FROM=") for word in line) for line in tuned)
    done = len(commands)
    (tmp_path / "cells" / "mlm-1" / "nli" / "result.json").unlink()
    again = bakeoff.run(configured(tasks={"nli": ["nli.gin"]}), tmp_path, read=" ".join, say=lambda line: None)
    assert again == found and len(commands) == done + 1
    assert json.loads((tmp_path / "bakeoff.json").read_text())["cells"] == found["cells"]


def test_a_folder_of_other_settings_is_refused(commands, tmp_path):
    """Another learning rate would go on where the old one ended, and old figures would stand for the new mix."""
    told_nothing = {"read": "\n".join, "say": lambda line: None}
    bakeoff.run(configured(tasks={"nli": ["nli.gin"]}), tmp_path, **told_nothing)
    done = len(commands)
    other = {**MIXES, "MLM": ["mlm.gin", "LEARNING_RATE=1e-3"]}
    with pytest.raises(UserError, match="calibration/mlm was run with other settings.*LEARNING_RATE=1e-3.*delete that"):
        bakeoff.run(configured(mixes=other, tasks={"nli": ["nli.gin"]}), tmp_path, **told_nothing)
    shutil.rmtree(tmp_path / "calibration" / "mlm")
    shutil.rmtree(tmp_path / "cells" / "mlm-0" / "pretrain")
    with pytest.raises(UserError, match="cells/mlm-0/nli was run with other settings.*LEARNING_RATE"):
        bakeoff.run(configured(mixes=other, tasks={"nli": ["nli.gin"]}, seeds=(0,)), tmp_path, **told_nothing)
    assert len(commands) == done + 2  # neither the old classifier nor the rest


def test_a_row_is_mean_and_deviation_over_seeds(commands, tmp_path):
    found = bakeoff.run(configured(), tmp_path, read=" ".join, say=lambda line: None)
    mean, deviation = told.by_mix(found["cells"])["MLM"]["retrieval"]
    assert mean == pytest.approx(0.505) and deviation == pytest.approx(0.01 / 2**0.5)
    assert told.shown("retrieval", (mean, deviation)) == "0.505 ± 0.007"
    assert told.shown("tokens", (12_000.0, 0.0)) == "12,000" and told.shown("retrieval", None) == "–"
    assert found["cells"][0]["retrieval_by_layer"] == {"raw": {"0": 0.1, "1": 0.2}, "centred": {"0": 0.2, "1": 0.4}}
    assert found["cells"][0]["alignment_error_by_layer"] == {"0": 0.4, "1": 0.3}


def test_the_page_shows_every_mix_its_pictures_and_what_each_objective_takes(commands, tmp_path):
    found = bakeoff.run(configured(tasks={"nli": ["nli.gin"]}, jobs=2), tmp_path, read=" ".join, say=lambda line: None)
    assert [(cell["mix"], cell["seed"]) for cell in found["cells"]] == [(m, s) for s in (0, 1) for m in MIXES]
    page = told.write(found, tmp_path).read_text()
    assert page.count("<svg") == 2 and "0.505 ± 0.007" in page
    assert told.objectives_table(found["cells"]) == (
        ["mix", "mlm", "tlm"], [["MLM", "12 (1.00 x)", "–"], ["MLM + TLM", "12 (1.00 x)", "8 (1.50 x)"]]
    )  # fmt: skip
    line = next(line for line in (tmp_path / "bakeoff.md").read_text().splitlines() if line.startswith("| MLM |"))
    assert line == "| MLM | 0.505 ± 0.007 | 0.300 | 0.250 | 0.900 | 0.505 ± 0.007 | 12,000 | 10 |"
    assert {path.name for path in tmp_path.glob("*.png")} == {"layers.png", "masked_accuracy.png"}


def test_the_page_says_what_the_mixes_share(commands, tmp_path):
    many = {f"mix {i}": ["mlm.gin"] for i in range(len(plots.LANGUAGE_COLOURS) + 1)}  # more than there are colours
    found = bakeoff.run(configured(mixes=many, seeds=(0,), tokens=0), tmp_path, " ".join, say=lambda line: None)
    page = told.write(found, tmp_path).read_text()
    assert "trains for the steps of its recipe" in page and "as many tokens" not in page
    assert "reads as many tokens" in told.note({"config": {"tokens": 12_000}})


def test_devices_and_platform_reach_every_run(commands, tmp_path):
    args = argparse.Namespace(platform="cpu", devices=8, workdir=str(tmp_path))

    def read_recipe(files, overrides):
        return verbs.Recipe({}, None, f"{files}, {overrides}")

    assert verbs.bakeoff(args, configured(seeds=(0,), tasks={"nli": ["nli.gin"]}), read_recipe) == 0
    settings = (tmp_path / "cells" / "mlm-0" / "pretrain" / "bakeoff.settings").read_text()
    assert settings == "['base.gin', 'mlm.gin'], ['SEED=0', 'TRAIN_STEPS=120']"
    given = ["--platform", "cpu", "--devices", "8"]
    assert len(commands) == 6 and all(any(line[i : i + 4] == given for i in range(6)) for line in commands)


def test_a_failed_run_is_named_with_its_log(commands, tmp_path):
    with pytest.raises(UserError, match=r"cells/mlm-13/pretrain ended with status 2 \(error: unlucky\).*pretrain.log"):
        bakeoff.run(configured(seeds=(13, 0)), tmp_path, read=" ".join, say=lambda line: None)
    assert len(commands) == 2 + 1  # no other cell was begun


def test_refusals(tmp_path):
    with pytest.raises(UserError, match="at least one mix"):
        configured(mixes={})
    with pytest.raises(UserError, match="two mixes would share a folder"):
        configured(mixes={"MLM + TLM": [], "mlm_tlm": []})
    with pytest.raises(UserError, match="set bakeoff.tokens"):
        bakeoff.command("pretrain", ["STAGE_1_STEPS=0.5*STEPS"], tmp_path, None)
