"""`xlingjax evaluate --mixture`, `--suite` and `--follow`: a checkpoint as it is, and all tasks of
a suite."""

import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers import official_files, sweeping
from tests.helpers.sweeping import command, dev_of, finetune, random_run, scores
from xlingjax.data.labelled.task import TRAINED, languages_present, read
from xlingjax.evaluation.submissions import prediction_path, read_predictions
from xlingjax.evaluation.task.predictions import head_fault, in_order_of
from xlingjax.evaluation.tatoeba import accuracy, predict_retrieval
from xlingjax.inference.run import open_run
from xlingjax.model.config import preset
from xlingjax.tasks import suite_tasks, task_named
from xlingjax.workflows.scorecard.card import card

files, start, swept = sweeping.files, sweeping.start, sweeping.swept


def evaluate(*words):
    return command("evaluate", *words)


@pytest.mark.long
def test_a_mixture_is_measured_by_what_the_head_fits(swept, files, tmp_path, capsys):
    """The checkpoint that the sweep chose has the scores of the sweep."""
    cell = scores(swept, "xtreme", "xnli", "transfer", "seed-0")
    best = cell["select"]["step"]
    run = f"{swept}/cells/xtreme/xnli/transfer/seed-0/run"
    cells = tmp_path / "cells/xtreme/xnli/as_it_is"

    def measured(step, *tasks):
        words = [f"{run}@{step}", "--mixture xtreme --data", files / "xtreme"]
        assert evaluate(*words, "--to", tmp_path, "--allow-missing --tasks", *tasks) == 0

    measured(best, "xnli udpos tatoeba")
    told = capsys.readouterr().out
    assert "xtreme/udpos: passed over, the model's head is one of classification" in told
    (folder,) = cells.glob(f"*-step-{best}")
    found = scores(folder)
    assert found["test"]["split"] == "test"
    assert found["test"]["by_language"] == cell["test"]["by_language"]
    # Without English.
    assert found["test"]["means"]["mean_other"] == cell["test"]["means"]["mean_other"]
    assert "note" not in found["select"]
    measured(best, "xnli --split dev")
    assert scores(folder) == found  # which stays
    assert scores(cells / f"{folder.name}-dev")["test"]["split"] == "dev"
    other = {3: 6, 6: 3}[best]  # which dev did not choose
    measured(other, "xnli --split dev")
    (second,) = cells.glob(f"*-step-{other}-dev")
    assert "note" not in scores(second)["select"]
    folder = tmp_path / f"cells/xtreme/tatoeba/as_it_is/{folder.name}"
    tatoeba = scores(folder)
    assert {*tatoeba["test"]["by_language"]} == {"de", "ru"}
    assert "layer 1, pooled by mean" in tatoeba["select"]["note"]
    assert {path.name for path in folder.iterdir()} == {"predictions", "scores.json"}
    lines = (folder / "predictions/tatoeba/test-de.tsv").read_text().split()
    assert len(lines) == tatoeba["test"]["examples"]["de"]


