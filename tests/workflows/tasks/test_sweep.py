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
from xlingjax.errors import UserError
from xlingjax.evaluation.task.predictions import predict, translations
from xlingjax.inference.run import open_run
from xlingjax.preprocessors.task_rows import Reading, beside_rows
from xlingjax.tasks import task_named
from xlingjax.workflows.scorecard import card as scorecard
from xlingjax.workflows.scorecard.rows import policy, rows_of
from xlingjax.workflows.tasks import baselines
from xlingjax.workflows.tasks import cell as cell_training
from xlingjax.workflows.tasks import request as cells
from xlingjax.workflows.tasks.strategies import lacking

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


def test_the_card_is_the_mean_of_the_seeds_own_test_scores(swept):
    (row,) = scorecard.card(swept)["tables"][0]["rows"]
    cells = [scores(swept, "xtreme/xnli/transfer", f"seed-{seed}") for seed in (0, 1)]
    per_seed = [cell["test"]["means"]["mean"] for cell in cells]
    assert row["means"]["mean"]["mean"] == pytest.approx(np.mean(per_seed))
    assert row["means"]["mean"]["sd"] == pytest.approx(np.std(per_seed, ddof=1))
    text = (swept / "card.md").read_text()
    assert "| transfer  " in text and "chosen by the mean of dev in de, en, ru (dev)" in text
    assert "trained on 24 examples (train)" in text
    assert "VECO (Luo et al. 2021), Table 2" in text
    assert r"\toprule" in (swept / "card.tex").read_text()
    assert "<table" in (swept / "card.html").read_text()
    assert json.loads((swept / "card.json").read_text())["tables"]


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
def test_a_cell_that_stops_early_is_finished_and_scored(start, files, tmp_path, capsys):
    """As good as without learning: no evaluation is better than the first."""
    more = ["--gin.LEARNING_RATE=1e-12", "--gin.EVALUATIONS=3", "--gin.PATIENCE=2"]
    assert finetune("xtreme/xnli", start, files, tmp_path, *more) == 0
    cell = tmp_path / "cells/xtreme/xnli/transfer/seed-0"
    result = json.loads((cell / "run/result.json").read_text())
    assert (result["steps"], result["stopped_early"]["best_step"]) == (3, 1)
    assert result["stopped_early"]["metric"] == "dev/mean"
    assert {*dev_of(cell / "run")} == {1, 2, 3}
    assert scores(tmp_path, "xtreme/xnli/transfer/seed-0")["test"]["means"]
    capsys.readouterr()
    assert finetune("xtreme/xnli", start, files, tmp_path, *more) == 0
    assert "finished before" in capsys.readouterr().out


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
def test_plugged_in_every_example_is_read_beside_its_translation(files, tmp_path):
    start = random_run(tmp_path, files, cross_attention=True)
    more = "--strategy plug_in --gin.TRAIN_STEPS=1"
    assert finetune("xtreme/xnli", start, files, tmp_path / "out", more) == 0
    run = tmp_path / "out/cells/xtreme/xnli/plug_in/seed-0/run"
    assert mixture(run) == "xtreme/xnli: translated de 24 beside en, translated ru 24 beside en"
    # German is read beside its test set translated into English, not beside the English test set
    moved, given = tmp_path / "moved", files / "xtreme"
    shutil.copytree(given, moved)
    (moved / "xnli/translate-test/test-de-en-translated.tsv").unlink()
    model, task = open_run(run).model, task_named("xtreme/xnli")
    without = translations(model, task, moved, "test", "de")
    translated = translations(model, task, given, "test", "de")
    assert translated == read(task, given, "translate_test", "de")
    assert without == read(task, moved, "test", "en")
    german = read(task, moved, "translate_train", "de")
    with pytest.raises(UserError, match="24 examples in 'de' and 1 in 'en': plug-in"):
        beside_rows(task, german, without[:1], None, None, "de", (0, 1))


def test_all_languages_must_be_there(start, files, tmp_path, capsys):
    """Without translations translate-train-all would be transfer, and the edited settings of a cell
    another cell."""
    shutil.copytree(files / "xtreme", tmp_path / "xtreme")
    shutil.rmtree(tmp_path / "xtreme/xnli/translate-train")
    output = tmp_path / "out"
    for strategy, message in (
        ("multi_language", "no language has translate_train files below"),
        ("all_gold", "en has train files below"),
    ):
        assert finetune("xtreme/xnli", start, tmp_path, output, f"--strategy {strategy}") == 2
        assert message in capsys.readouterr().err and not output.exists()
    output.write_text("")
    assert finetune("xtreme/xnli", start, tmp_path, output) == 2
    assert "it is a file; give a folder" in capsys.readouterr().err


