"""Tasks of one training set are trained once; several commands share a sweep or a table."""

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.helpers import sweeping
from xlingjax.cli import main
from xlingjax.config.recipe import bindings
from xlingjax.workflows.tasks.request import values_of

files, start = sweeping.files, sweeping.start
TOGETHER = "cells/xtreme/transfer/mlqa+xquad/seed-0"
SETTINGS = (
    "LENGTH=48",
    "MAX_QUESTION=16",
    "STRIDE=16",
    "BATCH=12",
    "EPOCHS=1",
    "EVALUATIONS=2",
    "SELECT=en",
    "LEARNING_RATE=1e-2",
    "TEST_LANGUAGES=en de",
)


def words(tasks, start, files, output, *more):
    line = ["finetune", str(start), "--task", *tasks, "--data", str(files / "xtreme")]
    return [*line, "--to", str(output), *(f"--gin.{one}" for one in SETTINGS), *more]


def told(path):
    scores = json.loads(path.read_text())
    # Where it was trained says nothing of it.
    del scores["machine"]
    return scores


@pytest.mark.long
def test_squad_is_trained_once_and_each_task_chooses_as_it_would_alone(
    start, files, tmp_path, capsys
):
    both = ["xtreme/xquad", "xtreme/mlqa"]
    assert main.main(words(both, start, files, tmp_path / "both")) == 0
    assert len([*(tmp_path / "both").rglob("run.json")]) == 1
    bound = values_of(bindings([str(tmp_path / "both" / TOGETHER / "cell.gin")], ()))
    assert bound["TASK"] == "xtreme/mlqa" and bound["SHARED"] == "xtreme/mlqa xtreme/xquad"
    for task in both:
        name = task.partition("/")[2]
        assert main.main(words([task], start, files, tmp_path / name)) == 0
        alone = told(tmp_path / name / f"cells/xtreme/{name}/transfer/seed-0/scores.json")
        shared = told(tmp_path / "both" / TOGETHER / name / "scores.json")
        assert shared["test"]["by_language"] and shared == alone
    capsys.readouterr()
    # Once more: nothing is trained, and the card has the figures and curves of both.
    assert main.main(words(both, start, files, tmp_path / "both")) == 0
    printed = capsys.readouterr().out
    assert "mlqa+xquad/seed-0: finished before" in printed
    assert "## xtreme/mlqa" in printed and "## xtreme/xquad" in printed


def test_tasks_of_other_examples_are_no_training(start, files, tmp_path, capsys):
    # The translations of SQuAD into German are XQuAD's and MLQA's, those into Russian XQuAD's.
    for other, more, message in (
        ("mlqa", ["--strategy", "multi_language"], "mlqa and xtreme/xquad are not trained on the"),
        ("tydiqa", [], "xtreme/tydiqa and xtreme/xquad are not trained"),
        ("xnli", [], "--strategy multi_task, which has a head for each"),
    ):
        both = ["xtreme/xquad", f"xtreme/{other}"]
        assert main.main(words(both, start, files, tmp_path / "out", *more)) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def command(line):
    return subprocess.Popen(
        [sys.executable, "-m", "xlingjax", *line],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.soak
@pytest.mark.long
def test_a_sweep_that_was_stopped_and_one_of_two_commands_give_the_scores_of_one(
    start, files, tmp_path
):
    task = ["xtreme/xquad"]
    more = ["--seeds", "2", "--platform", "cpu", "--devices", "8"]
    jobs = words(task, start, files, tmp_path / "jobs", *more)
    stopped = command(jobs)
    while not [*(tmp_path / "jobs").rglob("run.json")] and stopped.poll() is None:
        time.sleep(0.1)
    stopped.send_signal(signal.SIGTERM)
    said = stopped.communicate(timeout=300)[0]
    assert stopped.returncode == 75 and "the same command goes on" in said
    assert not [*(tmp_path / "jobs").rglob("job.lock")]
    again = command(jobs)
    # What fills eight devices by hand: two commands on one folder.
    both = [command(words(task, start, files, tmp_path / "two", *more)) for _ in range(2)]
    serial = command(words(task, start, files, tmp_path / "serial", *more))
    for process in (again, *both, serial):
        said = process.communicate(timeout=900)[0]
        assert process.returncode == 0, said[-2000:]
    for seed in range(2):
        cell = f"cells/xtreme/xquad/transfer/seed-{seed}/scores.json"
        expected = told(tmp_path / "serial" / cell)
        assert told(tmp_path / "jobs" / cell) == expected
        assert told(tmp_path / "two" / cell) == expected
    # Each cell was trained by one of them, to its end.
    for run in (tmp_path / "two").rglob("run.json"):
        assert len(json.loads(run.read_text())["sessions"]) == 1