@pytest.mark.long
def test_tatoeba_at_every_layer_and_pooling(start, files, tmp_path, capsys):
    paths = ["--data", files / "xtreme", "--to", tmp_path, "--allow-missing"]
    more = [start, "--mixture xtreme --tasks tatoeba", *paths]
    assert evaluate(*more, "--layer all --pooling all") == 0
    (folder,) = (tmp_path / "cells/xtreme/tatoeba/as_it_is").iterdir()
    cell, run = scores(folder), open_run(start)
    found = cell["layers"]["by_language"]
    assert [*found] == ["mean", "mean_no_special", "first"]
    assert cell["layers"]["layer"] == 1 and cell["layers"]["pooling"] == "mean"
    for code in ("de", "ru"):
        (bitext,) = read(task_named("xtreme/tatoeba"), files / "xtreme", "test", code)
        of = run, bitext, code
        for pooling, layer in (("mean", 1), ("mean_no_special", 0), ("first", 1)):
            lines = predict_retrieval(*of, layer=layer, pooling=pooling)
            assert found[pooling][code][str(layer)] == pytest.approx(100 * accuracy(lines, bitext))
        assert {*found["first"][code]} == {"0", "1"}
        # the score and the submission are those of the paper's layer and pooling
        score = cell["test"]["by_language"][code]["tatoeba_accuracy"]
        assert score == pytest.approx(found["mean"][code]["1"])
        made = (folder / f"predictions/tatoeba/test-{code}.tsv").read_text().split()
        assert made == [str(line) for line in predict_retrieval(*of)]
    told = capsys.readouterr().out
    for part in ("pooling by layer, mean over languages:", r"\|\s+\| 0\s+\| 1\*\s+\|", "flatters"):
        assert re.search(part, told)
    assert evaluate(*more, "--layer 0") == 0
    cell = scores(folder)
    assert cell["select"]["note"] == "layer 0, pooled by mean"
    score = cell["test"]["by_language"]["de"]["tatoeba_accuracy"]
    assert score == pytest.approx(found["mean"]["de"]["0"])
    # It has no dev set, and what was measured stays.
    assert evaluate(*more, "--split dev") == 2
    assert "xtreme/tatoeba: passed over, no dev files below" in capsys.readouterr().out
    assert scores(folder) == cell and [*folder.parent.iterdir()] == [folder]
    suite = [start, "--suite xtreme --tasks xnli tatoeba", *paths]  # which would train first
    for asked in (more, suite):
        capsys.readouterr()
        assert evaluate(*asked, "--layer 0 2") == 2
        told = capsys.readouterr()
        assert "layer 2: this model has layers 0 (the embeddings) to 1" in told.err
    assert not (tmp_path / "cells/xtreme/xnli").exists()


@pytest.mark.long
def test_a_run_with_sentence_vectors_of_its_own(start, files, tmp_path, capsys):
    """Its layer, pooling and prefix are the default; figures with another prefix have a cell and a
    row of their own."""
    run, out = tmp_path / "run", tmp_path / "out"
    shutil.copytree(start, run)
    record = json.loads((run / "run.json").read_text())
    text = {"prefix": "aber: ", "max_length": 40}
    own = {"layer": 0, "pooling": "mean_no_special", "normalize": True, **text}
    (run / "run.json").write_text(json.dumps(record | {"sentences": own}))
    more = [run, "--mixture xtreme --tasks tatoeba --allow-missing"]
    more += ["--data", files / "xtreme"]
    assert evaluate(*more, "--to", out) == 0
    said = "layer 0, pooled by mean_no_special, prefix 'aber: ', at most 40 tokens"
    told = capsys.readouterr().out
    assert f"xtreme/tatoeba, test ({said}): mean" in told
    assert f"as it is: the run's own training, {said}" in told
    cells = out / "cells/xtreme/tatoeba/as_it_is"
    (first,) = cells.iterdir()
    opened = open_run(run)

    def lines(folder, code, **options):
        (bitext,) = read(task_named("xtreme/tatoeba"), files / "xtreme", "test", code)
        of = opened, bitext, code
        made = (folder / f"predictions/tatoeba/test-{code}.tsv").read_text().split()
        assert made == [str(line) for line in predict_retrieval(*of, **options)]
        return made

    with_prefix = lines(first, "de", layer=0, pooling="mean_no_special", **text)
    # Another prefix is another cell, whose table of layers is not mixed with the first one's.
    assert evaluate(*more, "--to", out, "--layer all") == 0
    assert evaluate(*more, "--to", out, "--prefix '' --layer 1 --pooling first") == 0
    (second,) = {*cells.iterdir()} - {first}
    assert scores(second)["select"]["note"] == "layer 1, pooled by first, at most 40 tokens"
    assert "layers" not in scores(second) and "layers" in scores(first)
    assert with_prefix != lines(second, "de", layer=1, pooling="first", max_length=40)
    rows = card(out)["tables"][0]["rows"]
    assert sorted(row["select"].get("prefix", "") for row in rows) == ["", "aber: "]
    assert len({row["of"] for row in rows}) == 2 and all(row["seeds"] == [0] for row in rows)
    # A way that is not computed here is no mean.
    own |= {"pooling": None, "unread": "max"}
    (run / "run.json").write_text(json.dumps(record | {"sentences": own}))
    assert evaluate(*more, "--to", tmp_path / "none") == 2
    assert (
        "tatoeba: passed over, its sentence vectors are not computed here (max)"
        in capsys.readouterr().out
    )
    assert evaluate(*more, "--to", tmp_path / "none", "--pooling mean") == 0


