"""Two processes of 4 devices are one process of 8."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tests.helpers import small_corpus, tiny_run
from xlingjax.training.checkpoint_paths import checkpoint_steps

PATIENCE = 240
"""Seconds: such a pair takes 40 of them on a quiet machine of 2 cores, 85 on a busy one."""


def two_processes(first, second, **variables):
    """Run `tiny_run` as two processes with these arguments, see `both`."""
    return both(*({"args": tiny_run.command(one)} for one in (first, second)), **variables)


def both(*options, **variables):
    """[(exit status, output)] of two processes of 4 devices each, by these options of Popen. Those
    that have not ended in time write the stacks of their threads."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    processes = []
    for index, own in enumerate(options):
        environment = {
            **os.environ,
            "XLA_FLAGS": os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=4"),
            "XLINGJAX_COORDINATOR": coordinator,
            "XLINGJAX_NUM_PROCESSES": "2",
            "XLINGJAX_PROCESS_ID": str(index),
            "PYTHONFAULTHANDLER": "1",
            **variables,
            **own.get("env", {}),
        }
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        given = {"cwd": tiny_run.ROOT, **own, "env": environment, **pipes}
        processes.append(subprocess.Popen(**given))
    hung = threading.Event()

    def abort():
        hung.set()
        # Both, for each waits for the other.
        for process in processes:
            process.send_signal(signal.SIGABRT)

    timer = threading.Timer(PATIENCE, abort)
    timer.start()
    try:
        outputs = [process.communicate()[0] for process in processes]
    finally:
        timer.cancel()
        for process in processes:
            process.kill()
    statuses = [process.returncode for process in processes]
    assert not hung.is_set(), outputs
    return [*zip(statuses, outputs, strict=True)]


@pytest.mark.long
def test_two_processes_train_the_run_of_one_and_leave_together_on_sigterm(tmp_path):
    """SIGTERM reaches process 1 alone; both save the same step; one process of 8 devices finishes
    what they began."""
    one, two = tmp_path / "one", tmp_path / "two"
    run = {"workdir": str(two), "steps": 20, "mesh": (2, 2, 2), "objectives": ("tlm",)}
    expected = tiny_run.flat(tiny_run.run(**{**run, "workdir": one}).params)

    outcomes = two_processes(run, {**run, "signal_at": ["SIGTERM", 4]})
    assert [status for status, _ in outcomes] == [75, 75], outcomes
    last = [output.strip().splitlines()[-1] for _, output in outcomes]
    assert last[0] == last[1] and last[0].startswith("exit reason preempted at step")
    # Only process 0 speaks.
    assert "weights: random" in outcomes[0][1] and "weights:" not in outcomes[1][1]
    shared = len(tiny_run.lines(two))
    assert 4 < shared < 20

    found = tiny_run.flat(tiny_run.run(**run).params)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)
    assert tiny_run.hashes(two) == tiny_run.hashes(one)
    losses = [[line["loss"] for line in tiny_run.lines(folder)] for folder in (one, two)]
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("victim", [0, 1])
def test_where_one_of_two_processes_is_killed_the_other_ends_soon(tmp_path, victim):
    """Else each would wait for the other, for ever or five minutes. JAX's own words say why."""
    run = {"workdir": str(tmp_path / "two"), "steps": 5000, "mesh": (2, 2, 2), "save_every": 1000}
    run["objectives"] = ("tlm",)
    arguments = [run, run]
    arguments[victim] = {**run, "signal_at": ["SIGKILL", 6]}
    began = time.monotonic()
    outcomes = two_processes(*arguments, XLINGJAX_HEARTBEAT="10")
    assert time.monotonic() - began < 150
    assert outcomes[victim][0] == -signal.SIGKILL
    status, output = outcomes[1 - victim]
    assert status != 0 and "JAX distributed service detected fatal errors" in output


