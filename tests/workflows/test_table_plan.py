"""What a table will train, before anything is trained."""

import re
import shutil

import pytest

from tests.helpers import sweeping
from tests.helpers.sweeping import LANGUAGES, random_run
from xlingjax.cli import main
from xlingjax.config.recipe import read_recipe
from xlingjax.errors import UserError
from xlingjax.training.run_record import read_run_record
from xlingjax.workflows.tables import dry_run
from xlingjax.workflows.tables.smoke import smoked
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
    model = read_run_record(start)["model"]
    block = 8 * model["dim"] ** 2 + 4 * model["dim"] * (model["ffn"] + 24)
    # And the head of three classes.
    assert cell.flops == pytest.approx(4 * 12 * 24 * 3 * model["layers"] * block, rel=0.05)
    assert "e, translated: xtreme/xnli/translate_train/ru" in found


def test_all_that_is_wrong_is_listed_at_once_and_nothing_is_trained(start, files, tmp_path, capsys):
    faults = {
        "no file": (["LENGTH=24"], "xtreme/pawsx: no test set of .* below .*xtreme: get them"),
        "too long": ([*SHORT, "LENGTH=1000"], "LENGTH=1000: such rows do not fit the 64 pos"),
        "no such": ([*SHORT, "EPOCHS=0"], "EPOCHS=0: a number above 0 is needed"),
        "apart": ([*SHORT, "BATCH=3", "MICROBATCHES=2"], "BATCH=3 does not divide by "),
        "warm-up": (
            [*SHORT, "WARMUP_STEPS=500"],
            r"a warm-up of 500 and a decay of 1 do not fit into \d+ steps: lower",
        ),
    }
    rows = {"fine": XNLI} | {name: XNLI | {"settings": of} for name, (of, _) in faults.items()}
    rows["no file"] = rows["no file"] | {"task": "xtreme/pawsx"}
    rows["layer"] = {"task": "xtreme/tatoeba", "layer": 19}
    rows = {name: row | {"encoders": "e"} for name, row in rows.items()}
    rows["other run"] = XNLI | {"encoders": "gone"}
    encoders = {"e": str(start), "gone": str(tmp_path / "nothing")}
    plan = planned(rows, encoders, files, tmp_path)
    assert [one.name for one in plan.trainings] == ["e, fine: xtreme/xnli/transfer"]
    said = [f"e, {name}: {fault}" for name, (_, fault) in faults.items()]
    said.append(r"e, layer: .*layer 19: this model has layers 0 .* to 1")
    said.append(r"gone, other run: missing file: .*nothing/run.json")
    for pattern, fault in zip(said, plan.faults, strict=True):
        assert re.match(pattern, fault)
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
    shutil.copytree(files / "xtreme", tmp_path / "xtreme")
    shutil.rmtree(tmp_path / "xtreme/bucc2018")
    plan = planned(rows, {"e": str(start)}, tmp_path, tmp_path)
    missing, measured = plan.faults
    assert missing.startswith("e, xnli: xtreme/xnli: no test set of ar, bg, ")
    # Retrieval is never measured on languages that are not there, but on some it must be.
    assert measured.startswith("e, bucc: xtreme/bucc2018: no test or dev files below ")
    plan = planned(rows, {"e": str(start)}, tmp_path, tmp_path, allow_missing=True)
    assert plan.faults == [measured] and len(plan.trainings) == 1


def own_text(files, tmp_path):
    """Settings of a pretraining on the text of `files`, by a vocabulary of its own."""
    sizes = ["PARALLEL=None", "HELDOUT_TEXT=None", "HELDOUT_PAIRS=None"]
    sizes.append(f"LANGUAGES={' '.join(LANGUAGES)}")
    text = (files / "told/mono").as_posix()
    return [f"MONO={text}/*.txt", f"VOCABULARY={random_run(tmp_path, files)}", *sizes]


def test_a_sweep_from_an_encoder_that_the_table_trains(files, tmp_path):
    """Neither its run nor its vocabulary is in its place yet."""
    settings = [*own_text(files, tmp_path), "TRAIN_STEPS=7", "WARMUP_STEPS=2"]
    encoder = {"recipe": "recipes/xlm_tiny_mlm.gin", "settings": settings}
    plan = planned({"xnli": XNLI}, {"own": encoder}, files, tmp_path)
    assert plan.faults == []
    trained, cell = plan.trainings
    assert (trained.name, trained.steps) == ("encoder own", 7)
    assert cell.name == "own, xnli: xtreme/xnli/transfer" and cell.flops > 0
    gone = [one.replace("/*.txt", "/*.gone") for one in settings]
    plan = planned({"xnli": XNLI}, {"own": encoder | {"settings": gone}}, files, tmp_path)
    assert any("encoder own: " in fault and "*.gone" in fault for fault in plan.faults)


