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
    dev_of,
    finetune,
    kill,
    random_run,
    require_gone_on,
    scores,
)
from xlingjax.cli import main
from xlingjax.data.labelled.task import read
from xlingjax.errors import UserError
from xlingjax.evaluation.task.predictions import predict, translations
from xlingjax.inference.run import open_run
from xlingjax.preprocessors.task_rows import Reading, beside_rows
from xlingjax.tasks import task_named
from xlingjax.workflows import baselines, cell_training
from xlingjax.workflows import cell as cells
from xlingjax.workflows.scorecard import card as scorecard
from xlingjax.workflows.scorecard.rows import policy, rows_of
from xlingjax.workflows.strategies import lacking

files, start, swept = sweeping.files, sweeping.start, sweeping.swept


def test_a_cell_is_trained_chosen_on_dev_and_tested_in_every_language(swept, files):
    cell = scores(swept, "xtreme", "xnli", "transfer", "seed-1")
    assert cell["test"]["split"] == "test" and {*cell["test"]["by_language"]} == {*LANGUAGES}
    assert cell["test"]["examples"] == {code: 12 for code in LANGUAGES}
    recipe = (swept / "cells/xtreme/xnli/transfer/seed-1/cell.gin").read_text()
    assert (
        "TRAIN_STEPS = 6\n" in recipe and "EVAL_EVERY = 3\n" in recipe
    )  # 24 examples, batches of 8, 2 epochs
    for seed in ("seed-0", "seed-1"):
        run, chosen = (
            swept / f"cells/xtreme/xnli/transfer/{seed}/run",
            scores(swept, "xtreme/xnli/transfer", seed),
        )
        dev = {step: values["mean"] for step, values in dev_of(run).items()}
        assert {*dev} == {3, 6} and len({*dev.values()}) > 1
        assert dev[chosen["select"]["step"]] == max(dev.values()) == chosen["dev"]["means"]["mean"]
    # the submission's lines are the predictions that were scored
    task, labels = task_named("xtreme/xnli"), set()
    for code in LANGUAGES:
        gold = [example.label for example in read(task, files / "xtreme", "test", code)]
        made = (
            (swept / f"cells/xtreme/xnli/transfer/seed-1/predictions/xnli/test-{code}.tsv")
            .read_text()
            .split()
        )
        right = np.mean([a == b for a, b in zip(gold, made, strict=True)])
        labels |= {*made}
        assert cell["test"]["by_language"][code]["accuracy"] == pytest.approx(100 * right)
    assert len(labels) > 1
    values = [cell["test"]["by_language"][code]["accuracy"] for code in LANGUAGES]
    assert cell["test"]["means"]["mean"] == pytest.approx(np.mean(values))
    assert cell["test"]["means"]["gap"] == pytest.approx(values[1] - (values[0] + values[2]) / 2)


def test_the_card_is_the_mean_of_the_seeds_own_test_scores(swept):
    (row,) = scorecard.card(swept)["tables"][0]["rows"]
    per_seed = [
        scores(swept, "xtreme", "xnli", "transfer", f"seed-{seed}")["test"]["means"]["mean"]
        for seed in (0, 1)
    ]
    assert row["means"]["mean"]["mean"] == pytest.approx(np.mean(per_seed))
    assert row["means"]["mean"]["sd"] == pytest.approx(np.std(per_seed, ddof=1))
    text = (swept / "card.md").read_text()
    assert "| transfer  " in text and "chosen by the mean of dev in de, en, ru (dev)" in text
    assert "trained on 24 examples (train)" in text
    assert (
        "VECO (Luo et al. 2021), Table 2" in text
        and r"\toprule" in (swept / "card.tex").read_text()
    )
    assert (
        "<table" in (swept / "card.html").read_text()
        and json.loads((swept / "card.json").read_text())["tables"]
    )


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
    assert finetune("xtreme/xnli", start, files, tmp_path / "again", "--seeds", "2") == 0
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
    assert finetune("xtreme/xnli", start, files, tmp_path / "again", "--seeds", "2") == 0
    assert capsys.readouterr().out.count("finished before") == 1
    for name, stamp in before.items():
        assert (cells / "seed-1" / name).stat().st_mtime_ns == stamp
    require_gone_on(cells / "seed-0/run", swept / "cells/xtreme/xnli/transfer/seed-0/run", left=3)
    old, new = scorecard.card(swept), scorecard.card(tmp_path / "again")
    assert old["tables"] == new["tables"]


