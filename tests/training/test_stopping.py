"""A run ends where held-out data no longer gain, at the same step however often it was killed."""

import json
import math
import shutil

import numpy as np
import pytest

from tests.helpers import tiny_run
from xlingjax.errors import UserError
from xlingjax.training.checkpoint import CheckpointConfig
from xlingjax.training.checkpoint_paths import checkpoint_steps
from xlingjax.training.evaluator import Evaluator
from xlingjax.training.stopping import Stopping, StoppingConfig


class Dev(Evaluator):
    name = "dev"

    def __init__(self, values):
        self.values = values
        self.calls = []

    def __call__(self, model, params, step, mesh):
        self.calls.append(step)
        return {"ppl": {"mean": self.values.get(step, 0.5)}, "kind": "text"}


class AtEnd(Dev):
    name = "test"
    at_end = True


# The best is of step 2; 5.0 of step 6 is no better than 5.0, NaN of step 8 is not, 4.9 would be.
COURSE = {1: 9.0, 2: 5.0, 3: 7.0, 4: 5.1, 5: 5.0, 6: math.nan, 7: 4.0}


def stops_at(values, patience, mode):
    early = Stopping(StoppingConfig(patience, "dev/ppl/mean", mode))
    for step, value in values.items():
        if early.measured(step, {"dev": {"ppl": {"mean": value}}}):
            return step
    return None


def xlm_stops_at(values, maximum, biggest):
    """As `Trainer.end_epoch` of XLM's code counts, whose `_valid_mlm_ppl,10` has maximum 10."""
    best, counts = -1e12 if biggest else 1e12, 0
    for step, value in values.items():
        factor = 1 if biggest else -1
        if factor * value > factor * best:
            best, counts = value, 0
        else:
            counts += 1
        if counts > maximum:
            return step
    return None


@pytest.mark.parametrize("seed", range(20))
def test_it_stops_one_evaluation_before_xlms_code_does(seed):
    """Whose maximum is passed, not reached: PATIENCE 11 is its 10."""
    values = dict(enumerate(np.random.default_rng(seed).integers(0, 9, 60).tolist()))
    for maximum in (0, 1, 4, 10):
        for biggest, mode in ((False, "min"), (True, "max")):
            expected = xlm_stops_at(values, maximum, biggest)
            assert stops_at(values, maximum + 1, mode) == expected


def test_equal_values_and_nan_are_no_better_ones():
    assert stops_at(COURSE, 4, "min") == 6
    assert stops_at(COURSE, 5, "min") is None
    assert stops_at({1: math.nan, 2: math.nan, 3: 1.0}, 2, "min") == 2


SETTINGS = dict(objectives=("mlm",), eval_every=1, save_every=3)
EARLY = StoppingConfig(4, "dev/ppl/mean")


@pytest.mark.parametrize(
    "change, said",
    [
        ({"eval_every": 0}, "EVAL_EVERY=0 has none before the end"),
        ({"stopping": StoppingConfig(4, "test/ppl/mean")}, "no evaluator .*; there are dev"),
        ({"evaluators": []}, "no evaluator .*; set HELDOUT_TEXT or DEV_FILES"),
    ],
)
def test_a_metric_that_is_not_measured_is_refused_before_the_first_step(tmp_path, change, said):
    settings = {**SETTINGS, "stopping": EARLY, "evaluators": [Dev(COURSE), AtEnd({})], **change}
    with pytest.raises(UserError, match=said):
        tiny_run.run(tmp_path, **settings)
    assert not (tmp_path / "metrics.jsonl").exists()
    with pytest.raises(UserError, match="PATIENCE=2 needs one metric .* names 2: set STOP_METRIC"):
        StoppingConfig(2, "a/b c/d")
    with pytest.raises(UserError, match="does not give it; there is dev/ppl/mean$"):
        Stopping(StoppingConfig(4, "dev/mean")).measured(1, {"dev": {"ppl": {"mean": 1.0}}})


