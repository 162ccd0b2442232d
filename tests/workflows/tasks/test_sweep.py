"""`xlingjax finetune --task`: cells, their choice and their table; a sweep that is stopped goes
on."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from tests.helpers import sweeping
from tests.helpers.sweeping import (
    LANGUAGES,
    command,
    dev_of,
    finetune,
    kill,
    mixture,
    random_run,
    refused,
    require_gone_on,
    scores,
)
from xlingjax.data.labelled.task import read
from xlingjax.evaluation.task.predictions import predict
from xlingjax.inference.run import open_run
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.tasks import task_named
from xlingjax.workflows.scorecard import card as scorecard
from xlingjax.workflows.scorecard.rows import rows_of
from xlingjax.workflows.tasks import baselines
from xlingjax.workflows.tasks import request as cells
from xlingjax.workflows.tasks.strategies import Unsuited
from xlingjax.workflows.tasks.sweep import check

files, start, swept = sweeping.files, sweeping.start, sweeping.swept


def test_a_cell_is_trained_chosen_on_dev_and_tested_in_every_language(swept, files):
    folder = swept / "cells/xtreme/xnli/transfer"
    test = scores(folder / "seed-1")["test"]
    assert test["split"] == "test" and {*test["by_language"]} == {*LANGUAGES}
    assert test["examples"] == {code: 12 for code in LANGUAGES}
    # 24 examples, batches of 8, 2 epochs.
    recipe = (folder / "seed-1/cell.gin").read_text()
    assert "TRAIN_STEPS = 6\n" in recipe and "EVAL_EVERY = 3\n" in recipe
    for seed in ("seed-0", "seed-1"):
        chosen = scores(folder / seed)
        dev = {step: values["mean"] for step, values in dev_of(folder / seed / "run").items()}
        assert {*dev} == {3, 6} and len({*dev.values()}) > 1
        assert dev[chosen["select"]["step"]] == max(dev.values()) == chosen["dev"]["means"]["mean"]
    # the submission's lines are the predictions that were scored
    task, labels = task_named("xtreme/xnli"), set()
    for code in LANGUAGES:
        gold = [example.label for example in read(task, files / "xtreme", "test", code)]
        made = (folder / f"seed-1/predictions/xnli/test-{code}.tsv").read_text().split()
        right = np.mean([a == b for a, b in zip(gold, made, strict=True)])
        labels |= {*made}
        assert test["by_language"][code]["accuracy"] == pytest.approx(100 * right)
    assert len(labels) > 1
    values = [test["by_language"][code]["accuracy"] for code in LANGUAGES]
    assert test["means"]["mean"] == pytest.approx(np.mean(values))
    assert test["means"]["gap"] == pytest.approx(values[1] - (values[0] + values[2]) / 2)


def test_each_seed_is_tested_at_its_own_best_step(swept, start, files, tmp_path):
    """Seed 0 is best at step 3, where it is given the weights of seed 1; its last weights are not
    tested."""
    shutil.copytree(swept, tmp_path / "again")
    first, second = (tmp_path / f"again/cells/xtreme/xnli/transfer/seed-{seed}" for seed in (0, 1))
    before = [scores(swept, "xtreme/xnli/transfer", f"seed-{seed}")["test"] for seed in (0, 1)]
    assert before[0]["by_language"] != before[1]["by_language"]
    at = scores(swept, "xtreme/xnli/transfer/seed-1")["select"]["step"]
    shutil.rmtree(first / "run/checkpoints/3")
    shutil.copytree(second / f"run/checkpoints/{at}", first / "run/checkpoints/3")
    (first / "run/best.json").write_text(json.dumps({"dev/mean": {"step": 3, "value": 99.0}}))
    (first / "scores.json").unlink()
    assert finetune("xtreme/xnli", start, files, tmp_path / "again", "--seeds 2") == 0
    cells = [scores(tmp_path / "again", "xtreme/xnli/transfer", f"seed-{seed}") for seed in (0, 1)]
    assert [cell["select"]["step"] for cell in cells] == [3, at]
    assert cells[0]["test"] == cells[1]["test"] == before[1]
    (row,) = rows_of(cells)
    assert row["select"]["step"] == [3, at] and row["seeds"] == [0, 1]
    assert row["means"]["mean"] == {"mean": before[1]["means"]["mean"], "sd": 0.0}


@pytest.mark.long
def test_a_sweep_that_was_stopped_gives_the_table_of_one_that_was_not(
    swept, start, files, tmp_path, capsys
):
    shutil.copytree(swept, tmp_path / "again")
    cells = tmp_path / "again/cells/xtreme/xnli/transfer"
    kill(cells / "seed-0", left=3, last=6)
    before = {
        name: (cells / "seed-1" / name).stat().st_mtime_ns
        for name in ("scores.json", "run/result.json")
    }
    assert finetune("xtreme/xnli", start, files, tmp_path / "again", "--seeds 2") == 0
    assert capsys.readouterr().out.count("finished before") == 1
    for name, stamp in before.items():
        assert (cells / "seed-1" / name).stat().st_mtime_ns == stamp
    require_gone_on(cells / "seed-0/run", swept / "cells/xtreme/xnli/transfer/seed-0/run", left=3)
    old, new = scorecard.card(swept), scorecard.card(tmp_path / "again")
    assert old["tables"] == new["tables"]


@pytest.mark.long
def test_other_settings_in_a_cells_folder_are_refused(swept, start, files, tmp_path, capsys):
    assert finetune("xtreme/xnli", start, files, swept, "--gin.LEARNING_RATE=0.5") == 2
    told = capsys.readouterr().err
    assert "was begun with other settings" in told and "LEARNING_RATE = 0.5" in told
    # The scores remain.
    shutil.copytree(swept, tmp_path / "kept", ignore=shutil.ignore_patterns("run"))
    assert finetune("xtreme/xnli", start, files, tmp_path / "kept", "--gin.LEARNING_RATE=0.5") == 2
    assert "was begun with other settings" in capsys.readouterr().err
    assert finetune("xtreme/xnli", start, files, tmp_path / "kept", "--seeds 2") == 0
    assert capsys.readouterr().out.count("finished before") == 2


@pytest.mark.long
def test_every_strategy_trains_on_what_it_says(start, files, tmp_path):
    """Pivots, targets, all at once, translated test sets, a teacher's labels; one step each."""
    for strategies in (
        "pivot --languages de",
        "translate_train --languages de",
        "multi_language translate_test teacher random_initialisation",
        "majority",
    ):
        more = f"--gin.TRAIN_STEPS=1 --strategy {strategies}"
        assert finetune("xtreme/xnli", start, files, tmp_path, more) == 0
    cells = tmp_path / "cells/xtreme/xnli"
    translated = "xtreme/xnli: translated de 24"
    for cell, trained_on in {
        "pivot/de": translated,  # there is no gold German
        "translate_train/de": translated,
        "multi_language": "xtreme/xnli: gold en 24, translated de 24, translated ru 24",
        "translate_test": "xtreme/xnli: gold en 24",
        "teacher": "xtreme/xnli: gold en 24, labelled de 24, labelled ru 24",
    }.items():
        assert mixture(cells / cell / "seed-0/run") == trained_on
    assert {*scores(cells / "translate_train/de/seed-0")["test"]["by_language"]} == {"de"}
    assert scores(cells / "translate_test/seed-0")["test"]["split"] == "translate_test"
    assert scores(cells / "random_initialisation/seed-0")["start"]["sha256"] == "random"
    # the teacher's labels are what the transfer model says of the translated sentences
    task = task_named("xtreme/xnli")
    chosen = scores(cells / "transfer/seed-0")["select"]["step"]
    teacher = open_run(cells / f"transfer/seed-0/run@{chosen}")
    for code in ("de", "ru"):
        path = cells / f"teacher/seed-0/labelled/xnli.{code}.jsonl"
        labelled = [json.loads(line) for line in path.open()]
        gold = read(task, files / "xtreme", "translate_train", code)
        texts = [(one.premise, one.line) for one in gold]
        assert [(one["premise"], one["line"]) for one in labelled] == texts
        told = predict(teacher, task, gold, code, Reading(length=24))
        assert [one["label"] for one in labelled] == told != [one.label for one in gold]
        assert len({*told}) > 1