@pytest.mark.long
def test_other_settings_in_a_cells_folder_are_refused(swept, start, files, tmp_path, capsys):
    assert finetune("xtreme/xnli", start, files, swept, "--gin.LEARNING_RATE=0.5") == 2
    assert (
        "was begun with other settings" in (told := capsys.readouterr().err)
        and "LEARNING_RATE = 0.5" in told
    )
    shutil.copytree(
        swept, tmp_path / "kept", ignore=shutil.ignore_patterns("run")
    )  # the scores remain
    assert finetune("xtreme/xnli", start, files, tmp_path / "kept", "--gin.LEARNING_RATE=0.5") == 2
    assert "was begun with other settings" in capsys.readouterr().err
    assert finetune("xtreme/xnli", start, files, tmp_path / "kept", "--seeds", "2") == 0
    assert capsys.readouterr().out.count("finished before") == 2


@pytest.mark.long
def test_every_strategy_trains_on_what_it_says(start, files, tmp_path):
    """Pivots, targets, all at once, translated test sets, a teacher's labels; one step each."""
    strategies = (
        "pivot",
        "translate_train",
        "multi_language",
        "translate_test",
        "teacher",
        "random_initialisation",
    )
    more = ["--gin.TRAIN_STEPS=1", "--languages", "de", "--strategy"]
    for strategy in ("pivot", "translate_train"):
        assert finetune("xtreme/xnli", start, files, tmp_path, *more, strategy) == 0
    assert (
        finetune(
            "xtreme/xnli",
            start,
            files,
            tmp_path,
            "--gin.TRAIN_STEPS=1",
            "--strategy",
            *strategies[2:],
        )
        == 0
    )
    assert finetune("xtreme/xnli", start, files, tmp_path, "--strategy", "majority") == 0

    def trained_on(*parts):
        folder = tmp_path.joinpath("cells/xtreme/xnli", *parts, "seed-0", "run")
        return json.loads((folder / "run.json").read_text())["identity"]["data"]["classification"][
            "mixture"
        ]

    assert trained_on("pivot", "de") == "xtreme/xnli: translated de 24"  # there is no gold German
    assert trained_on("translate_train", "de") == "xtreme/xnli: translated de 24"
    assert (
        trained_on("multi_language")
        == "xtreme/xnli: gold en 24, translated de 24, translated ru 24"
    )
    assert trained_on("translate_test") == "xtreme/xnli: gold en 24"
    assert trained_on("teacher") == "xtreme/xnli: gold en 24, labelled de 24, labelled ru 24"
    assert {*scores(tmp_path, "xtreme/xnli/translate_train/de/seed-0")["test"]["by_language"]} == {
        "de"
    }
    assert (
        scores(tmp_path, "xtreme/xnli/translate_test/seed-0")["test"]["split"] == "translate_test"
    )
    assert (
        scores(tmp_path, "xtreme/xnli/random_initialisation/seed-0")["start"]["sha256"] == "random"
    )
    # the teacher's labels are what the transfer model says of the translated sentences
    chosen, task = (
        scores(tmp_path, "xtreme/xnli/transfer/seed-0")["select"]["step"],
        task_named("xtreme/xnli"),
    )
    teacher = open_run(tmp_path / f"cells/xtreme/xnli/transfer/seed-0/run@{chosen}")
    for code in ("de", "ru"):
        path = tmp_path / f"cells/xtreme/xnli/teacher/seed-0/labelled/xnli.{code}.jsonl"
        labelled = [json.loads(line) for line in path.open()]
        gold = read(task, files / "xtreme", "translate_train", code)
        assert [(one["premise"], one["line"]) for one in labelled] == [
            (one.premise, one.line) for one in gold
        ]
        how = teacher.vocabulary, teacher.languages, code, Reading(length=24)
        told = predict(teacher.model, teacher.params, task, gold, *how)
        assert [one["label"] for one in labelled] == told != [one.label for one in gold] and len(
            {*told}
        ) > 1


@pytest.mark.long
def test_plugged_in_every_example_is_read_beside_its_translation(files, tmp_path):
    start = random_run(tmp_path, files, cross_attention=True)
    assert (
        finetune(
            "xtreme/xnli",
            start,
            files,
            tmp_path / "out",
            "--strategy",
            "plug_in",
            "--gin.TRAIN_STEPS=1",
        )
        == 0
    )
    folder = tmp_path / "out/cells/xtreme/xnli/plug_in/seed-0"
    data = json.loads((folder / "run/run.json").read_text())["identity"]["data"]["plug_in"]
    assert data["mixture"] == "xtreme/xnli: translated de 24 beside en, translated ru 24 beside en"
    # German is read beside its test set translated into English, not beside the English test set
    moved = tmp_path / "moved"
    shutil.copytree(files / "xtreme", moved)
    (moved / "xnli/translate-test/test-de-en-translated.tsv").unlink()
    trained, task = open_run(folder / "run"), task_named("xtreme/xnli")
    with_mt, without = (
        translations(trained.model, task, at, "test", "de") for at in (files / "xtreme", moved)
    )
    assert with_mt == read(task, files / "xtreme", "translate_test", "de")
    assert without == read(task, moved, "test", "en")
    with pytest.raises(UserError, match="24 examples in 'de' and 1 in 'en': plug-in"):
        beside_rows(
            task, read(task, moved, "translate_train", "de"), without[:1], None, None, "de", (0, 1)
        )