def test_a_run_whose_time_is_over_ends_as_at_its_last_step(tmp_path):
    dev, test = Dev(COURSE), AtEnd({})
    settings = {**SETTINGS, "steps": 9, "eval_every": 0, "evaluators": [dev, test]}
    result = tiny_run.run(tmp_path, **settings, until=1e-9)
    # The two turns that each objective has in any case.
    assert (result.steps, result.exit_reason) == (2, "finished")
    assert dev.calls == test.calls == [2]
    written = json.loads((tmp_path / "result.json").read_text())
    assert written["stopped_early"] == {"step": 2, "why": "its time is over"}
    assert checkpoint_steps(tmp_path / "checkpoints") == [2]


@pytest.mark.long
def test_a_run_stops_and_stays_so_and_a_killed_one_stops_with_the_same_bits(tmp_path, capsys):
    dev, test = Dev(COURSE), AtEnd({})
    whole = tmp_path / "whole"
    run = {**SETTINGS, "steps": 9, "stopping": EARLY}
    best = CheckpointConfig(every=2, keep_last=9, keep_best=1, best_metric="dev/ppl/mean")
    result = tiny_run.run(whole, **run, checkpoint=best, evaluators=[dev, test])
    assert (result.steps, result.exit_reason, result.exit_code) == (6, "finished", 0)
    # The test set when it ends, which is early.
    assert dev.calls == [1, 2, 3, 4, 5, 6] and test.calls == [6]
    said = "early stopping: dev/ppl/mean was not better in 4 evaluations than 5.0000 of step 2"
    assert said in capsys.readouterr().out
    totals = json.loads((whole / "result.json").read_text())
    early = {"metric": "dev/ppl/mean", "mode": "min", "patience": 4, "best_step": 2, "best": 5.0}
    assert totals["stopped_early"] == {"step": 6} | early
    assert totals["best"] == {"dev/ppl/mean": {"step": 2, "value": 5.0}}
    assert checkpoint_steps(whole / "checkpoints") == [2, 4, 6]
    # The learning rate goes by all nine steps, as that of a run without early stopping.
    without = tmp_path / "without"
    tiny_run.run(without, **{**run, "stopping": StoppingConfig()}, evaluators=[Dev(COURSE)])
    both = zip(tiny_run.lines(whole), tiny_run.lines(without)[:6], strict=True)
    assert all(one["learning_rate"] == other["learning_rate"] for one, other in both)
    assert len(tiny_run.lines(without)) == 9

    # Started again it does nothing.
    again = tiny_run.run(whole, **run, checkpoint=best, evaluators=[dev, test])
    assert (again.steps, again.exit_reason, len(dev.calls)) == (6, "finished", 6)
    assert json.loads((whole / "result.json").read_text()) == totals
    assert "nothing left to do" in (whole / "log.txt").read_text()

    # Killed after step 5, with a line of its log half written.
    killed = tmp_path / "killed"
    shutil.copytree(whole, killed)
    shutil.rmtree(killed / "checkpoints" / "6")
    (killed / "result.json").unlink()
    path = killed / "evaluations.jsonl"
    kept = path.read_text().splitlines(keepends=True)[:5]
    path.write_text("".join(kept) + '{"step": 6, "na')
    went_on = tiny_run.run(killed, **run, checkpoint=best, evaluators=[Dev(COURSE), AtEnd({})])
    assert went_on.steps == 6
    expected = tiny_run.flat(result.params)
    for name, value in tiny_run.flat(went_on.params).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    assert tiny_run.hashes(killed) == tiny_run.hashes(whole)
    stopped = json.loads((killed / "result.json").read_text())["stopped_early"]
    assert stopped == totals["stopped_early"]

    # More patience, and it goes on from there.
    more = {**run, "stopping": StoppingConfig(5, "dev/ppl/mean")}
    longer = tiny_run.run(whole, **more, checkpoint=best, evaluators=[Dev(COURSE), AtEnd({})])
    assert longer.steps == 9
    assert "stopped_early" not in json.loads((whole / "result.json").read_text())
