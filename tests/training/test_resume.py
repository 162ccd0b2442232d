"""A run that was stopped and started again ends where one left alone ends: the same bits, from the
same batches."""

import json
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

from tests.helpers import tiny_run
from tests.helpers.processes import started
from xlingjax.training.checkpoint import CheckpointConfig
from xlingjax.training.checkpoint_paths import checkpoint_steps, last_step
from xlingjax.training.evaluator import Evaluator

RUNS = {
    "summed": {
        "mesh": (1, 1, 1),
        "objectives": ("mlm", "tlm"),
        "schedule": "summed",
        "weights": (1, {0: 0, 3: 2}),
    },
    "8-devices": {"mesh": (2, 2, 2), "objectives": ("tlm",)},
    "9-objectives": {
        "objectives": (
            "veco",
            "camlm",
            "btmlm",
            "clwr",
            "clpc",
            "cl_mlm",
            "xfnp",
            "back_translation",
            "span_corruption",
        ),
        "weights": (1,) * 9,
        "steps": 20,
        "checkpoint": CheckpointConfig(every=9, keep_last=9),
    },
}


@pytest.fixture(scope="module")
def undisturbed(request, tmp_path_factory):
    """(the run's arguments, parameters, batch hashes, workdir) of a run left alone."""
    workdir = tmp_path_factory.mktemp("undisturbed")
    result = tiny_run.run(workdir, **RUNS[request.param])
    assert (result.exit_reason, result.exit_code) == ("finished", 0)
    return RUNS[request.param], tiny_run.flat(result.params), tiny_run.hashes(workdir), workdir


def assert_same(params, expected):
    for name, value in expected.items():
        np.testing.assert_array_equal(params[name], value, err_msg=name)


def kill_between_checkpoints(workdir, run):
    """A run in its own process that SIGKILLs itself while its last checkpoint may be half
    written."""
    arguments = {"workdir": str(workdir), **run, "signal_at": ["SIGKILL", 8]}
    process = subprocess.run(
        tiny_run.command(arguments), cwd=tiny_run.ROOT, capture_output=True, text=True
    )
    assert process.returncode == -signal.SIGKILL, process.stderr


@pytest.mark.long
@pytest.mark.parametrize("undisturbed", ["8-devices"], indirect=True)
def test_killed_run_continues_bitwise(undisturbed, tmp_path):
    run, params, hashes, _ = undisturbed
    kill_between_checkpoints(tmp_path / "killed", run)
    before = len(tiny_run.lines(tmp_path / "killed"))
    shutil.copytree(tmp_path / "killed", tmp_path / "fewer")
    result = tiny_run.run(tmp_path / "killed", **run)
    assert 4 <= before < 9
    assert_same(tiny_run.flat(result.params), params)
    assert tiny_run.hashes(tmp_path / "killed") == hashes
    # the same checkpoint on half the devices
    fewer = tiny_run.flat(tiny_run.run(tmp_path / "fewer", **{**run, "mesh": (2, 2, 1)}).params)
    for name, value in params.items():
        np.testing.assert_allclose(fewer[name], value, atol=1e-6, err_msg=name)
    assert tiny_run.hashes(tmp_path / "fewer") == hashes


@pytest.mark.long
@pytest.mark.parametrize("undisturbed", ["9-objectives"], indirect=True)
def test_every_objective_continues_bitwise_from_a_checkpoint(undisturbed, tmp_path):
    """From the checkpoint between the two turns of each; what the run logged after it is taken
    back."""
    run, params, hashes, workdir = undisturbed
    shutil.copytree(workdir, tmp_path / "again")
    for step in checkpoint_steps(workdir / "checkpoints"):
        if step > 9:
            shutil.rmtree(tmp_path / "again" / "checkpoints" / str(step))
    result = tiny_run.run(tmp_path / "again", **run)
    assert "checkpoint 9 of" in (tmp_path / "again" / "log.txt").read_text()
    assert_same(tiny_run.flat(result.params), params)
    assert tiny_run.hashes(tmp_path / "again") == hashes


@pytest.mark.long
@pytest.mark.parametrize("undisturbed", ["summed"], indirect=True)
def test_sigterm_saves_leaves_and_continues_bitwise(undisturbed, tmp_path):
    run, params, hashes, _ = undisturbed
    stopped = tiny_run.run(tmp_path, **run, signal_at=("SIGTERM", 3))
    assert (stopped.exit_reason, stopped.exit_code) == ("preempted", 75) and 0 < stopped.steps < 9
    assert json.loads((tmp_path / "result.json").read_text())["exit_reason"] == "preempted"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    result = tiny_run.run(tmp_path, **run)
    assert_same(tiny_run.flat(result.params), params)
    assert tiny_run.hashes(tmp_path) == hashes
    log = (tmp_path / "log.txt").read_text()
    assert f"weights: checkpoint {stopped.steps} of {tmp_path}" in log
    assert [s["step"] for s in json.loads((tmp_path / "run.json").read_text())["sessions"]] == [
        0,
        stopped.steps,
    ]


