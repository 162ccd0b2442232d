"""What a table will train, before anything is trained."""

import re
import shutil

import pytest

from tests.helpers import sweeping
from tests.helpers.sweeping import LANGUAGES, random_run
from xlingjax.cli import main
from xlingjax.errors import UserError
from xlingjax.training.run_record import read_run_record
from xlingjax.workflows.tables import dry_run
from xlingjax.workflows.tables.table import Table

files, start = sweeping.files, sweeping.start
# Of the tiny run: XNLI has 24 examples in three languages, dev and test of 12 each.
SHORT = ["LENGTH=24", "SELECT=en", "TEST_LANGUAGES=en ru", "DEV_LANGUAGES=en"]
ASKED = ["LENGTH=64", "MAX_QUESTION=20", "SELECT=en", "TEST_LANGUAGES=en de"]
ASKED.append("DEV_LANGUAGES=en")
XNLI = {"task": "xtreme/xnli", "settings": SHORT}


def planned(rows, encoders, files, tmp_path, **more):
    table = Table(rows, encoders, **more)
    return dry_run.planned(table, files / "xtreme", tmp_path / "out", 8)


def test_a_cell_is_its_rows_steps_and_operations(start, files, tmp_path):
    rows = {
        "xnli": XNLI | {"grid": {"BATCH": "8,12", "EPOCHS": "1,2"}},
        "translated": XNLI | {"strategy": "translate_train", "languages": "de ru"},
    }
    plan = planned(rows, {"e": str(start)}, files, tmp_path, seeds=2)
    assert not plan.faults and not (tmp_path / "out").exists()
    found = {one.name: one for one in plan.trainings}
    assert len(found) == 4 + 2 and {one.times for one in plan.trainings} == {2}
    cell = found["e, xnli: xtreme/xnli/transfer/BATCH=12/EPOCHS=2"]
    # 24 examples twice, 12 at a time.
    assert (cell.steps, cell.batch) == (4, 12)
    assert cell.reads == "24 training examples, dev of 1, test of 2"
    model = read_run_record(start)["model"]
    block = 8 * model["dim"] ** 2 + 4 * model["dim"] * (model["ffn"] + 24)
    assert cell.flops == 4 * 12 * 24 * 3 * model["layers"] * block
    assert "e, translated: xtreme/xnli/translate_train/ru" in found
    assert any("BATCH=12 trains on 6 of 8 devices" in note for note in plan.notes)


def test_all_that_is_wrong_is_listed_at_once_and_nothing_is_trained(start, files, tmp_path, capsys):
    rows = {
        "fine": XNLI,
        "no file": {"task": "xtreme/pawsx", "settings": ["LENGTH=24"]},
        "too long": XNLI | {"settings": [*SHORT, "LENGTH=1000"]},
        "no such": XNLI | {"settings": [*SHORT, "EPOCHS=0"]},
        "apart": XNLI | {"settings": [*SHORT, "BATCH=3", "MICROBATCHES=2"]},
        "warm-up": XNLI | {"settings": [*SHORT, "WARMUP_SHARE=None", "WARMUP_STEPS=500"]},
        "layer": {"task": "xtreme/tatoeba", "layer": 19},
        "other run": XNLI | {"encoders": "gone"},
    }
    encoders = {"e": str(start), "gone": str(tmp_path / "nothing")}
    for name in ("fine", "no file", "too long", "no such", "apart", "warm-up", "layer"):
        rows[name] = rows[name] | {"encoders": "e"}
    plan = planned(rows, encoders, files, tmp_path)
    assert [one.name for one in plan.trainings] == ["e, fine: xtreme/xnli/transfer"]
    said = [
        r"e, no file: xtreme/pawsx: no test set of .* below .*xtreme: get them",
        r"e, too long: LENGTH=1000: such rows do not fit the 64 positions",
        r"e, no such: EPOCHS=0: a number above 0 is needed",
        r"e, apart: BATCH=3 does not divide by .* x MICROBATCHES=2",
        r"e, warm-up: warmup_steps=500 leaves nothing of steps=\d+ for a linear decay: lower",
        r"e, layer: .*layer 19: this model has layers 0 .* to 1",
        r"gone, other run: missing file: .*nothing/run.json",
    ]
    assert len(plan.faults) == len(said)
    for pattern in said:
        assert any(re.match(pattern, fault) for fault in plan.faults), (pattern, plan.faults)
    with pytest.raises(UserError, match="7 of its rows cannot be run .*nothing was trained"):
        plan.require_sound()
    assert dry_run.show(plan) == 1
    printed = capsys.readouterr().out
    assert "1 trainings, 1 measured rows and commands, 7 refused; " in printed


