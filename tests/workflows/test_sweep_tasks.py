"""`xlingjax finetune --task A B --strategy multi_task`: one training of several tasks, each by a
head of its own."""

import json
import shutil

import numpy as np
import pytest

from tests.helpers import official_files, toy
from tests.helpers.sweeping import dev_of, kill, random_run, require_gone_on
from xlingjax.cli import main
from xlingjax.config.model import model as model_of
from xlingjax.data.labelled.records import Example
from xlingjax.data.labelled.task import read
from xlingjax.errors import UserError
from xlingjax.evaluation.task.heads import head_fault
from xlingjax.evaluation.task.predictions import predict
from xlingjax.evaluation.task.scores import TasksScore
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.tasks import task_named
from xlingjax.training.run_record import labels_of
from xlingjax.workflows import cell as cells
from xlingjax.workflows.cell_splits import splits_of
from xlingjax.workflows.scorecard import card as scorecard
from xlingjax.workflows.scorecard.rows import policy, row_name

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
    words = [
        "finetune",
        start,
        "--task",
        *(f"xglue/{name}" for name in tasks),
        "--data",
        files / "xglue",
    ]
    settings = [
        "--gin.LENGTH=24",
        "--gin.BATCH=8",
        "--gin.EPOCHS=2",
        "--gin.DROPOUT=0",
        "--gin.ATTENTION_DROPOUT=0",
    ]
    settings.append("--gin.KEEP_CHECKPOINTS=2")
    strategy = ["--allow-missing", *([] if "--strategy" in more else ["--strategy", "multi_task"])]
    return main.main([str(word) for word in [*words, "--to", output, *strategy, *more, *settings]])


@pytest.fixture(scope="module")
def swept(start, files, tmp_path_factory):
    output = tmp_path_factory.mktemp("swept")
    assert finetune(start, files, output, "--gin.LEARNING_RATE=1e-2") == 0
    return output


CELL = "cells/xglue/multi_task/pawsx+qam/seed-0"


def scores(output, name):
    return json.loads((output / CELL / name / "scores.json").read_text())


@pytest.mark.long
def test_one_training_reads_each_example_of_both_tasks_once_in_an_epoch(swept):
    assert [path.parent for path in swept.rglob("run.json")] == [swept / CELL / "run"]
    record = json.loads((swept / CELL / "run/run.json").read_text())
    told = {name: data["mixture"] for name, data in record["identity"]["data"].items()}
    assert told == {
        "classification_pawsx": "xglue/pawsx: gold en 8",
        "classification_qam": "xglue/qam: gold en 24",
    }
    assert (
        record["model"]["task_labels"] == [["pawsx", 2], ["qam", 2]]
        and record["model"]["num_labels"] == 0
    )
    assert (
        record["weights"] == {"classification_pawsx": 1, "classification_qam": 3}
        and record["steps"] == 8
    )
    assert record["schedule"] == "alternate"


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


def test_the_mean_over_the_tasks_is_of_each_alike():
    def of(name, **values):
        return type(
            "Score", (), {"task": task_named(f"xglue/{name}"), "__call__": lambda *given: values}
        )()

    found = TasksScore([of("pawsx", mean=10.0, en=30.0), of("qam", mean=60.0, en=80.0)])(
        None, None, 1
    )
    assert found["mean"] == 35.0 and found["en"] == 55.0 and found["by_task"]["qam"]["mean"] == 60.0
    assert "en" not in TasksScore([of("pawsx", mean=10.0, en=3.0), of("qam", mean=6.0)])(
        None, None, 1
    )