class Counted(Evaluator):
    """An evaluator that fails at the steps it is told to."""

    name = "dev"

    def __init__(self, fails=()):
        self.fails = fails

    def __call__(self, model, params, step, mesh):
        if step in self.fails:
            raise RuntimeError("out of memory")
        return {"mean": {3: 50.0, 6: 90.0, 9: 60.0}[step]}


@pytest.mark.long
def test_a_checkpoint_that_was_not_measured_is_measured_when_the_run_goes_on(tmp_path):
    """Asked to stop in the step before an evaluation, or with an evaluation that failed: what is
    best is known all the same, and a finished run has a result."""
    settings = dict(objectives=("mlm",), eval_every=3)
    best = CheckpointConfig(
        every=3, keep_last=1, keep_best=1, best_metric="dev/mean", best_mode="max"
    )
    whole, stopped, failed = tmp_path / "whole", tmp_path / "stopped", tmp_path / "failed"
    tiny_run.run(whole, **settings, checkpoint=best, evaluators=[Counted()])
    first = tiny_run.run(
        stopped, **settings, checkpoint=best, evaluators=[Counted()], signal_at=("SIGTERM", 6)
    )
    assert first.steps == 6 and [
        line["step"] for line in tiny_run.lines(stopped, "evaluations.jsonl")
    ] == [3]
    tiny_run.run(stopped, **settings, checkpoint=best, evaluators=[Counted()])
    for step in (6, 9):
        with pytest.raises(RuntimeError, match="out of memory"):
            tiny_run.run(failed, **settings, checkpoint=best, evaluators=[Counted(fails=[step])])
    assert not (failed / "result.json").exists()
    tiny_run.run(failed, **settings, checkpoint=best, evaluators=[Counted()])
    for run in (whole, stopped, failed):
        assert [line["values"]["mean"] for line in tiny_run.lines(run, "evaluations.jsonl")] == [
            50.0,
            90.0,
            60.0,
        ]
        assert json.loads((run / "best.json").read_text()) == {
            "dev/mean": {"step": 6, "value": 90.0}
        }
        assert json.loads((run / "result.json").read_text())["exit_reason"] == "finished"
        assert checkpoint_steps(run / "checkpoints") == [6, 9]
    tiny_run.run(
        failed, **settings, checkpoint=best, evaluators=[Counted(fails=[9])]
    )  # nothing is left to measure


@pytest.mark.long
def test_a_second_start_leaves_the_first_unharmed_and_a_closed_terminal_loses_nothing(tmp_path):
    run = {"workdir": str(tmp_path), "steps": 5000, "objectives": ("mlm",), "save_every": 4}
    # Some steps a second.
    slowly = {**run, "signal_at": ["SIGCONT", 1]}
    with started(tiny_run.command(slowly), cwd=tiny_run.ROOT) as first:
        wait_for(lambda: last_step(tmp_path) > 0)
        with started(tiny_run.command(run), cwd=tiny_run.ROOT) as second:
            said = second.communicate(timeout=60)[0]
        assert second.returncode != 0 and "compiled" not in said
        assert f"{tmp_path} is in use: process {first.pid} on " in said.splitlines()[-1]
        assert first.poll() is None
        first.send_signal(signal.SIGHUP)
        output = first.communicate(timeout=60)[0].splitlines()
    assert first.returncode == 75
    step = last_step(tmp_path)
    assert output[-2] == f"preempted at step {step}: the same command goes on from there"
    assert [line["step"] for line in tiny_run.lines(tmp_path)] == [*range(1, step + 1)]
    assert not [*tmp_path.glob("in_use.json*")]


@pytest.mark.long
def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    run = {"workdir": str(tmp_path), "steps": 5000, "objectives": ("mlm",), "save_every": 4}
    with started(
        tiny_run.command({**run, "signal_at": ["SIGINT", 7]}), cwd=tiny_run.ROOT
    ) as process:
        output = process.communicate(timeout=60)[0]
    assert process.returncode == 75 and "interrupted: the run saves after this step" in output
    assert output.splitlines()[-2].startswith("preempted at step 7: the same command goes on")
    assert last_step(tmp_path) == 7


def wait_for(condition):
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)
    assert condition()