@pytest.mark.long
def test_a_suite_goes_on_after_a_task_that_cannot_be_measured(start, files, tmp_path, capsys):
    shutil.copytree(files / "xtreme", tmp_path / "files")
    (tmp_path / "files/bucc2018/de-en.dev.gold").write_text("no tab\n")
    paths = [start, "--data", tmp_path / "files", "--to", tmp_path / "out"]
    assert evaluate(*paths, "--suite xtreme --tasks bucc2018 tatoeba --allow-missing") == 2
    told = capsys.readouterr()
    assert "de-en.dev.gold, line 1" in told.out and "## xtreme/tatoeba" in told.out
    assert told.err.endswith(
        "xtreme/bucc2018 could not be measured (above); the card is of the others\n"
    )


def test_labels_are_read_in_the_order_of_the_head():
    task = task_named("xtreme/xnli")
    model = SimpleNamespace(config=preset("tiny").replace(classifier="xlmr", num_labels=3))
    turned = ("entailment", "neutral", "contradiction")
    assert (
        head_fault(model, task, turned) == ""
        and in_order_of(task, turned).labels == turned != task.labels
    )
    assert "the head's bad, good, so ..." in head_fault(model, task, ("bad", "good", "so"))
    assert "not told" in head_fault(model, task, ()) and head_fault(model, task) == ""


@pytest.mark.long
def test_every_checkpoint_of_a_run_is_followed(swept, files, tmp_path, capsys):
    run = swept / "cells/xtreme/xnli/transfer/seed-0/run"
    more = ["--data", files / "xtreme", "--to", tmp_path, "--allow-missing --tasks xnli"]
    assert evaluate("--mixture xtreme --follow", run, *more) == 0
    steps = sorted(int(one.name) for one in (run / "checkpoints").iterdir() if one.name.isdigit())
    lines = capsys.readouterr().out.splitlines()
    told = [line.split(":")[0] for line in lines if line.startswith("step ")]
    assert told == [f"step {step}" for step in steps] and len(steps) > 0


@pytest.mark.long
def test_a_suite_says_what_is_missing(start, files, tmp_path, capsys):
    more = [start, "--suite xtreme --tasks xnli panx tatoeba --to", tmp_path]
    more += ["--data", files / "xtreme"]
    assert evaluate(*more) == 2
    told = capsys.readouterr()
    assert "xtreme/xnli: no test or dev set of ar, bg" in told.out
    assert "or --allow-missing" in told.err and not (tmp_path / "cells").exists()
    settings = "--gin.LENGTH=24 --gin.BATCH=8 --gin.TRAIN_STEPS=1 --gin.DROPOUT=0"
    assert evaluate(*more, "--allow-missing", settings) == 0
    tables = {
        one["task"]: one for one in json.loads((tmp_path / "card.json").read_text())["tables"]
    }
    assert {*tables} == {"xtreme/xnli", "xtreme/panx", "xtreme/tatoeba"}
    assert next(iter(tables["xtreme/panx"]["metrics"])) == "seqeval_f1"


PATHS = "--data . --to x"