def test_all_languages_must_be_there(start, files, tmp_path, capsys):
    """Without translations translate-train-all would be transfer, and the edited settings of a cell
    another cell."""
    moved = tmp_path / "xtreme"
    shutil.copytree(files / "xtreme", moved)
    shutil.rmtree(moved / "xnli" / "translate-train")
    assert (
        finetune("xtreme/xnli", start, tmp_path, tmp_path / "out", "--strategy", "multi_language")
        == 2
    )
    assert "no language has translate_train files below" in capsys.readouterr().err
    assert finetune("xtreme/xnli", start, tmp_path, tmp_path / "out", "--strategy", "all_gold") == 2
    assert "en has train files below" in capsys.readouterr().err
    (tmp_path / "out").rmdir() if (tmp_path / "out").is_dir() else None
    (tmp_path / "out").write_text("")
    assert finetune("xtreme/xnli", start, tmp_path, tmp_path / "out") == 2
    assert "it is a file; give a folder" in capsys.readouterr().err


@pytest.mark.long
def test_a_language_without_files_is_passed_over_only_where_asked(
    start, files, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(cell_training, "launch", lambda *_: 7)
    words = [
        "finetune",
        start,
        "--task",
        "xtreme/xnli",
        "--data",
        files / "xtreme",
        "--to",
        tmp_path / "out",
    ]
    words = [*map(str, words), "--gin.BATCH=8", "--gin.LENGTH=64", "--gin.SELECT=mean"]
    for strategy, split in (
        ("transfer", "test"),
        ("translate_test", "translate_test"),
        ("majority", "test"),
    ):
        assert main.main([*words, "--strategy", strategy]) == 2
        told = capsys.readouterr().err
        assert (
            f"xtreme/xnli: no {split} set of ar, bg, el, es, fr, hi, sw, th, tr, ur, vi, zh below"
            in told
        )
        assert "or --allow-missing" in told and told.count("\n") == 1
    assert not (tmp_path / "out/cells").exists()
    assert main.main([*words, "--allow-missing"]) == 7
    assert main.main([*words, "--gin.TEST_LANGUAGES=de ru", "--to", str(tmp_path / "named")]) == 7


def test_a_settings_file_that_was_edited_is_another_cell(swept, start, files, tmp_path, capsys):
    shutil.copytree(swept, tmp_path / "again")
    cell = tmp_path / "again/cells/xtreme/xnli/transfer/seed-0/cell.gin"
    cell.write_text(cell.read_text().replace("; settings ", "; settings 0"))
    assert finetune("xtreme/xnli", start, files, tmp_path / "again") == 2
    assert "was begun with other settings" in capsys.readouterr().err


@pytest.mark.long
def test_files_that_were_edited_are_named(swept, start, files, tmp_path, capsys):
    """What a cell read is not what lies there now; cells that do not tell what they read are taken
    as they are."""
    shutil.copytree(swept, tmp_path / "again")
    cell = tmp_path / "again/cells/xtreme/xnli/transfer/seed-0"
    record, read_there = json.loads((cell / "scores.json").read_text()), files / "xtreme/xnli"
    expected = ["train-en", *(f"{split}-{code}" for split in ("dev", "test") for code in LANGUAGES)]
    assert sorted(record["files"]) == sorted(f"xnli/{name}.tsv" for name in expected)
    begun = json.loads((cell / "files.json").read_text())
    assert {**record["files"], "start": record["start"]["sha256"]} == begun
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
        (cell / "scores.json").write_text(
            json.dumps({k: v for k, v in record.items() if k != "files"})
        )
        assert again()[0] == 2  # files.json tells it
        (cell / "files.json").unlink()
        status, told = again()
        assert status == 0 and "finished before" in told.out
        (cell / "files.json").write_text(json.dumps(record["files"] | {"xnli/dev-fr.tsv": "0"}))
        (cell / "scores.json").unlink()  # it was stopped while it trained
        (read_there / "test-de.tsv").write_bytes(text)
        assert (
            "xnli/dev-fr.tsv is not read now" in again()[1].err
            and not (cell / "scores.json").exists()
        )
    finally:
        (read_there / "test-de.tsv").write_bytes(text)
        translated.write_bytes(kept)


def test_the_best_of_a_grid_is_chosen_on_dev_and_not_on_test():
    def cell(rate, seed, dev, test):
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
            "test": {
                "split": "test",
                "means": {"mean": test},
                "examples": {"en": 9},
                "by_language": {"en": {"accuracy": test}},
            },
        }

    rows = rows_of(
        [
            cell("1", 0, 50.0, 60.0),
            cell("1", 1, 52.0, 62.0),
            cell("2", 0, 51.5, 40.0),
            cell("2", 1, 51.5, 50.0),
        ]
    )
    assert [row["settings"] for row in rows] == [{"RATE": "2"}] and rows[0]["tried"] == 2
    assert rows[0]["means"]["mean"] == {"mean": 45.0, "sd": pytest.approx(50**0.5)}
    assert "one of 2 settings" in policy(rows[0])


