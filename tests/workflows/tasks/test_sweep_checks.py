"""What a sweep refuses, and when: before anything is trained, of all strategies, settings and
languages at once."""

import functools
import json
import shutil

import jax
import orbax.checkpoint as ocp
import pytest

from tests.helpers import sweeping
from tests.helpers.sweeping import command, finetune, random_run, scores
from xlingjax.data.labelled.task import find
from xlingjax.tasks import task_named
from xlingjax.training.checkpoint_params import HashedPath
from xlingjax.workflows.tasks import cell as cell_training

files, start = sweeping.files, sweeping.start


@pytest.fixture
def untrained(monkeypatch):
    monkeypatch.setattr(cell_training, "launch", lambda *_: pytest.fail("it was trained"))


@pytest.fixture
def xnli(start, files, tmp_path, capsys, untrained):
    """Refuses a sweep of XNLI, or of another task or files, with a message."""

    def refuse(message, *more, task="xtreme/xnli", data=files, run=start):
        assert finetune(task, run, data, tmp_path / "out", *more) == 2
        told = capsys.readouterr().err
        assert message in told and told.count("\n") == 1 and not (tmp_path / "out/cells").exists()

    return refuse


trained = functools.partial(pytest.raises, pytest.fail.Exception, match="it was trained")


@pytest.mark.parametrize(
    "more, message",
    [
        (
            "--strategy transfer multi_langage",
            "no strategy; did you mean 'multi_language'?",
        ),
        ("--grid BATCH=8,0", "BATCH=0: a number above 0"),
        ("--grid LENGTH=24,90", "LENGTH=90: such rows do not fit the 64 positions of"),
        ("--strategy transfer plug_in", "CLASSIFIER=plug_in goes through cross-attention, which"),
        (
            "--grid EPOCHS=1,2 EPOCHS=3",
            "--grid EPOCHS=3: write MACRO=A,B, as in LEARNING_RATE=1e-5,2e-5, once for each",
        ),
        (
            "--gin.EPOCHS=2 --grid EPOCHS=1,3",
            "EPOCHS: --gin.EPOCHS and --grid both set it: give one of them",
        ),
        (
            "--grid CLASSIFIER_DROPOUT=0,much",
            "CLASSIFIER_DROPOUT='much': a number or None is needed",
        ),
        (
            "--strategy transfer pivot --languages xx",
            "--languages: transfer does not run over languages",
        ),
    ],
)
def test_the_last_of_several_is_refused_before_the_first_is_trained(more, message, xnli):
    xnli(message, more)


def test_rows_of_a_test_set_that_are_trained_on_are_told(start, files, tmp_path, capsys, untrained):
    data = tmp_path / "data"
    shutil.copytree(files / "xtreme", data / "xtreme")
    task = task_named("xtreme/xnli")
    paths = [find(task, data / "xtreme", *of).paths[0] for of in (("train", "en"), ("test", "de"))]
    shutil.copy(*paths)
    with trained():
        finetune(task.full_name, start, data, tmp_path / "out")
    told = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert len(told) == 1 and told[0].startswith(
        f"warning: {paths[1]}: 24 of 24 rows are training examples, too (100.0%): MOST OF THIS"
    )


@pytest.mark.parametrize(
    "train, other",
    [
        ("train", "DEV_SPLIT=train[50%:]"),
        ("train", "TEST_SPLIT=train"),
        ("train[:12]", "DEV_SPLIT=train[11:]"),
    ],
)
def test_what_is_trained_on_neither_chooses_nor_tests(train, other, xnli):
    told = f"TRAIN_SPLIT={train} and {other} share examples"
    xnli(told, f"--gin.TRAIN_SPLIT={train}", f"--gin.{other}")


def test_dev_that_was_trained_on_chooses_no_settings_either(xnli, start, files, tmp_path):
    """SELECT=last chooses no checkpoint, a grid chooses settings all the same."""
    last = "--gin.SELECT=last --gin.DEV_SPLIT=train[20:]"
    rates = "--grid LEARNING_RATE=1e-2,1e-3"
    xnli("TRAIN_SPLIT=train and DEV_SPLIT=train[20:] share examples", last, rates)
    told = "DEV_SPLIT=dev and TEST_SPLIT=dev share examples"
    xnli(told, "--gin.SELECT=last --gin.TEST_SPLIT=dev", rates)
    with trained():  # what nothing goes by may be looked at
        finetune("xtreme/xnli", start, files, tmp_path / "out", last)