@pytest.mark.long
def test_an_evaluation_that_fails_in_one_process_ends_both_and_what_was_trained_is_saved(tmp_path):
    run = {"workdir": str(tmp_path / "two"), "steps": 9, "mesh": (2, 2, 2), "objectives": ("tlm",)}
    run["save_every"] = 9
    # The second has no value for the second step.
    outcomes = two_processes({**run, "dev": [9.0] * 9}, {**run, "dev": [9.0] * 2})
    assert all(status not in (0, 75) for status, _ in outcomes)
    assert "step 2: an evaluation failed in another process" in outcomes[0][1]
    assert "IndexError" in outcomes[1][1]
    assert checkpoint_steps(tmp_path / "two/checkpoints") == [2]


@pytest.mark.long
def test_two_processes_stop_early_at_the_step_of_the_first(tmp_path):
    """Whose values differ, as the last digits of an evaluation may: one by itself would wait for
    the other for ever."""
    run = {"workdir": str(tmp_path / "two"), "steps": 6, "mesh": (2, 2, 2), "objectives": ("tlm",)}
    first = {**run, "dev": [9.0, 5.0, 6.0, 5.5, 4.0, 3.0, 2.0]}
    second = {**run, "dev": [9.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]}
    outcomes = two_processes(first, second)
    assert [status for status, _ in outcomes] == [0, 0], outcomes
    for _, output in outcomes:
        assert output.strip().splitlines()[-1] == "exit reason finished at step 3"
    assert "early stopping: dev/loss was not better in 2 evaluations" in outcomes[0][1]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A corpus, and `other`: its text with another line, this package with another comment, and
    another version of optax."""
    root = tmp_path_factory.mktemp("corpora")
    small_corpus.build(root / "own")
    other = root / "other"
    shutil.copytree(root / "own/mono", other / "mono")
    with open(other / "mono/de/a.txt", "a", encoding="utf-8") as file:
        file.write("Noch eine Zeile.\n")
    package = shutil.copytree(tiny_run.ROOT / "xlingjax", other / "xlingjax")
    for name in ("tasks", "gin"):
        shutil.copytree(tiny_run.ROOT / name, package / name)
    with open(package / "errors.py", "a", encoding="utf-8") as file:
        file.write("# Another version.\n")
    metadata = root / "packages/optax-99.0.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: optax\nVersion: 99.0\n")
    return root


@pytest.mark.long
@pytest.mark.parametrize(
    "bindings, options, says",
    [
        ({"LEARNING_RATE": 0.002}, {}, "optimizer.learning_rate: process 1 has 0.002, process 0"),
        ({"SEED": 7}, {}, "seed: process 1 has 7, process 0 has"),
        ({"MONO": "{root}/other/mono"}, {}, "data.mlm.text.de: process 1 has"),
        ({}, {"cwd": "{root}/other"}, "code.xlingjax: process 1 has"),
        ({}, {"env": {"PYTHONPATH": "{root}/packages"}}, 'packages.optax: process 1 has "99.0"'),
    ],
)
def test_processes_of_different_runs_are_refused(bindings, options, says, corpora, tmp_path):
    """Each would train by its own, and the record be true of the first alone."""

    def filled(values):
        return {
            name: filled(value) if isinstance(value, dict) else str(value).format(root=corpora)
            for name, value in values.items()
        }

    def command(**overrides):
        given = small_corpus.options(corpora / "own", **overrides)
        words = small_corpus.arguments("pretrain", "xlm_text", given | {"MESH_DATA": 8})
        workdir = ["--to", str(tmp_path / "run")]
        return {"args": [sys.executable, "-m", "xlingjax", *words, *workdir]}

    cache = str(tmp_path / "cache")
    outcomes = both(command(), command(**filled(bindings)) | filled(options), XLINGJAX_CACHE=cache)
    for status, output in outcomes:
        assert status == 2, outcomes
        (line,) = (one for one in output.splitlines() if one.startswith("error: "))
        assert says in line and "Traceback" not in output
    assert not (tmp_path / "run/run.json").exists()