@pytest.mark.long
def test_a_language_without_files_is_passed_over_only_where_asked(
    start, files, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(cell_training, "launch", lambda *_: 7)
    words = ["finetune", start, "--task xtreme/xnli --data", files / "xtreme"]
    words += ["--gin.BATCH=8 --gin.LENGTH=64 --gin.SELECT=mean"]
    for strategy in ("transfer", "translate_test", "majority"):
        split = "translate_test" if strategy == "translate_test" else "test"
        missing = f"xtreme/xnli: no {split} set of ar, bg, el, es, fr, hi, sw, th, tr, ur, vi, zh"
        refused(capsys, tmp_path / "out", missing, *words, "--strategy", strategy)
    assert command(*words, "--allow-missing --to", tmp_path / "out") == 7
    assert command(*words, "--gin.TEST_LANGUAGES=de ru", "--to", tmp_path / "named") == 7


def test_a_settings_file_that_was_edited_is_another_cell(swept, start, files, tmp_path, capsys):
    shutil.copytree(swept, tmp_path / "again")
    cell = tmp_path / "again/cells/xtreme/xnli/transfer/seed-0/cell.gin"
    cell.write_text(cell.read_text().replace("; settings ", "; settings 0"))
    assert finetune("xtreme/xnli", start, files, tmp_path / "again") == 2
    assert "was begun with other settings" in capsys.readouterr().err


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
    translated = next((read_there / "translate-train").iterdir())
    kept = translated.read_bytes()

    def again():
        return finetune("xtreme/xnli", start, files, tmp_path / "again"), capsys.readouterr()

    try:
        translated.write_bytes(kept * 2)  # which transfer does not read
        assert again()[0] == 0
        (read_there / "test-de.tsv").write_bytes(b"X" + text[1:])  # as long as before
        status, told = again()
        assert (
            status == 2
            and f"{cell} was begun with other files: xnli/test-de.tsv was edited below" in told.err
        )
        assert told.err.count("\n") == 1
        (read_there / "test-de.tsv").unlink()
        assert "xnli/test-de.tsv is not read now" in again()[1].err
        (read_there / "test-de.tsv").write_bytes(text + text)
        (cell / "files.json").write_text(json.dumps(begun | {"xnli/dev-fr.tsv": "0"}))
        (cell / "scores.json").unlink()  # it was stopped while it trained
        (read_there / "test-de.tsv").write_bytes(text)
        assert "xnli/dev-fr.tsv is not read now" in again()[1].err
        assert not (cell / "scores.json").exists()
    finally:
        (read_there / "test-de.tsv").write_bytes(text)
        translated.write_bytes(kept)


def test_the_best_of_a_grid_is_chosen_on_dev_and_not_on_test():
    def cell(rate, seed, dev, test):
        tested = {"means": {"mean": test}, "by_language": {"en": {"accuracy": test}}}
        return {
            "task": "xtreme/xnli",
            "strategy": "transfer",
            "variant": {},
            "settings": {"RATE": rate},
            "seed": seed,
            "select": {"by": "mean", "split": "dev", "step": 3, "steps": 6},
            "start": {"run": "r", "sha256": "s"},
            "machine": "m",
            "dev": {"means": {"mean": dev, "en": 0.0}},
            "test": {"split": "test", "examples": {"en": 9}, **tested},
        }

    tried = [("1", 0, 50.0, 60.0), ("1", 1, 52.0, 62.0), ("2", 0, 51.5, 40.0), ("2", 1, 51.5, 50.0)]
    (row,) = rows_of([cell(*one) for one in tried])
    assert row["settings"] == {"RATE": "2"} and row["tried"] == 2
    assert row["means"]["mean"] == {"mean": 45.0, "sd": pytest.approx(50**0.5)}
    assert "one of 2 settings" in policy(row)


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
    with pytest.raises(UserError, match="lookup tags words"):
        baselines.lookup(task_named("xtreme/xnli"), [])


@pytest.mark.parametrize(
    "more, message",
    [
        ("--strategy tranfer", "--strategy tranfer: there are all_gold"),
        ("--languages de", "transfer does not run over languages"),
        ("--strategy pivot --languages zz", "no training examples of them"),
        ("--grid LEARNING_RATE", "write MACRO=A,B"),
        ("--gin.SELECT=best", "SELECT=best: choose mean, en or last"),
        ("--workdir x", "--workdir: --task writes to --to"),
        ("--gin.SEED=7", "SEED: a sweep has it from --seeds: say it there, and leave SEED out"),
        ("--grid SEED=1,2", "SEED: a sweep has it from --seeds"),
        ("--gin.INIT_FROM='x'", "INIT_FROM: a sweep has it from RUN"),
        ("--gin.KEEP_BEST=0", "SELECT=mean takes the checkpoint that is best on dev"),
        ("--gin.BEST_MODE='min'", "SELECT=mean takes the checkpoint"),
        ("--gin.EVALUATIONS=0", "EVALUATIONS=0: a number above 0 is needed"),
        (
            "--gin.TEST_SPLIT='dev'",
            "DEV_SPLIT=dev and TEST_SPLIT=dev share examples: what chooses the checkpoint",
        ),
        ("--gin.TEST_SPLIT='dev[50%:]'", "DEV_SPLIT=dev and TEST_SPLIT=dev[50%:] share examples"),
        ("--gin.DEV_SPLIT='dev[:7]' --gin.TEST_SPLIT='dev[50%:]'", "share examples"),  # of 12
    ],
)
def test_what_cannot_be_meant_is_refused(more, message, start, files, tmp_path, capsys):
    assert finetune("xtreme/xnli", start, files, tmp_path / "out", more) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out" / "cells").exists()


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


def test_a_part_of_train_needs_a_dev_set(start, files, tmp_path, capsys):
    part = "--gin.TRAIN_SPLIT='train[:8]'"
    assert finetune("xtreme/tydiqa", start, files, tmp_path / "out", part) == 2
    assert "TRAIN_SPLIT=train[:8]: xtreme/tydiqa has no dev set below" in capsys.readouterr().err
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


def test_strategies_that_lack_files_are_passed_over_in_a_suite(files, tmp_path):
    task, data = task_named("xtreme/pawsx"), files / "xtreme"
    translated, tested = 'TRANSLATED = "all"', 'TEST_SPLIT = "translate_test"'
    assert lacking(translated, task, data) == lacking(tested, task, data) == ""
    assert lacking('TRAIN_LANGUAGES = "all"', task, data) == "training sets of en alone"
    shutil.copytree(data / "pawsx", tmp_path / "pawsx")
    shutil.rmtree(tmp_path / "pawsx" / "translate-train")
    shutil.rmtree(tmp_path / "pawsx" / "translate-test")
    for text in (translated, "TARGET = %gin.REQUIRED", "LABELLED = %gin.REQUIRED"):
        assert lacking(text, task, tmp_path) == "no translated training sets"
    assert lacking(tested, task, tmp_path) == "no test sets translated into English"
    assert lacking('TRAIN_LANGUAGES = "en"', task, tmp_path) == ""
    questions = task_named("xtreme/xquad")
    assert lacking(translated, questions, data) == ""
    assert lacking("TARGET = %gin.REQUIRED", questions, data) == ""
    for name in ("squad", "xquad"):
        shutil.copytree(data / name, tmp_path / name)
    for path in (tmp_path / "xquad").iterdir():  # XTREME's are so
        told = json.loads(path.read_text("utf-8"))
        for article in told["data"]:
            article["paragraphs"][0]["qas"][0]["answers"] = []
        path.write_text(json.dumps(told), "utf-8")
    none = "no answers to test with in the languages of its translations"
    assert lacking("TARGET = %gin.REQUIRED", questions, tmp_path) == none
    assert lacking("LABELLED = %gin.REQUIRED", questions, data) == "no classes or tags to label"
    plugged = f'{translated}\nCLASSIFIER = "plug_in"'
    assert lacking(plugged, questions, data) == ""
    titles = task_named("xglue/ntg")
    assert lacking(plugged, titles, files / "xglue") == (
        "no classes, tags or spans of examples in two languages"
    )
    none = "answers for translated test sets that are none for the test sets"
    assert lacking(tested, questions, data) == none


def test_options_of_tasks_need_a_task(capsys):
    assert command("finetune --workdir x --seeds 2") == 2
    assert "--seeds: only --task reads this" in capsys.readouterr().err
    assert command("finetune x --task xtreme/xnly --data y --to z") == 2
    assert "xtreme/xnli" in capsys.readouterr().err


def test_values_of_macros_are_looked_up():
    assert cells.values_of({"A": "%B", "B": "'de'", "C": "1e-4", "D": "@f()", "x.y": "3"}) == {
        "A": "de", "B": "de", "C": 1e-4, "D": "@f()",
    }  # fmt: skip