@pytest.mark.long
def test_the_card_has_a_row_in_the_table_of_each_task(swept, files):
    tables = {table["task"]: table["rows"] for table in scorecard.card(swept)["tables"]}
    assert {*tables} == {"xglue/pawsx", "xglue/qam"}
    for name in NAMES:
        (row,) = tables[f"xglue/{name}"]
        assert row_name(row) == "multi task pawsx+qam" and "of all tasks (dev)" in policy(row)
        lines = map(json.loads, (swept / CELL / "run/evaluations.jsonl").read_text().splitlines())
        assert row["curves"] == [[[x["step"], x["values"]["by_task"][name]["mean"]] for x in lines]]
        task, labels = task_named(f"xglue/{name}"), set()
        for code in LANGUAGES:  # the submission's lines are the predictions that were scored
            made = (
                (swept / CELL / name / "predictions" / task.submission.format(language=code))
                .read_text()
                .split()
            )
            gold = [example.label for example in read(task, files / "xglue", "test", code)]
            labels |= {*made}
            right = 100 * np.mean([a == b for a, b in zip(gold, made, strict=True)])
            assert row["by_language"]["accuracy"][code]["mean"] == pytest.approx(right)
        assert len(labels) > 1


def test_each_task_is_predicted_by_the_head_of_its_name():
    """Both heads have the classes 0 and 1, so that nothing but the name tells them apart."""
    encoder, params = toy.model(task_labels=(("pawsx", 2), ("qam", 2)), classifier="xlm")
    texts = toy.sentences(60, seed=1)
    records = [Example(a, b, "0") for a, b in zip(texts[::2], texts[1::2], strict=True)]

    def predicted(name, params):
        task, more = (
            task_named(f"xglue/{name}"),
            (toy.ToyVocabulary(), toy.LANGUAGES, "en", Reading(length=24)),
        )
        return predict(encoder, params, task, records, *more)

    swapped = params | {
        "classifiers": dict(
            zip(NAMES, [params["classifiers"][n] for n in NAMES[::-1]], strict=True)
        )
    }
    own, other = predicted("pawsx", params), predicted("qam", params)
    assert own != other and {*own, *other} == {"0", "1"}
    assert predicted("pawsx", swapped) == other and predicted("qam", swapped) == own
    fault = head_fault(encoder, task_named("xglue/xnli"))
    assert fault == "the model has heads of pawsx, qam alone"
    assert "labels" in head_fault(encoder, task_named("xglue/qam"), ("Bad", "Good"))


@pytest.mark.long
def test_a_mixture_measures_each_task_by_its_head(swept, files, tmp_path, capsys):
    run = f"{swept / CELL}/run@{scores(swept, 'qam')['select']['step']}"
    words = [
        "evaluate",
        run,
        "--mixture",
        "xglue",
        "--data",
        files / "xglue",
        "--to",
        tmp_path,
    ]
    tasks = ["--tasks", *NAMES, "xnli", "--allow-missing"]
    assert main.main([str(word) for word in [*words, *tasks]]) == 0
    assert (
        "xglue/xnli: passed over, the model has heads of pawsx, qam alone"
        in capsys.readouterr().out
    )
    for name in NAMES:
        (path,) = (tmp_path / "cells/xglue" / name).rglob("scores.json")
        assert (
            json.loads(path.read_text())["test"]["by_language"]
            == scores(swept, name)["test"]["by_language"]
        )


def test_classes_of_a_head_are_those_of_its_own_set():
    sets = {"classification_a": {"labels": ["x", "y"]}, "classification_b": {"labels": ["y", "x"]}}
    record = {"identity": {"data": sets}}
    assert (labels_of(record, "b"), labels_of(record, "c"), labels_of(record)) == (
        ["y", "x"],
        [],
        ["x", "y"],
    )


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
    shutil.copytree(swept, tmp_path / "again")
    cell = tmp_path / "again" / CELL
    kill(cell, left=4, last=8)
    for _ in range(2):
        assert (
            finetune(
                start, files, tmp_path / "again", "--gin.LEARNING_RATE=1e-2", tasks=NAMES[::-1]
            )
            == 0
        )
        assert "finished before" not in capsys.readouterr().out
        assert scorecard.card(tmp_path / "again")["tables"] == scorecard.card(swept)["tables"]
        require_gone_on(cell / "run", swept / CELL / "run", left=4)
        (cell / "qam/scores.json").unlink()  # killed while the second task was tested
    shutil.copy(swept / CELL / "qam/scores.json", cell / "qam")
    stamp = (cell / "run/result.json").stat().st_mtime_ns
    assert finetune(start, files, tmp_path / "again", "--gin.LEARNING_RATE=1e-2") == 0
    assert (
        "finished before" in capsys.readouterr().out
        and (cell / "run/result.json").stat().st_mtime_ns == stamp
    )
    assert finetune(start, files, tmp_path / "again") == 2
    assert "was begun with other settings" in capsys.readouterr().err