def test_test_sets_that_are_not_there_are_passed_over_where_that_is_allowed(start, files, tmp_path):
    rows = {
        "xnli": XNLI | {"settings": [*SHORT, "TEST_LANGUAGES=all"]},
        "bucc": {"task": "xtreme/bucc2018"},
    }
    encoders = {"e": str(start)}
    shutil.copytree(files / "xtreme", tmp_path / "xtreme")
    shutil.rmtree(tmp_path / "xtreme/bucc2018")
    files = tmp_path
    # Retrieval is never measured on languages that are not there, but on some it must be.
    none = "e, bucc: xtreme/bucc2018: no test or dev files below "
    plan = planned(rows, encoders, files, tmp_path)
    missing, measured = plan.faults
    assert missing.startswith("e, xnli: xtreme/xnli: no test set of ar, bg, ")
    assert measured.startswith(none)
    plan = planned(rows, encoders, files, tmp_path, allow_missing=True)
    assert len(plan.faults) == 1 and plan.faults[0].startswith(none)
    assert plan.trainings[0].reads == "24 training examples, dev of 1, test of 3"
    command = Table(rows, encoders, allow_missing=True).command("e", "xnli", files, tmp_path)
    assert "--allow-missing" in command


def test_a_sweep_from_an_encoder_that_the_table_trains(files, tmp_path):
    """Neither its run nor its vocabulary is in its place yet."""
    text = (files / "told/mono").as_posix()
    vocabulary = random_run(tmp_path, files)
    encoder = {
        "recipe": "recipes/xlm_tiny_mlm.gin",
        "settings": [
            f"MONO={text}/*.txt",
            f"VOCABULARY={vocabulary}",
            "PARALLEL=None",
            "LANGUAGES=" + " ".join(LANGUAGES),
            "HELDOUT_TEXT=None",
            "HELDOUT_PAIRS=None",
            "TRAIN_STEPS=7",
            "WARMUP_STEPS=2",
        ],
    }
    settings = encoder["settings"]
    plan = planned({"xnli": XNLI}, {"own": encoder | {"settings": settings}}, files, tmp_path)
    assert plan.faults == []
    trained, cell = plan.trainings
    assert (trained.name, trained.steps, trained.reads) == ("encoder own", 7, "mlm")
    assert cell.name == "own, xnli: xtreme/xnli/transfer" and cell.flops > 0
    gone = [one.replace("/*.txt", "/*.gone") for one in settings]
    plan = planned({"xnli": XNLI}, {"own": encoder | {"settings": gone}}, files, tmp_path)
    assert any("encoder own: " in fault and "*.gone" in fault for fault in plan.faults)


def test_tasks_of_one_training_set_are_one_training(start, files, tmp_path):
    together = {"task": ["xtreme/xquad", "xtreme/mlqa"], "settings": ASKED}
    plan = planned({"squad": together}, {"e": str(start)}, files, tmp_path)
    assert plan.faults == []
    assert [one.name for one in plan.trainings] == ["e, squad: xtreme/transfer/mlqa+xquad"]
    assert plan.trainings[0].reads == "24 training examples, dev of 2, test of 4"


def test_the_name_of_a_table(capsys):
    words = ["--data", "d", "--to", "o"]
    assert main.main(["table", "xlm1", *words]) == 2
    assert "table xlm1: there are ernie_m_1, " in capsys.readouterr().err
    assert main.main(["table", "xlm_1", *words]) == 2
    assert "ENCODERS is not set" in capsys.readouterr().err


def test_what_training_refuses_at_its_start_is_refused_here(files, tmp_path):
    """Of a row of no encoder too: one that ends early by what nothing measures."""
    row = {
        "recipe": "recipes/xlm_tiny_mlm.gin",
        "settings": [
            f"MONO={(files / 'told/mono').as_posix()}/*.txt",
            f"VOCABULARY={random_run(tmp_path, files)}",
            "HELDOUT_TEXT=None",
            "HELDOUT_PAIRS=None",
            "PARALLEL=None",
            "LANGUAGES=de en ru",
            "EVAL_EVERY=2",
            "PATIENCE=3",
            "STOP_METRIC=perplexity/mean",
        ],
    }
    plan = planned({"clm": row}, {}, files, tmp_path)
    [fault] = plan.faults
    assert fault.startswith("clm: STOP_METRIC=perplexity/mean is of no evaluator of")
    assert "there is none: set HELDOUT_TEXT" in fault