@pytest.mark.long
def test_files_that_were_edited_are_named(swept, start, files, tmp_path, capsys):
    """What a cell read is not what lies there now."""
    shutil.copytree(swept, tmp_path / "again")
    cell = tmp_path / "again/cells/xtreme/xnli/transfer/seed-0"
    read_there = files / "xtreme/xnli"
    expected = ["train-en", *(f"{split}-{code}" for split in ("dev", "test") for code in LANGUAGES)]
    begun = json.loads((cell / "files.json").read_text())
    assert sorted(begun) == ["start", *sorted(f"xnli/{name}.tsv" for name in expected)]
    text = (read_there / "test-de.tsv").read_bytes()

    def again():
        return finetune("xtreme/xnli", start, files, tmp_path / "again"), capsys.readouterr().err

    try:
        (read_there / "test-de.tsv").write_bytes(b"X" + text[1:])  # as long as before
        status, told = again()
        fault = f"{cell} was begun with other files: xnli/test-de.tsv was edited below"
        assert status == 2 and fault in told and told.count("\n") == 1
        (read_there / "test-de.tsv").write_bytes(text)
        (cell / "files.json").write_text(json.dumps(begun | {"xnli/dev-fr.tsv": "0"}))
        (cell / "scores.json").unlink()  # it was stopped while it trained
        assert "xnli/dev-fr.tsv is not read now" in again()[1]
        assert not (cell / "scores.json").exists()
    finally:
        (read_there / "test-de.tsv").write_bytes(text)