def test_tasks_of_one_training_set_are_one_training(start, files, tmp_path):
    together = {"task": ["xtreme/xquad", "xtreme/mlqa"], "settings": ASKED}
    plan = planned({"squad": together}, {"e": str(start)}, files, tmp_path)
    assert plan.faults == []
    assert [one.name for one in plan.trainings] == ["e, squad: xtreme/transfer/mlqa+xquad"]


def test_the_name_of_a_table(capsys):
    words = ["--data", "d", "--to", "o"]
    assert main.main(["table", "xlm1", *words]) == 2
    assert "no table 'xlm1'; did you mean 'xlm_1'?" in capsys.readouterr().err
    assert main.main(["table", "xlm_1", *words]) == 2
    assert "ENCODERS is not set" in capsys.readouterr().err


def test_what_training_refuses_at_its_start_is_refused_here(files, tmp_path):
    """Of a row of no encoder too: one that ends early by what nothing measures."""
    settings = [*own_text(files, tmp_path), "EVAL_EVERY=2", "PATIENCE=3"]
    settings.append("STOP_METRIC=perplexity/mean")
    row = {"recipe": "recipes/xlm_tiny_mlm.gin", "settings": settings}
    [fault] = planned({"clm": row}, {}, files, tmp_path).faults
    assert fault.startswith("clm: STOP_METRIC=perplexity/mean is of no evaluator of")


def test_a_smoked_table_is_the_same_jobs_of_a_few_steps(start, files, tmp_path):
    """What a row sets itself gives way; a model has the shape of what it starts from."""
    text = ["LANGUAGES=de en ru", f"VOCABULARY={start}", f"MONO={files}/told/mono/*.txt"]
    text += ["PARALLEL=None", "HELDOUT_TEXT=None", "HELDOUT_PAIRS=None", "LENGTH=32"]
    own = {"recipe": "recipes/xlm_15_mlm.gin", "settings": [*text, "BATCH=512", "PATIENCE=0"]}
    encoders = {
        "given": str(start),
        "own": own,
        "more": own | {"from": "own"},
        "base": own | {"from": "given"},
    }
    command = f"translate {start} --target en --input {tmp_path}/de.txt --to {{folder}}/en.txt"
    rows = {
        "xnli": XNLI | {"grid": {"BATCH": "8,12", "EPOCHS": "2,1"}, "encoders": "more base"},
        "mt": {
            "then": {"average": "average {run} --last 10 --to {folder}/a", "de": command},
            "encoders": "own",
        },
    }
    table = smoked(Table(rows, encoders, seeds=3), 3)
    plan = dry_run.planned(table, files / "xtreme", tmp_path / "out", 3)
    assert plan.faults == [f"own, mt: de: missing file: {tmp_path}/de.txt (--input)"]
    found = {one.name: one for one in plan.trainings}
    assert [*found] == [
        "encoder own",
        "encoder more",
        "encoder base",
        "more, xnli: xtreme/xnli/transfer/EPOCHS=2",
        "base, xnli: xtreme/xnli/transfer/EPOCHS=2",
    ]
    # Four rows at least, which three devices share out.
    assert {(one.batch, one.steps, one.times) for one in plan.trainings} == {(6, 8, 1)}
    jobs = {job.name: job for job in table.jobs(files / "xtreme", tmp_path / "out")}
    assert "xtreme/xnli[:8]" in jobs["base, xnli"].line
    assert jobs["own, mt: average"].line[-2:] == ["--last", "2"]
    models = {}
    for name in ("own", "base"):
        model = read_recipe(*jobs[f"encoder {name}"].recipe()).bound["model"]
        models[name] = (model.layers, model.dim, model.num_languages)
    assert models == {"own": (12, 32, 3), "base": (1, 16, 0)}
    assert jobs["encoder more"].line[-1] == f"--gin.INIT_FROM={tmp_path}/out/encoders/own"
    assert f"--gin.MODEL={tmp_path}/out/encoders/own" in jobs["encoder more"].line
