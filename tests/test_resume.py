"""A run that was stopped and started again ends where one left alone ends: the same bits, from the same batches."""

import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import tiny_run

from xlingjax.checkpoint import CheckpointConfig, checkpoint_steps

RUNS = {
    "summed": {"mesh": (1, 1, 1), "objectives": ("mlm", "tlm"), "schedule": "summed", "weights": (1, {0: 0, 3: 2})},
    "8-devices": {"mesh": (2, 2, 2), "objectives": ("tlm",)},
    "8-objectives": {
        "objectives": ("veco", "camlm", "btmlm", "clwr", "clpc", "cl_mlm", "xfnp", "back_translation"),
        "weights": (1,) * 8,
        "steps": 18,
        "checkpoint": CheckpointConfig(every=8, keep_last=9),
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
    """A run in its own process that SIGKILLs itself while its last checkpoint may be half written."""
    arguments = {"workdir": str(workdir), **run, "signal_at": ["SIGKILL", 8]}
    process = subprocess.run([sys.executable, tiny_run.__file__, json.dumps(arguments)], capture_output=True, text=True)
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
@pytest.mark.parametrize("undisturbed", ["8-objectives"], indirect=True)
def test_every_objective_continues_bitwise_from_a_checkpoint(undisturbed, tmp_path):
    """From the checkpoint between the two turns of each; what the run logged after it is taken back."""
    run, params, hashes, workdir = undisturbed
    shutil.copytree(workdir, tmp_path / "again")
    for step in checkpoint_steps(workdir / "checkpoints"):
        if step > 8:
            shutil.rmtree(tmp_path / "again" / "checkpoints" / str(step))
    result = tiny_run.run(tmp_path / "again", **run)
    assert "checkpoint 8 of" in (tmp_path / "again" / "log.txt").read_text()
    assert_same(tiny_run.flat(result.params), params)
    assert tiny_run.hashes(tmp_path / "again") == hashes


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
    assert [s["step"] for s in json.loads((tmp_path / "run.json").read_text())["sessions"]] == [0, stopped.steps]
