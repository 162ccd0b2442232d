"""A run that was stopped and started again ends where one left alone ends: the same bits, from the
same batches."""

import json
import shutil
import signal
import subprocess

import numpy as np
import pytest

from tests.helpers import tiny_run
from xlingjax.errors import UserError
from xlingjax.training.checkpoint import CheckpointConfig
from xlingjax.training.checkpoint_paths import checkpoint_steps
from xlingjax.training.evaluator import Evaluator
from xlingjax.training.optimizer import OptimizerConfig

RUNS = {
    "summed": {
        "mesh": (1, 1, 1),
        "objectives": ("mlm", "tlm"),
        "schedule": "summed",
        "weights": (1, {0: 0, 3: 2}),
    },
    "8-devices": {"mesh": (2, 2, 2), "objectives": ("tlm",)},
    "9-objectives": {
        "objectives": [
            "veco",
            "camlm",
            "btmlm",
            "clwr",
            "clpc",
            "cl_mlm",
            "xfnp",
            "back_translation",
            "span_corruption",
        ],
        "weights": (1,) * 9,
        "steps": 20,
        "checkpoint": CheckpointConfig(every=9, keep_last=9),
    },
    "8-of-local-layers": {
        "objectives": ["veco", "camlm", "btmlm", "clwr", "clpc", "cl_mlm", "mlm", "tlm"],
        "weights": (1,) * 8,
        "steps": 20,
        "checkpoint": CheckpointConfig(every=9, keep_last=9),
        "changes": {
            "layers": 2,
            "positions": "rotary",
            "window": 4,
            "first_norm": False,
            "norm_order": "pre",
            "gated": True,
            "ffn_bias": "none",
            "attention_bias": False,
        },
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
@pytest.mark.parametrize("undisturbed", ["9-objectives", "8-of-local-layers"], indirect=True)
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
    result = tiny_run.run(tmp_path, **run)
    assert_same(tiny_run.flat(result.params), params)
    assert tiny_run.hashes(tmp_path) == hashes
    sessions = json.loads((tmp_path / "run.json").read_text())["sessions"]
    assert [session["step"] for session in sessions] == [0, stopped.steps]


@pytest.mark.long
def test_a_branch_goes_on_from_the_checkpoint_of_another_run(tmp_path):
    """Bitwise the same run where nothing is changed, after a stop too; with a schedule of its own
    in a folder of its own; refused where its moments would not be those of the model."""
    kept = {"checkpoint": CheckpointConfig(every=3, keep_last=9)}
    whole = tiny_run.run(tmp_path / "whole", **kept)
    branch = {"branch_from": f"{tmp_path}/whole@3", **kept}
    stopped = tiny_run.run(tmp_path / "branch", **branch, signal_at=("SIGTERM", 2))
    assert 3 < stopped.steps < 9
    same = tiny_run.run(tmp_path / "branch", **branch)
    assert_same(tiny_run.flat(same.params), tiny_run.flat(whole.params))
    assert tiny_run.hashes(tmp_path / "branch") == tiny_run.hashes(tmp_path / "whole")[3:]
    assert tiny_run.run(tmp_path / "other", steps=5, **branch).steps == 5
    for options, message in [
        ({"steps": 3}, "has 3 steps, the new run 3: raise TRAIN_STEPS"),
        ({"init_from": "run"}, "both say what a run starts from"),
        (
            {"optimizer": OptimizerConfig("adam")},
            'optimizer.name: it has "adamw", this run has "adam"',
        ),
    ]:
        with pytest.raises(UserError, match=message):
            tiny_run.run(tmp_path / "refused", **branch | options)


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
    best = CheckpointConfig(3, 1, 1, "dev/mean", "max")

    def run(name, fails=(), **options):
        evaluators = [Counted(fails)]
        settings = dict(objectives=("mlm",), eval_every=3, checkpoint=best, evaluators=evaluators)
        return tiny_run.run(tmp_path / name, **settings, **options)

    run("whole")
    assert run("stopped", signal_at=("SIGTERM", 6)).steps == 6
    assert len(tiny_run.lines(tmp_path / "stopped", "evaluations.jsonl")) == 1
    run("stopped")
    for step in (6, 9):
        with pytest.raises(UserError, match="out of memory"):
            run("failed", fails=[step])
    assert not (tmp_path / "failed/result.json").exists()
    run("failed")
    for name in ("whole", "stopped", "failed"):
        lines = tiny_run.lines(tmp_path / name, "evaluations.jsonl")
        assert [line["values"]["mean"] for line in lines] == [50.0, 90.0, 60.0]
        kept = json.loads((tmp_path / name / "best.json").read_text())
        assert kept == {"dev/mean": {"step": 6, "value": 90.0}}
        result = json.loads((tmp_path / name / "result.json").read_text())
        assert result["exit_reason"] == "finished"
        assert checkpoint_steps(tmp_path / name / "checkpoints") == [6, 9]
    run("failed", fails=[9])  # nothing is left to measure