def test_no_task_is_tested_on_what_chose_the_checkpoint(files, tmp_path):
    """Where one test set has no answers, all tasks have the halves of dev; without a dev set
    nothing can choose."""
    shutil.copytree(files / "xglue", tmp_path / "xglue")
    tasks = [task_named(f"xglue/{name}") for name in NAMES]
    request = cells.Request(
        tasks[0], "", str(tmp_path / "xglue"), "", "multi_task", beside=tasks[1:]
    )
    assert splits_of(request, {}, {"TEST_SPLIT": "test"}) == {}
    for path in (tmp_path / "xglue/QAM").glob("*.test"):
        path.write_text(
            "".join(line.rpartition("\t")[0] + "\n" for line in path.read_text().splitlines())
        )
    halves = {"DEV_SPLIT": "dev[:50%]", "TEST_SPLIT": "dev[50%:]"}
    assert splits_of(request, {}, {"TEST_SPLIT": "test"}) == halves
    for path in (tmp_path / "xglue/QAM").glob("*.dev"):
        path.unlink()
    with pytest.raises(
        UserError, match="xglue/qam: no dev set below .*, which multi_task needs of each"
    ):
        splits_of(request, {}, {"TEST_SPLIT": "test"})


@pytest.mark.parametrize(
    "tasks, more, message",
    [
        (
            NAMES,
            ["--strategy", "transfer"],
            "xglue/pawsx and xglue/qam are not trained on the same examples, so they are not one",
        ),
        (
            NAMES,
            ["--strategy", "multi_task", "transfer"],
            "multi_task trains all tasks at once; give it alone",
        ),
        (["qam"], [], "multi_task of xglue/qam: name two tasks or more, each once"),
        (
            ["qam", "qam"],
            [],
            "multi_task of xglue/qam xglue/qam: name two tasks or more, each once",
        ),
        (["qam", "ner"], [], "xglue/ner is one of tagging, and all must classify; leave it out"),
        (NAMES, ["--languages", "de"], "multi_task does not run over languages"),
        (NAMES, ["--gin.CLASSIFIER=plug_in"], "CLASSIFIER=plug_in: multi_task has a head"),
        (
            NAMES,
            ["--gin.TASK_WEIGHTS={'nc': 1}"],
            "TASK_WEIGHTS are of nc and the tasks pawsx, qam",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(tasks, more, message, start, files, tmp_path, capsys):
    assert finetune(start, files, tmp_path, *more, tasks=tasks) == 2
    assert message in capsys.readouterr().err
    assert not [*tmp_path.rglob("run.json")]


def test_tasks_of_two_benchmarks_and_suites_are_refused(start, files, tmp_path, capsys):
    paths = [
        str(start),
        "--data",
        str(files),
        "--to",
        str(tmp_path),
        "--strategy",
        "multi_task",
    ]
    assert main.main(["finetune", *paths, "--task", "xglue/qam", "xtreme/pawsx"]) == 2
    assert "xtreme/pawsx and xglue/qam are of two benchmarks" in capsys.readouterr().err
    assert main.main(["evaluate", *paths, "--suite", "xglue"]) == 2
    assert (
        "name its tasks: `xlingjax finetune --task A B --strategy multi_task`"
        in capsys.readouterr().err
    )