def test_rows_of_questions_are_held_out_of_translations_by_rows_alone(xnli, start, files, tmp_path):
    """MLQA's ids correspond, but a part in rows is not cut by them."""
    root = tmp_path / "files" / "xtreme"
    for name in ("squad", "mlqa"):
        shutil.copytree(files / "xtreme" / name, root / name)
    path = root / "squad/translate-train/squad.translate.train.en-de.json"
    told = json.loads(path.read_text("utf-8"))
    del told["data"][:3]
    path.write_text(json.dumps(told), "utf-8")
    short = "--gin.LENGTH=64 --gin.MAX_QUESTION=20"
    more = f"--strategy multi_language --gin.DEV_LANGUAGES=en {short}"
    mlqa = {"task": "xtreme/mlqa", "data": tmp_path / "files"}
    what = (
        "21 examples translated into 'de', of 24 in 'en': which of them translate the rows of"
        " DEV_SPLIT=train[18:]"
    )
    xnli(what, more, "--gin.TRAIN_SPLIT=train[:18] --gin.DEV_SPLIT=train[18:]", **mlqa)
    what = "DEV_SPLIT=dev[:50%] and TEST_SPLIT=dev[6:] share examples"
    xnli(what, short, "--gin.DEV_SPLIT=dev[:50%] --gin.TEST_SPLIT=dev[6:]", task="xtreme/mlqa")
    shares = "--gin.TRAIN_SPLIT=train[:75%] --gin.DEV_SPLIT=train[75%:]"
    with trained():  # these are cut by ids
        finetune("xtreme/mlqa", start, tmp_path / "files", tmp_path / "out", more, shares)


@pytest.mark.parametrize(
    "name, message",
    [
        (
            "translate-test/test-ru-en-translated.tsv",
            "1 of 12 examples in 'ru' have no partner by original text in 'en'",
        ),
        ("dev-ru.tsv", "11 examples in 'ru' and 12 in 'en'"),
    ],
)
def test_texts_that_do_not_correspond_are_known_before_plug_in(
    name, message, xnli, files, tmp_path
):
    start, data = random_run(tmp_path, files, cross_attention=True), tmp_path / "files"
    shutil.copytree(files / "xtreme" / "xnli", data / "xtreme" / "xnli")
    path = data / "xtreme" / "xnli" / name
    path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[:-1]), "utf-8")
    place = f"xnli/{name if 'test' in name else 'dev-en.tsv'})"
    for what in (message, place):
        xnli(what, "--strategy plug_in", data=data, run=start)


@pytest.mark.long
def test_a_suite_trains_the_other_tasks_and_writes_their_card(start, files, tmp_path, capsys):
    data = tmp_path / "files"
    for name in ("xnli", "pawsx"):
        shutil.copytree(files / "xtreme" / name, data / name)
    (data / "pawsx" / "dev-de.tsv").write_text("A\tB\tmaybe\n")
    words = ["evaluate", start, "--suite xtreme --tasks pawsx xnli --data", data]
    more = "--strategy transfer lookup --gin.TRAIN_STEPS=1 --gin.LENGTH=24 --gin.BATCH=8"
    assert command(*words, "--to", tmp_path / "out", "--allow-missing", more) == 2
    told = capsys.readouterr()
    passed_over = "xtreme/xnli: passed over, lookup: xtreme/xnli: lookup is for tagging, and this"
    for part in ("xtreme/pawsx: ", "unknown label 'maybe'", passed_over, "## xtreme/xnli"):
        assert part in told.out
    said = "xtreme/pawsx could not be measured (above); the card is of the others\n"
    assert told.err.endswith(said)
    assert (tmp_path / "out/card.md").exists()
    assert not (tmp_path / "out/cells/xtreme/pawsx").exists()


@pytest.mark.long
def test_a_cell_goes_on_from_the_weights_that_it_began_from_alone(files, tmp_path, capsys):
    """The pretraining beside it went on: its newest checkpoint is another."""
    start, output = random_run(tmp_path, files), tmp_path / "out"
    more = "xtreme/xnli", start, files, output, "--gin.TRAIN_STEPS=2"
    assert finetune(*more) == 0
    cell = output / "cells/xtreme/xnli/transfer/seed-0"
    began = scores(cell)["start"]["sha256"]
    (cell / "scores.json").unlink()  # it was stopped before it was tested
    with ocp.Checkpointer(ocp.StandardCheckpointHandler(), temporary_path_class=HashedPath) as io:
        params = io.restore(start / "checkpoints/7/params")
        params = jax.tree.map(lambda x: x + 1, params)
        io.save(start / "checkpoints/9/params", args=ocp.args.StandardSave(params))
    capsys.readouterr()
    assert finetune(*more, "--seeds 2") == 2
    told = capsys.readouterr().err
    assert f"seed-0 was begun with other weights than {start} has now" in told
    shutil.rmtree(start / "checkpoints/9")
    assert finetune(*more) == 0 and scores(cell)["start"]["sha256"] == began


def test_parts_of_parallel_sets_need_as_many_rows_in_each_language(xnli, start, files, tmp_path):
    """Else a sentence that chooses in one language would test in another."""
    data = tmp_path / "files"
    shutil.copytree(files / "xtreme" / "xnli", data / "xtreme" / "xnli")
    path = data / "xtreme" / "xnli" / "dev-ru.tsv"
    path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[:8]), "utf-8")
    halves = "--gin.DEV_SPLIT=dev[:50%] --gin.TEST_SPLIT=dev[50%:]"
    what = "xtreme/xnli: the rows of its languages translate each other, and their numbers differ"
    xnli(what, halves, data=data)
    halves += " --gin.TEST_LANGUAGES=de --gin.DEV_LANGUAGES=en"
    with trained():
        finetune("xtreme/xnli", start, data, tmp_path / "out", halves)
