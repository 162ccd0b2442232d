"""`xlingjax finetune --task A B --strategy multi_task`: one training of several tasks, each by a
head of its own."""

import json
import shutil

import numpy as np
import pytest

from tests.helpers import official_files, sweeping, toy
from tests.helpers.sweeping import command, dev_of, kill, random_run, require_gone_on
from xlingjax.config.model import model as model_of
from xlingjax.data.labelled.records import Example
from xlingjax.errors import UserError
from xlingjax.evaluation.task.predictions import head_fault, predict
from xlingjax.inference.run import TrainedRun
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.tasks import task_named
from xlingjax.training.run_record import labels_of
from xlingjax.workflows.scorecard import card as scorecard
from xlingjax.workflows.scorecard.rows import policy, row_name
from xlingjax.workflows.tasks import request as cells
from xlingjax.workflows.tasks.sets import splits_of

LANGUAGES, NAMES = ("de", "en", "fr"), ("pawsx", "qam")  # whose heads have the same classes


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Official files; PAWS-X has a third of QAM's training examples."""
    root = official_files.write(
        tmp_path_factory.mktemp("files"), LANGUAGES, train=24, dev=12, test=12
    )
    path = root / "xglue/PAWSX/en/train.tsv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:9]))
    return root


@pytest.fixture(scope="module")
def start(tmp_path_factory, files):
    return random_run(tmp_path_factory.mktemp("start"), files, languages=LANGUAGES)


def finetune(start, files, output, *more, tasks=NAMES):
    names = [f"xglue/{name}" for name in tasks]
    paths = ["--data", files / "xglue", "--to", output, "--allow-missing"]
    if "--strategy" not in str(more):
        more = ("--strategy multi_task", *more)
    settings = "--gin.LENGTH=24 --gin.BATCH=8 --gin.EPOCHS=2 --gin.DROPOUT=0"
    settings += " --gin.ATTENTION_DROPOUT=0 --gin.KEEP_CHECKPOINTS=2"
    return command("finetune", start, "--task", *names, *paths, *more, settings)


@pytest.fixture(scope="module")
def swept(start, files, tmp_path_factory):
    output = tmp_path_factory.mktemp("swept")
    assert finetune(start, files, output, "--gin.LEARNING_RATE=1e-2") == 0
    return output


CELL = "cells/xglue/multi_task/pawsx+qam/seed-0"


def scores(output, name):
    return sweeping.scores(output / CELL / name)


@pytest.mark.long
def test_one_training_reads_each_example_of_both_tasks_once_in_an_epoch(swept):
    assert [path.parent for path in swept.rglob("run.json")] == [swept / CELL / "run"]
    record = json.loads((swept / CELL / "run/run.json").read_text())
    assert {name: data["mixture"] for name, data in record["identity"]["data"].items()} == {
        "classification_pawsx": "xglue/pawsx: gold en 8",
        "classification_qam": "xglue/qam: gold en 24",
    }
    assert record["model"]["task_labels"] == [["pawsx", 2], ["qam", 2]]
    assert record["model"]["num_labels"] == 0
    assert record["weights"] == {"classification_pawsx": 1, "classification_qam": 3}
    assert record["steps"] == 8 and record["schedule"] == "alternate"


@pytest.mark.long
def test_the_checkpoint_is_chosen_by_the_mean_over_the_tasks(swept):
    dev = dev_of(swept / CELL / "run")
    assert {*dev} == {4, 8} and len({values["mean"] for values in dev.values()}) > 1
    assert "BEST_METRIC = 'dev/mean'\n" in (swept / CELL / "cell.gin").read_text()
    for values in dev.values():
        for name in ("mean", "en"):
            own = [values["by_task"][task][name] for task in NAMES]
            assert values[name] == pytest.approx(np.mean(own)) and len(own) == 2
    best = max(values["mean"] for values in dev.values())
    for name in NAMES:
        found = scores(swept, name)
        step = found["select"]["step"]
        assert dev[step]["mean"] == best == found["select"]["value"]
        assert found["dev"]["means"]["mean"] == dev[step]["by_task"][name]["mean"]


@pytest.mark.long
def test_the_card_has_a_row_in_the_table_of_each_task(swept):
    tables = {table["task"]: table["rows"] for table in scorecard.card(swept)["tables"]}
    assert {*tables} == {"xglue/pawsx", "xglue/qam"}
    for (row,) in tables.values():
        assert row_name(row) == "multi task pawsx+qam" and "of all tasks (dev)" in policy(row)


def test_each_task_is_predicted_by_the_head_of_its_name():
    """Both heads have the classes 0 and 1, so that nothing but the name tells them apart."""
    encoder, params = toy.model(task_labels=(("pawsx", 2), ("qam", 2)), classifier="xlm")
    texts = toy.sentences(60, seed=1)
    records = [Example(a, b, "0") for a, b in zip(texts[::2], texts[1::2], strict=True)]

    def predicted(name, params):
        run = TrainedRun(encoder, params, toy.ToyVocabulary(), toy.LANGUAGES)
        return predict(run, task_named(f"xglue/{name}"), records, "en", Reading(length=24))

    heads = params["classifiers"]
    swapped = params | {"classifiers": {"pawsx": heads["qam"], "qam": heads["pawsx"]}}
    own, other = predicted("pawsx", params), predicted("qam", params)
    assert own != other and {*own, *other} == {"0", "1"}
    assert predicted("pawsx", swapped) == other and predicted("qam", swapped) == own
    fault = head_fault(encoder, task_named("xglue/xnli"))
    assert fault == "the model has heads of pawsx, qam alone"
    assert "labels" in head_fault(encoder, task_named("xglue/qam"), ("Bad", "Good"))


