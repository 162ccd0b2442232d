"""A recipe that lasts so many hours: the arithmetic, what is refused, and a run."""

import json

import pytest

from tests.helpers import small_corpus
from xlingjax.cli import main
from xlingjax.errors import UserError
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.workflows.adapt.time_budget import within_hours
from xlingjax.workflows.adapt.trial import scaled, steps_within

SPEED = {"seconds_per_step": 0.1, "seconds_to_compile": 10.0, "seconds_per_evaluation": 10.0}


def test_steps_are_what_evaluations_and_compiling_leave():
    # 360 s, 50 of which are evaluations and 10 compiling.
    assert steps_within(360, SPEED, 5) == (3000, 5)
    # Evaluations have a fifth of the time, and one is always made.
    assert steps_within(160, SPEED, 5) == (1200, 3)
    assert steps_within(21, SPEED, 5) == (10, 1)
    with pytest.raises(UserError, match="too little: 19 s are left .* an evaluation takes 10 s"):
        steps_within(19, SPEED, 5)


def test_what_counts_steps_grows_with_them():
    lines = {
        "TRAIN_STEPS": "7000",
        "WARMUP_STEPS": "300",
        "EVAL_EVERY": "1000",
        "FIRST_PHASE": "0",
        "STAGE_1_STEPS": "%OTHER",
        "BATCH": "8",
    }
    doubled = {"TRAIN_STEPS": 14000, "WARMUP_STEPS": 600, "EVAL_EVERY": 2000}
    assert scaled(lines, (), 2) == doubled
    assert scaled(lines, ("EVAL_EVERY=10",), 1 / 1000) == {"TRAIN_STEPS": 7, "WARMUP_STEPS": 1}
    # A share of the steps grows by itself.
    del doubled["WARMUP_STEPS"]
    assert scaled(lines | {"WARMUP_STEPS": "0.1"}, (), 2) == doubled


@pytest.mark.parametrize(
    "record, message",
    [
        (
            '{"hours": 2, "macros": {}, "speed": {"seconds_per_evaluation": 1}}',
            "with --hours 2: give the same",
        ),
        ('{"hours": 1}', r"hours.json: macros is missing; delete it, leave --hours out"),
        ("[1", r"hours.json: not valid JSON"),
        (None, "was begun without --hours: leave it out to go on"),
    ],
)
def test_a_run_is_not_begun_anew(tmp_path, record, message):
    (tmp_path / "run.json").write_text("{}")
    if record:
        (tmp_path / "hours.json").write_text(record)
    with pytest.raises(UserError, match=message):
        within_hours(["xlm_tiny"], [], tmp_path, 1.0, RuntimeConfig())


def test_two_lengths_are_one_too_many(tmp_path):
    with pytest.raises(UserError, match="--hours and --gin.TRAIN_STEPS: both say how long"):
        within_hours(["xlm_tiny"], ["TRAIN_STEPS=5"], tmp_path, 1.0, RuntimeConfig())


@pytest.mark.long
def test_a_run_lasts_as_long_as_it_may(tmp_path, capsys):
    small_corpus.build(tmp_path)
    settings = small_corpus.SMALL | {
        "MONO": f"{tmp_path}/mono",
        "PARALLEL": f"{tmp_path}/pairs/*",
        "VOCABULARY": tmp_path / "vocab",
        "VOCABULARY_SIZE": None,
        "HELDOUT_TEXT": None,
        "HELDOUT_PAIRS": f"{tmp_path}/heldout_pairs",
        "LANGUAGES": "de en",
    }
    run = tmp_path / "run"
    words = ["pretrain", "--gin-file", "gin/recipes/xlm_tiny.gin", "--to", str(run)]
    words += [f"--gin.{name}={value}" for name, value in settings.items()]
    assert main.main([*words, "--hours", "0.012"]) == 0
    assert not (run / "trial").exists()
    record = json.loads((run / "hours.json").read_text())
    steps = record["macros"]["TRAIN_STEPS"]
    result = json.loads((run / "result.json").read_text())
    assert 0 < result["steps"] <= steps and result["exit_reason"] == "finished"
    assert f"WARMUP_STEPS = {record['macros']['WARMUP_STEPS']}" in (run / "config.gin").read_text()
    assert "measured in a trial: " in capsys.readouterr().out
    # What the trial trained is not in the run, and the same command has nothing left to do.
    first = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
    assert first["step"] > 1
    assert main.main([*words, "--hours", "0.012"]) == 0
    assert "measured in a trial" not in capsys.readouterr().out
    assert main.main([*words, "--hours", "0.03"]) == 2
    assert "was begun with --hours 0.012" in capsys.readouterr().err