@pytest.mark.parametrize(
    "words, message",
    [
        ("--suite xtreme", "give RUN and --data and --to"),
        ("--mixture xtreme --suite xtreme", "give one of them"),
        (f"y --mixture xtreme --tasks nli {PATHS}", "no task 'xtreme/nli'; there are xtreme/"),
        (f"y --mixture xtreme --seeds 2 {PATHS}", "--mixture trains nothing"),
        ("x --seeds 2", "only --suite and --mixture read this"),
        ("x --layer 2", "only --suite and --mixture read this"),
        (f"y --mixture xtreme --patience 2 {PATHS}", "--patience: only --follow reads this"),
        (
            f"y --mixture xtreme --tasks xnli --layer 2 {PATHS}",
            "--layer: only retrieval and mining read this",
        ),
        (f"y --suite xtreme --layer all {PATHS}", "--layer: bucc2018 is mined from one layer"),
        ("--mixture xtreme --layer -1", "'-1' is not a whole number, 0 or more"),
        ("--mixture xtreme --patience soon", "--patience: 'soon' is not a number, 0 or more"),
        ("", "give RUN, or --suite or --mixture"),
    ],
)
def test_what_evaluate_cannot_mean_is_refused(words, message, capsys):
    assert evaluate(words) == 2
    assert message in capsys.readouterr().err


WRITES = {"decoder_layers": 1, "cross_attention": True, "norm_order": "pre", "vocab_multiple": 16}


@pytest.mark.long
def test_what_is_written_is_scored_and_submitted(files, tmp_path):
    start = random_run(tmp_path, files, language_tokens=3, **WRITES)
    more = ["--gin.TRAIN_STEPS=1 --gin.TEST_BEAMS=2"]
    more += ["--gin.DEV_LANGUAGES=en de", "--gin.TEST_LANGUAGES=en de"]
    assert finetune("xglue/ntg", start, files, tmp_path / "out", *more) == 0
    folder = tmp_path / "out/cells/xglue/ntg/transfer/seed-0"
    test = scores(folder)["test"]
    assert {*test["by_language"]} == {"en", "de"} and test["examples"]["de"] == 12
    (written,) = (folder / "predictions").rglob("de.prediction")
    assert len(written.read_text().split("\n")) - 1 == 12


@pytest.mark.long
@pytest.mark.parametrize(
    "suite, count", [("xtreme", 9), pytest.param("xglue", 11, marks=pytest.mark.soak)]
)
def test_every_task_of_a_suite_from_its_official_files_to_its_submission(
    suite, count, official, tmp_path
):
    """Trained, chosen, tested, submitted, from the command line; XTREME's test sets come without
    answers."""
    languages = official_files.LANGUAGES
    start = random_run(tmp_path, official, languages, language_tokens=4, **WRITES)
    more = [
        "--gin.TRAIN_STEPS=2 --gin.LENGTH=60 --gin.MAX_QUESTION=16 --gin.STRIDE=30 --gin.BATCH=8",
        "--gin.EVAL_EVERY=1 --gin.CHECKPOINT_EVERY=1 --gin.LEARNING_RATE=1e-2 --gin.DEV_LIMIT=12",
        "--gin.TEST_BEAMS=1 --gin.DROPOUT=0 --gin.ATTENTION_DROPOUT=0",
    ]
    paths = [start, "--data", official / suite, "--to", tmp_path / "out"]
    assert evaluate(*paths, "--suite", suite, "--allow-missing", *more) == 0
    tasks, moved = suite_tasks(suite), 0
    assert len(tasks) == count
    for task in tasks:
        (cell,) = (tmp_path / "out" / "cells" / suite / task.name).rglob("scores.json")
        found = json.loads(cell.read_text())
        means = found["test"]["means"]
        # These have neither answers nor dev sets.
        assert bool(means) == (task.name not in ("tydiqa", "tatoeba"))
        assert all(np.isfinite(value) for value in means.values())
        if task.kind in TRAINED:
            dev = dev_of(cell.parent / "run")
            best = max(dev, key=lambda step: (dev[step]["en"], step))  # of equals the last
            assert [*dev] == [1, 2]
            assert (found["select"]["by"], found["select"]["step"]) == ("en", best)
            assert found["dev"]["means"]["mean"] == dev[best]["mean"]
            moved += dev[1]["en"] != dev[2]["en"]
        present = languages_present(task, official / suite, "test")
        assert present
        for language in present:
            gold = read(task, official / suite, "test", language)
            path = prediction_path(task, cell.parent / "predictions", language)
            # As many as examples, but answers and pairs.
            values = read_predictions(path, task, gold).values
            if task.kind == "span_qa":
                assert {*values} == {one.id for one in gold}, path
            assert values, path
    assert moved > 0