@pytest.mark.long
def test_a_mixture_measures_each_task_by_its_head(swept, files, tmp_path, capsys):
    run = f"{swept / CELL}/run@{scores(swept, 'qam')['select']['step']}"
    words = ["evaluate", run, "--mixture xglue --data", files / "xglue", "--to", tmp_path]
    assert command(*words, "--tasks pawsx qam xnli --allow-missing") == 0
    passed_over = "xglue/xnli: passed over, the model has heads of pawsx, qam alone"
    assert passed_over in capsys.readouterr().out
    for name in NAMES:
        (path,) = (tmp_path / "cells/xglue" / name).rglob("scores.json")
        found = sweeping.scores(path.parent)["test"]["by_language"]
        assert found == scores(swept, name)["test"]["by_language"]


def test_classes_of_a_head_are_those_of_its_own_set():
    sets = {"classification_a": {"labels": ["x", "y"]}, "classification_b": {"labels": ["y", "x"]}}
    record = {"identity": {"data": sets}}
    found = [labels_of(record, name) for name in ("b", "c", None)]
    assert found == [["y", "x"], [], ["x", "y"]]


@pytest.mark.long
def test_other_heads_are_left_behind(swept):
    """Fine-tuned further, a model is read by the head that it is given, and by no older one."""
    run = str(swept / CELL / "run")
    assert model_of(run=run, labels="a b c").task_labels is None
    again = model_of(run=run, task_labels={"nc": "a b"})
    assert (again.task_labels, again.num_labels) == ((("nc", 2),), 0)
    assert model_of(run=run).task_labels == (("pawsx", 2), ("qam", 2))


@pytest.mark.long
def test_a_sweep_that_was_stopped_goes_on_and_other_settings_are_refused(
    swept, start, files, tmp_path, capsys
):
    again = tmp_path / "again"
    shutil.copytree(swept, again)
    cell, rate = again / CELL, "--gin.LEARNING_RATE=1e-2"
    kill(cell, left=4, last=8)
    for _ in range(2):
        assert finetune(start, files, again, rate, tasks=NAMES[::-1]) == 0
        assert "finished before" not in capsys.readouterr().out
        assert scorecard.card(again)["tables"] == scorecard.card(swept)["tables"]
        require_gone_on(cell / "run", swept / CELL / "run", left=4)
        (cell / "qam/scores.json").unlink()  # killed while the second task was tested
    shutil.copy(swept / CELL / "qam/scores.json", cell / "qam")
    stamp = (cell / "run/result.json").stat().st_mtime_ns
    assert finetune(start, files, again, rate) == 0
    assert "finished before" in capsys.readouterr().out
    assert (cell / "run/result.json").stat().st_mtime_ns == stamp
    assert finetune(start, files, again) == 2
    assert "was begun with other settings" in capsys.readouterr().err


def test_no_task_is_tested_on_what_chose_the_checkpoint(files, tmp_path):
    """Where one test set has no answers, all tasks have the halves of dev; without a dev set
    nothing can choose."""
    data = tmp_path / "xglue"
    shutil.copytree(files / "xglue", data)
    first, *others = [task_named(f"xglue/{name}") for name in NAMES]
    request = cells.Request(first, "", str(data), "", "multi_task", beside=others)

    def splits():
        return splits_of(request, {}, {"TEST_SPLIT": "test"})

    assert splits() == {}
    for path in (data / "QAM").glob("*.test"):
        lines = [line.rpartition("\t")[0] + "\n" for line in path.read_text().splitlines()]
        path.write_text("".join(lines))
    assert splits() == {"DEV_SPLIT": "dev[:50%]", "TEST_SPLIT": "dev[50%:]"}
    for path in (data / "QAM").glob("*.dev"):
        path.unlink()
    missing = "xglue/qam: no dev set below .*, which multi_task needs of each"
    with pytest.raises(UserError, match=missing):
        splits()


@pytest.mark.parametrize(
    "tasks, more, message",
    [
        (
            NAMES,
            "--strategy transfer",
            "xglue/pawsx and xglue/qam are not trained on the same exam",
        ),
        (NAMES, "--strategy multi_task transfer", "multi_task trains all tasks at once"),
        (["qam", "qam"], "", "multi_task: name two tasks or more, each"),
        (["qam", "ner"], "", "xglue/ner is one of tagging, and all must classify; leave it out"),
        (NAMES, "--gin.CLASSIFIER=plug_in", "CLASSIFIER=plug_in: multi_task has a head"),
        (NAMES, "--gin.TASK_WEIGHTS={'nc': 1}", "TASK_WEIGHTS are of nc, the tasks pawsx, qam"),
    ],
)
def test_what_cannot_be_meant_is_refused(tasks, more, message, start, files, tmp_path, capsys):
    assert finetune(start, files, tmp_path, more, tasks=tasks) == 2
    assert message in capsys.readouterr().err
    assert not [*tmp_path.rglob("run.json")]