def test_floors_without_a_model(files):
    task = task_named("xtreme/udpos")
    train = read(task, files / "xtreme", "train", "en")
    tags = [tag for sentence in train for tag in sentence.tags]
    most = max(sorted({*tags}, key=task.labels.index), key=tags.count)
    (made,) = baselines.majority(task, train)(train[:1])
    assert made == [most] * len(train[0].words)
    found = baselines.lookup(task, train)(
        [dataclasses.replace(train[0], words=("THE", "zzzz"), tags=())]
    )
    of_the = [
        tag
        for s in train
        for word, tag in zip(s.words, s.tags, strict=True)
        if word.lower() == "the"
    ]
    assert found == [[max({*of_the}, key=of_the.count), most]]
    with pytest.raises(UserError, match="lookup tags words"):
        baselines.lookup(task_named("xtreme/xnli"), [])


@pytest.mark.parametrize(
    "more, message",
    [
        (["--strategy", "tranfer"], "--strategy tranfer: there are all_gold"),
        (["--languages", "de"], "transfer does not run over languages"),
        (["--strategy", "pivot", "--languages", "zz"], "no training examples of them"),
        (["--grid", "LEARNING_RATE"], "write MACRO=A,B"),
        (["--gin.SELECT=best"], "SELECT=best: choose mean, en or last"),
        (["--workdir", "x"], "--workdir: --task writes to --to"),
        (["--gin.SEED=7"], "SEED: a sweep has it from --seeds: say it there, and leave SEED out"),
        (["--grid", "SEED=1,2"], "SEED: a sweep has it from --seeds"),
        (["--gin.INIT_FROM='x'"], "INIT_FROM: a sweep has it from RUN"),
        (
            ["--gin.KEEP_BEST=0"],
            "KEEP_BEST=0: SELECT=mean takes the checkpoint that is best on dev",
        ),
        (["--gin.BEST_MODE='min'"], "BEST_MODE=min: SELECT=mean takes the checkpoint"),
        (["--gin.EVALUATIONS=0"], "EVALUATIONS=0: a whole number of 1 or more is needed"),
        (
            ["--gin.TEST_SPLIT='dev'"],
            "DEV_SPLIT=dev and TEST_SPLIT=dev share examples: what chooses the checkpoint",
        ),
        (["--gin.TEST_SPLIT='dev[50%:]'"], "DEV_SPLIT=dev and TEST_SPLIT=dev[50%:] share examples"),
        (["--gin.DEV_SPLIT='dev[:7]'", "--gin.TEST_SPLIT='dev[50%:]'"], "share examples"),  # of 12
    ],
)
def test_what_cannot_be_meant_is_refused(more, message, start, files, tmp_path, capsys):
    assert finetune("xtreme/xnli", start, files, tmp_path / "out", *more) == 2
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
    words = ["finetune", start, "--task", "xtreme/pawsx", "--data", data, "--to", output]
    words += ["--gin.TRAIN_STEPS=1", "--gin.LENGTH=24", "--gin.BATCH=8", "--gin.SELECT=mean"]
    words += ["--gin.TEST_LANGUAGES='de en'"]
    assert main.main([*map(str, words)]) == 2
    assert (
        "embeds languages and does not know ko: name others by --gin.DEV_LANGUAGES"
        in capsys.readouterr().err
    )
    assert not (output / "cells").exists()
    assert main.main([*map(str, words), "--allow-missing"]) == 0
    (record,) = (output / "cells").glob("**/scores.json")
    found = json.loads(record.read_text())
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


def test_options_of_tasks_need_a_task(start, capsys):
    assert main.main(["finetune", "--workdir", "x", "--seeds", "2"]) == 2
    assert "--seeds: only --task reads this" in capsys.readouterr().err
    assert main.main(["finetune", "x", "--task", "xtreme/xnly", "--data", "y", "--to", "z"]) == 2
    assert "xtreme/xnli" in capsys.readouterr().err


def test_values_of_macros_are_looked_up():
    assert cells.values_of({"A": "%B", "B": "'de'", "C": "1e-4", "D": "@f()", "x.y": "3"}) == {
        "A": "de", "B": "de", "C": 1e-4, "D": "@f()",
    }  # fmt: skip