def test_floors_without_a_model(files):
    task = task_named("xtreme/udpos")
    train = read(task, files / "xtreme", "train", "en")
    tagged = [pair for one in train for pair in zip(one.words, one.tags, strict=True)]

    def commonest(tags):
        return max(sorted({*tags}, key=task.labels.index), key=tags.count)

    most = commonest([tag for _, tag in tagged])
    (made,) = baselines.majority(task, train)(train[:1])
    assert made == [most] * len(train[0].words)
    unknown = dataclasses.replace(train[0], words=("THE", "zzzz"), tags=())
    the = commonest([tag for word, tag in tagged if word.lower() == "the"])
    assert baselines.lookup(task, train)([unknown]) == [[the, most]]


def test_a_head_of_other_labels_is_no_start(start, files, tmp_path, capsys):
    """As many labels are not the same labels."""
    shutil.copytree(start, tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    record |= {"labels": ["Bad", "Good"], "model": record["model"] | {"num_labels": 2}}
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    assert finetune("xtreme/pawsx", tmp_path / "run", files, tmp_path / "out") == 2
    told = capsys.readouterr().err
    assert (
        "has a head for the labels Bad, Good, and those to learn are 0, 1: start from the run"
        " that it" in told
    )
    assert not (tmp_path / "out" / "cells").exists()


@pytest.mark.long
def test_languages_that_an_embedding_lacks_are_known_before_the_training(files, tmp_path, capsys):
    start = random_run(tmp_path, files, num_languages=3)
    output, data = tmp_path / "out", tmp_path / "data"
    shutil.copytree(files / "xtreme" / "pawsx", data / "pawsx")
    shutil.copy(data / "pawsx" / "dev-en.tsv", data / "pawsx" / "dev-ko.tsv")
    words = ["finetune", start, "--task xtreme/pawsx --data", data]
    words += ["--gin.TRAIN_STEPS=1 --gin.LENGTH=24 --gin.BATCH=8 --gin.SELECT=mean"]
    words += ["--gin.TEST_LANGUAGES='de en'"]
    unknown = "embeds languages and does not know ko: name others by --gin.DEV_LANGUAGES"
    refused(capsys, output, unknown, *words)
    assert command(*words, "--to", output, "--allow-missing") == 0
    found = scores(output, "xtreme/pawsx/transfer/seed-0")
    assert {*found["dev"]["by_language"]} == {"de", "en"}
    assert found["trained"] == {"split": "train", "examples": 24}


def test_values_of_macros_are_looked_up():
    assert cells.values_of({"A": "%B", "B": "'de'", "C": "1e-4", "D": "@f()", "x.y": "3"}) == {
        "A": "de", "B": "de", "C": 1e-4, "D": "@f()",
    }  # fmt: skip


@pytest.mark.parametrize(
    "task, strategy, message",
    [
        ("pawsx", "all_gold", "en has train files below"),
        ("pawsx", "multi_language", "no language has translate_train files below"),
        ("pawsx", "translate_train", "no translate_train files below"),
        ("pawsx", "teacher", "no translated training sets below"),
        ("pawsx", "translate_test", "no translate_test set below"),
        ("pawsx", "lookup", "lookup is for tagging, and this is classification"),
        ("xquad", "majority", "majority is for classification, ranking, tagging, and"),
        ("xquad", "teacher", "a teacher labels classes, ranks and tags, and"),
        ("xquad", "translate_test", "of a translation is none of what was translated"),
        ("xquad", "translate_train", "translate_train has no language to be tested in"),
    ],
)
def test_a_strategy_that_is_none_for_a_task_or_lacks_its_files(
    task, strategy, message, start, files, tmp_path
):
    for name in ("pawsx", "squad", "xquad"):
        shutil.copytree(files / "xtreme" / name, tmp_path / name)
    if task == "pawsx":
        for folder in tmp_path.glob("pawsx/translate-*"):
            shutil.rmtree(folder)
    for path in (tmp_path / "xquad").glob("*.json"):  # XTREME's are so
        told = json.loads(path.read_text("utf-8"))
        for article in told["data"]:
            article["paragraphs"][0]["qas"][0]["answers"] = []
        path.write_text(json.dumps(told), "utf-8")
    (tmp_path / "xquad/translate-test").mkdir()
    (tmp_path / "xquad/translate-test/xquad.translate.test.de-en.json").write_text("{}")
    asked = (str(start), str(tmp_path), str(tmp_path / "out"), strategy)
    short = ("LENGTH=24", "BATCH=8")
    request = cells.Request(
        task_named(f"xtreme/{task}"), *asked, overrides=short, allow_missing=True
    )
    with pytest.raises(Unsuited, match=message):
        check(request, devices=1)


@pytest.mark.parametrize(
    "more, message",
    [
        ("--strategy tranfer", "--strategy tranfer: no strategy; did you mean 'transfer'?"),
        ("--languages de", "transfer does not run over languages"),
        ("--strategy pivot --languages zz", "no training examples of them"),
        ("--gin.SELECT=best", "SELECT=best: choose mean, en or last"),
        ("--grid SEED=1,2", "SEED: a sweep has it from --seeds"),
        ("--gin.KEEP_BEST=0", "SELECT=mean takes the checkpoint that is best on dev"),
        ("--gin.EVALUATIONS=0", "EVALUATIONS=0: a number above 0 is needed"),
        ("--gin.TEST_SPLIT='dev[50%:]'", "DEV_SPLIT=dev and TEST_SPLIT=dev[50%:] share examples"),
        ("--gin.DEV_SPLIT='dev[:7]' --gin.TEST_SPLIT='dev[50%:]'", "share examples"),  # of 12
    ],
)
def test_what_cannot_be_meant_is_refused(more, message, start, files, tmp_path, capsys):
    assert finetune("xtreme/xnli", start, files, tmp_path / "out", more) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out" / "cells").exists()
