"""`xlingjax finetune --task`: cells, their choice and their table; a sweep that is stopped goes on."""

import dataclasses
import json
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import official_files
import orbax.checkpoint as ocp
import pytest

from xlingjax import cells, cli, verbs
from xlingjax.data.benchmark import TRAINED, languages_present, read
from xlingjax.errors import UserError
from xlingjax.evaluation import baselines, scorecard
from xlingjax.evaluation.benchmark import head_fault, in_order_of, predict, translations
from xlingjax.evaluation.predictions import prediction_path, read_predictions
from xlingjax.evaluation.tatoeba import accuracy, predict_retrieval
from xlingjax.model.build import build_model
from xlingjax.model.config import count_parameters, preset
from xlingjax.preprocessors.benchmark import Reading, beside_rows
from xlingjax.sweep import parameters_hash
from xlingjax.tasks import suite_tasks, task_named
from xlingjax.trained import open_run
from xlingjax.variants import lacking

LANGUAGES = ("de", "en", "ru")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Official files of tiny sets, their test sets with answers."""
    return official_files.write(tmp_path_factory.mktemp("files"), LANGUAGES, train=24, dev=12, test=12, hidden=False)


def random_run(root, files, languages=LANGUAGES, **changes):
    """A run with random weights as its checkpoint of step 7, large ones: what is read tells in the first state."""
    text = [f"{code}={path}" for code in languages for path in (files / "told" / "mono" / code).glob("*.txt")]
    assert cli.main(["vocab", "--mono", *text, "--size", "300", "--output", str(root / "run")]) == 0
    size = json.loads((root / "run" / "vocab.json").read_text())["size"]
    config = preset("tiny", layers=1, dim=16, heads=2, ffn=32, vocab_size=size, max_positions=64, num_languages=0)
    changes["vocab_size"] = size + changes.get("language_tokens", 0)
    config = config.replace(**changes)
    params = jax.tree.map(lambda x: 5 * x, jax.jit(build_model(config).init)(jax.random.key(3)))
    record = {"model": dataclasses.asdict(config), "languages": languages, "parameters": count_parameters(config)}
    (root / "run" / "run.json").write_text(json.dumps(record))
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as writer:
        writer.save(root / "run" / "checkpoints" / "7" / "params", args=ocp.args.StandardSave(params))
    return root / "run"


@pytest.fixture(scope="module")
def start(tmp_path_factory, files):
    return random_run(tmp_path_factory.mktemp("start"), files)


def finetune(task, start, files, output, *more):
    suite = task.partition("/")[0]
    words = [
        "finetune",
        "--task",
        task,
        "--from",
        start,
        "--data",
        files / suite,
        "--to",
        output,
        "--allow-missing",
        *more,
    ]
    settings = ["--gin.LENGTH=24", "--gin.BATCH=8", "--gin.EPOCHS=2", "--gin.DROPOUT=0", "--gin.ATTENTION_DROPOUT=0"]
    settings += ["--gin.SELECT=mean", "--gin.LEARNING_RATE=1e-2", "--gin.KEEP_CHECKPOINTS=2"]
    settings = [one for one in settings if one.split("=")[0] + "=" not in str(more)]
    return cli.main([str(word) for word in words] + settings)


def scores(output, *parts):
    return json.loads(output.joinpath("cells", *parts, "scores.json").read_text())


def dev_of(run):
    """{step: values} of a run's dev sets."""
    lines = (run / "evaluations.jsonl").read_text().splitlines()
    return {line["step"]: line["values"] for line in map(json.loads, lines) if line["name"] == "dev"}


def kill(cell, left, last):
    """Make of a finished cell one that was killed before its checkpoint of `last` was written."""
    run = cell / "run"
    for path in (run / "result.json", *cell.rglob("scores.json")):
        path.unlink()
    for folder in (run / "checkpoints" / str(last), run / "data_state" / str(last), *cell.rglob("predictions")):
        shutil.rmtree(folder)
    (run / "best.json").write_text(json.dumps({"dev/mean": {"step": left, "value": dev_of(run)[left]["mean"]}}))
    assert [path.name for path in (run / "checkpoints").iterdir()] == [str(left)]


def require_gone_on(again, whole, left):
    """The run `again` was started afresh and from its checkpoint `left`, and ended with the weights of `whole`."""
    sessions = json.loads((again / "run.json").read_text())["sessions"]
    assert [session["step"] for session in sessions] == [0, left]
    assert sessions[1]["weights"] == f"checkpoint {left} of {again}"
    assert parameters_hash(open_run(again).params) == parameters_hash(open_run(whole).params)


@pytest.fixture(scope="module")
def swept(start, files, tmp_path_factory):
    """Two seeds of transfer."""
    output = tmp_path_factory.mktemp("swept")
    assert finetune("xtreme/xnli", start, files, output, "--seeds", "2") == 0
    return output


def test_a_cell_is_trained_chosen_on_dev_and_tested_in_every_language(swept, files):
    cell = scores(swept, "xtreme", "xnli", "transfer", "seed-1")
    assert cell["test"]["split"] == "test" and {*cell["test"]["by_language"]} == {*LANGUAGES}
    assert cell["test"]["examples"] == {code: 12 for code in LANGUAGES}
    recipe = (swept / "cells/xtreme/xnli/transfer/seed-1/cell.gin").read_text()
    assert "TRAIN_STEPS = 6\n" in recipe and "EVAL_EVERY = 3\n" in recipe  # 24 examples, batches of 8, 2 epochs
    last = []
    for seed in ("seed-0", "seed-1"):
        run, chosen = swept / f"cells/xtreme/xnli/transfer/{seed}/run", scores(swept, "xtreme/xnli/transfer", seed)
        dev = {step: values["mean"] for step, values in dev_of(run).items()}
        assert {*dev} == {3, 6} and len({*dev.values()}) > 1
        assert dev[chosen["select"]["step"]] == max(dev.values()) == chosen["dev"]["means"]["mean"]
        last.append(chosen["select"]["step"] == 6)
    assert not all(last)
    # the submission's lines are the predictions that were scored
    task, labels = task_named("xtreme/xnli"), set()
    for code in LANGUAGES:
        gold = [example.label for example in read(task, files / "xtreme", "test", code)]
        made = (swept / f"cells/xtreme/xnli/transfer/seed-1/predictions/xnli/test-{code}.tsv").read_text().split()
        right = np.mean([a == b for a, b in zip(gold, made, strict=True)])
        labels |= {*made}
        assert cell["test"]["by_language"][code]["accuracy"] == pytest.approx(100 * right)
    assert len(labels) > 1
    values = [cell["test"]["by_language"][code]["accuracy"] for code in LANGUAGES]
    assert cell["test"]["means"]["mean"] == pytest.approx(np.mean(values))
    assert cell["test"]["means"]["gap"] == pytest.approx(values[1] - (values[0] + values[2]) / 2)


def test_the_card_is_the_mean_of_the_seeds_own_test_scores(swept):
    (row,) = scorecard.card(swept)["tables"][0]["rows"]
    per_seed = [scores(swept, "xtreme", "xnli", "transfer", f"seed-{seed}")["test"]["means"]["mean"] for seed in (0, 1)]
    assert row["means"]["mean"]["mean"] == pytest.approx(np.mean(per_seed))
    assert row["means"]["mean"]["sd"] == pytest.approx(np.std(per_seed, ddof=1))
    text = (swept / "card.md").read_text()
    assert "| transfer |" in text and "chosen by the mean of dev in de, en, ru (dev)" in text
    assert "trained on 24 examples (train)" in text
    assert "VECO (Luo et al. 2021), Table 2" in text and r"\toprule" in (swept / "card.tex").read_text()
    assert "<table" in (swept / "card.html").read_text() and json.loads((swept / "card.json").read_text())["tables"]


def test_each_seed_is_tested_at_its_own_best_step(swept, start, files, tmp_path):
    """Seed 0 is best at step 3, where it is given the weights of seed 1; its last weights are not tested."""
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
    (row,) = scorecard.rows_of(cells)
    assert row["select"]["step"] == [3, at] and row["seeds"] == [0, 1]
    assert row["means"]["mean"] == {"mean": before[1]["means"]["mean"], "sd": 0.0}


def test_a_sweep_that_was_stopped_gives_the_table_of_one_that_was_not(swept, start, files, tmp_path, capsys):
    shutil.copytree(swept, tmp_path / "again")
    cells = tmp_path / "again/cells/xtreme/xnli/transfer"
    kill(cells / "seed-0", left=3, last=6)
    before = {name: (cells / "seed-1" / name).stat().st_mtime_ns for name in ("scores.json", "run/result.json")}
    assert finetune("xtreme/xnli", start, files, tmp_path / "again", "--seeds", "2") == 0
    assert capsys.readouterr().out.count("finished before") == 1
    for name, stamp in before.items():
        assert (cells / "seed-1" / name).stat().st_mtime_ns == stamp
    require_gone_on(cells / "seed-0/run", swept / "cells/xtreme/xnli/transfer/seed-0/run", left=3)
    old, new = scorecard.card(swept), scorecard.card(tmp_path / "again")
    assert old["tables"] == new["tables"]


def test_other_settings_in_a_cells_folder_are_refused(swept, start, files, capsys):
    assert finetune("xtreme/xnli", start, files, swept, "--gin.LEARNING_RATE=0.5") == 2
    assert "was begun with other settings" in (told := capsys.readouterr().err) and "LEARNING_RATE = 0.5" in told


@pytest.mark.long
def test_every_strategy_trains_on_what_it_says(start, files, tmp_path):
    """Pivots, targets, all at once, translated test sets, a teacher's labels; one step each."""
    strategies = ("pivot", "translate_train", "multi_language", "translate_test", "teacher", "random_initialisation")
    more = ["--gin.TRAIN_STEPS=1", "--languages", "de", "--strategy"]
    for strategy in ("pivot", "translate_train"):
        assert finetune("xtreme/xnli", start, files, tmp_path, *more, strategy) == 0
    assert finetune("xtreme/xnli", start, files, tmp_path, "--gin.TRAIN_STEPS=1", "--strategy", *strategies[2:]) == 0
    assert finetune("xtreme/xnli", start, files, tmp_path, "--strategy", "majority") == 0

    def trained_on(*parts):
        folder = tmp_path.joinpath("cells/xtreme/xnli", *parts, "seed-0", "run")
        return json.loads((folder / "run.json").read_text())["identity"]["data"]["classification"]["mixture"]

    assert trained_on("pivot", "de") == "xtreme/xnli: translated de 24"  # there is no gold German
    assert trained_on("translate_train", "de") == "xtreme/xnli: translated de 24"
    assert trained_on("multi_language") == "xtreme/xnli: gold en 24, translated de 24, translated ru 24"
    assert trained_on("translate_test") == "xtreme/xnli: gold en 24"
    assert trained_on("teacher") == "xtreme/xnli: gold en 24, labelled de 24, labelled ru 24"
    assert {*scores(tmp_path, "xtreme/xnli/translate_train/de/seed-0")["test"]["by_language"]} == {"de"}
    assert scores(tmp_path, "xtreme/xnli/translate_test/seed-0")["test"]["split"] == "translate_test"
    assert scores(tmp_path, "xtreme/xnli/random_initialisation/seed-0")["start"]["sha256"] == "random"
    # the teacher's labels are what the transfer model says of the translated sentences
    chosen, task = scores(tmp_path, "xtreme/xnli/transfer/seed-0")["select"]["step"], task_named("xtreme/xnli")
    teacher = open_run(tmp_path / f"cells/xtreme/xnli/transfer/seed-0/run@{chosen}")
    for code in ("de", "ru"):
        path = tmp_path / f"cells/xtreme/xnli/teacher/seed-0/labelled/xnli.{code}.jsonl"
        labelled = [json.loads(line) for line in path.open()]
        gold = read(task, files / "xtreme", "translate_train", code)
        assert [(one["premise"], one["line"]) for one in labelled] == [(one.premise, one.line) for one in gold]
        how = teacher.vocabulary, teacher.languages, code, Reading(length=24)
        told = predict(teacher.model, teacher.params, task, gold, *how)
        assert [one["label"] for one in labelled] == told != [one.label for one in gold] and len({*told}) > 1


@pytest.mark.long
def test_plugged_in_every_example_is_read_beside_its_translation(files, tmp_path):
    start = random_run(tmp_path, files, cross_attention=True)
    assert finetune("xtreme/xnli", start, files, tmp_path / "out", "--strategy", "plug_in", "--gin.TRAIN_STEPS=1") == 0
    folder = tmp_path / "out/cells/xtreme/xnli/plug_in/seed-0"
    data = json.loads((folder / "run/run.json").read_text())["identity"]["data"]["plug_in"]
    assert data["mixture"] == "xtreme/xnli: translated de 24 beside en, translated ru 24 beside en"
    # German is read beside its test set translated into English, not beside the English test set
    moved = tmp_path / "moved"
    shutil.copytree(files / "xtreme", moved)
    (moved / "xnli/translate-test/test-de-en-translated.tsv").unlink()
    trained, task = open_run(folder / "run"), task_named("xtreme/xnli")
    with_mt, without = (translations(trained.model, task, at, "test", "de") for at in (files / "xtreme", moved))
    assert with_mt == read(task, files / "xtreme", "translate_test", "de")
    assert without == read(task, moved, "test", "en")
    with pytest.raises(UserError, match="24 examples in 'de' and 1 in 'en': plug-in"):
        beside_rows(task, read(task, moved, "translate_train", "de"), without[:1], None, None, "de", (0, 1))


def test_all_languages_must_be_there(start, files, tmp_path, capsys):
    """Without translations translate-train-all would be transfer, and the edited settings of a cell another cell."""
    moved = tmp_path / "xtreme"
    shutil.copytree(files / "xtreme", moved)
    shutil.rmtree(moved / "xnli" / "translate-train")
    assert finetune("xtreme/xnli", start, tmp_path, tmp_path / "out", "--strategy", "multi_language") == 2
    assert "no language has translate_train files below" in capsys.readouterr().err
    assert finetune("xtreme/xnli", start, tmp_path, tmp_path / "out", "--strategy", "all_gold") == 2
    assert "en has train files below" in capsys.readouterr().err
    (tmp_path / "out").rmdir() if (tmp_path / "out").is_dir() else None
    (tmp_path / "out").write_text("")
    assert finetune("xtreme/xnli", start, tmp_path, tmp_path / "out") == 2
    assert "it is a file; give a folder" in capsys.readouterr().err


def test_a_language_without_files_is_passed_over_only_where_asked(start, files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(verbs, "train", lambda args, recipe: 7)
    words = ["finetune", "--task", "xtreme/xnli", "--from", start, "--data", files / "xtreme", "--to", tmp_path / "out"]
    words = [*map(str, words), "--gin.BATCH=8", "--gin.SELECT=mean"]
    for strategy, split in (("transfer", "test"), ("translate_test", "translate_test"), ("majority", "test")):
        assert cli.main([*words, "--strategy", strategy]) == 2
        told = capsys.readouterr().err
        assert f"xtreme/xnli: no {split} set of ar, bg, el, es, fr, hi, sw, th, tr, ur, vi, zh below" in told
        assert "or --allow-missing" in told and told.count("\n") == 1
    assert not (tmp_path / "out/cells").exists()
    assert cli.main([*words, "--allow-missing"]) == 7
    assert cli.main([*words, "--gin.TEST_LANGUAGES=de ru", "--to", str(tmp_path / "named")]) == 7


def test_a_settings_file_that_was_edited_is_another_cell(swept, start, files, tmp_path, capsys):
    shutil.copytree(swept, tmp_path / "again")
    cell = tmp_path / "again/cells/xtreme/xnli/transfer/seed-0/cell.gin"
    cell.write_text(cell.read_text().replace("; settings ", "; settings 0"))
    assert finetune("xtreme/xnli", start, files, tmp_path / "again") == 2
    assert "was begun with other settings" in capsys.readouterr().err


def test_files_that_were_edited_are_named(swept, start, files, tmp_path, capsys):
    """What a cell read is not what lies there now; cells that do not tell what they read are taken as they are."""
    shutil.copytree(swept, tmp_path / "again")
    cell = tmp_path / "again/cells/xtreme/xnli/transfer/seed-0"
    record, read_there = json.loads((cell / "scores.json").read_text()), files / "xtreme/xnli"
    expected = ["train-en", *(f"{split}-{code}" for split in ("dev", "test") for code in LANGUAGES)]
    assert sorted(record["files"]) == sorted(f"xnli/{name}.tsv" for name in expected)
    assert record["files"] == json.loads((cell / "files.json").read_text())
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
        assert status == 2 and f"{cell} was begun with other files: xnli/test-de.tsv was edited below" in told.err
        assert told.err.count("\n") == 1
        (read_there / "test-de.tsv").unlink()
        assert "xnli/test-de.tsv is not read now" in again()[1].err
        (read_there / "test-de.tsv").write_bytes(text + text)
        (cell / "scores.json").write_text(json.dumps({k: v for k, v in record.items() if k != "files"}))
        assert again()[0] == 2  # files.json tells it
        (cell / "files.json").unlink()
        status, told = again()
        assert status == 0 and "finished before" in told.out
        (cell / "files.json").write_text(json.dumps(record["files"] | {"xnli/dev-fr.tsv": "0"}))
        (cell / "scores.json").unlink()  # it was stopped while it trained
        (read_there / "test-de.tsv").write_bytes(text)
        assert "xnli/dev-fr.tsv is not read now" in again()[1].err and not (cell / "scores.json").exists()
    finally:
        (read_there / "test-de.tsv").write_bytes(text)
        translated.write_bytes(kept)


def test_the_best_of_a_grid_is_chosen_on_dev_and_not_on_test():
    def cell(rate, seed, dev, test):
        return {
            "task": "xtreme/xnli", "strategy": "transfer", "variant": {}, "settings": {"RATE": rate}, "seed": seed,
            "select": {"by": "mean", "split": "dev", "step": 3, "steps": 6}, "start": {"run": "r", "sha256": "s"},
            "machine": "m", "dev": {"means": {"mean": dev, "en": 0.0}},
            "test": {"split": "test", "means": {"mean": test}, "examples": {"en": 9},
                     "by_language": {"en": {"accuracy": test}}},
        }  # fmt: skip

    rows = scorecard.rows_of(
        [cell("1", 0, 50.0, 60.0), cell("1", 1, 52.0, 62.0), cell("2", 0, 51.5, 40.0), cell("2", 1, 51.5, 50.0)]
    )
    assert [row["settings"] for row in rows] == [{"RATE": "2"}] and rows[0]["tried"] == 2
    assert rows[0]["means"]["mean"] == {"mean": 45.0, "sd": pytest.approx(50**0.5)}
    assert "one of 2 settings" in scorecard.policy(rows[0])


def test_floors_without_a_model(files):
    task = task_named("xtreme/udpos")
    train = read(task, files / "xtreme", "train", "en")
    tags = [tag for sentence in train for tag in sentence.tags]
    most = max(sorted({*tags}, key=task.labels.index), key=tags.count)
    (made,) = baselines.majority(task, train)(train[:1])
    assert made == [most] * len(train[0].words)
    found = baselines.lookup(task, train)([dataclasses.replace(train[0], words=("THE", "zzzz"), tags=())])
    of_the = [tag for s in train for word, tag in zip(s.words, s.tags, strict=True) if word.lower() == "the"]
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
        (["--gin.INIT_FROM='x'"], "INIT_FROM: a sweep has it from --from"),
        (["--gin.KEEP_BEST=0"], "KEEP_BEST=0: SELECT=mean takes the checkpoint that is best on dev"),
        (["--gin.BEST_MODE='min'"], "BEST_MODE=min: SELECT=mean takes the checkpoint"),
        (["--gin.EVALUATIONS=0"], "EVALUATIONS=0: must be above 0"),
        (["--gin.TEST_SPLIT='dev'"], "DEV_SPLIT=dev and TEST_SPLIT=dev share examples: what chooses the checkpoint"),
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
    assert "has a head for the labels Bad, Good, and those to learn are 0, 1: start from the run that it" in told
    assert not (tmp_path / "out" / "cells").exists()


def test_a_part_of_train_needs_a_dev_set(start, files, tmp_path, capsys):
    part = "--gin.TRAIN_SPLIT='train[:8]'"
    assert finetune("xtreme/tydiqa", start, files, tmp_path / "out", part) == 2
    assert "TRAIN_SPLIT=train[:8]: xtreme/tydiqa has no dev set below" in capsys.readouterr().err
    assert not (tmp_path / "out" / "cells").exists()


def test_languages_that_an_embedding_lacks_are_known_before_the_training(files, tmp_path, capsys):
    start = random_run(tmp_path, files, num_languages=3)
    output, data = tmp_path / "out", tmp_path / "data"
    shutil.copytree(files / "xtreme" / "pawsx", data / "pawsx")
    shutil.copy(data / "pawsx" / "dev-en.tsv", data / "pawsx" / "dev-ko.tsv")
    words = ["finetune", "--task", "xtreme/pawsx", "--from", start, "--data", data, "--to", output]
    words += ["--gin.TRAIN_STEPS=1", "--gin.LENGTH=24", "--gin.BATCH=8", "--gin.SELECT=mean"]
    words += ["--gin.TEST_LANGUAGES='de en'"]
    assert cli.main([*map(str, words)]) == 2
    assert "embeds languages and does not know ko: name others by --gin.DEV_LANGUAGES" in capsys.readouterr().err
    assert not (output / "cells").exists()
    assert cli.main([*map(str, words), "--allow-missing"]) == 0
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


def test_options_of_tasks_need_a_task(start, capsys):
    assert cli.main(["finetune", "--workdir", "x", "--seeds", "2"]) == 2
    assert "--seeds: only --task reads this" in capsys.readouterr().err
    assert cli.main(["finetune", "--task", "xtreme/xnly", "--from", "x", "--data", "y", "--to", "z"]) == 2
    assert "xtreme/xnli" in capsys.readouterr().err


def test_values_of_macros_are_looked_up():
    assert cells.values_of({"A": "%B", "B": "'de'", "C": "1e-4", "D": "@f()", "x.y": "3"}) == {
        "A": "de", "B": "de", "C": 1e-4, "D": "@f()",
    }  # fmt: skip


# ---- a checkpoint as it is ------------------------------------------------------------------------------------------


def evaluate(*words):
    return cli.main(["evaluate", *map(str, words)])


def test_a_mixture_is_measured_by_what_the_head_fits(swept, files, tmp_path, capsys):
    """The metrics of the SeqIO tasks, on the checkpoint that the sweep chose: the scores of the sweep."""
    cell = scores(swept, "xtreme", "xnli", "transfer", "seed-0")  # whose best checkpoint is not its last
    run = f"{swept}/cells/xtreme/xnli/transfer/seed-0/run@{cell['select']['step']}"
    more = [
        "--from",
        run,
        "--data",
        files / "xtreme",
        "--to",
        tmp_path,
        "--allow-missing",
        "--tasks",
        "xnli",
        "udpos",
        "tatoeba",
    ]
    assert evaluate("--mixture", "xtreme", *more) == 0
    told = capsys.readouterr().out
    assert "xtreme/udpos: passed over, the model's head is one of classification" in told
    (folder,) = (tmp_path / "cells/xtreme/xnli/as_it_is").glob(f"*-step-{cell['select']['step']}")
    step = folder.name
    found = scores(tmp_path, "xtreme", "xnli", "as_it_is", step)
    assert found["test"]["by_language"] == cell["test"]["by_language"] and found["test"]["split"] == "test"
    assert found["test"]["means"]["mean_other"] == cell["test"]["means"]["mean_other"]  # without English
    assert "note" not in found["select"]
    assert evaluate("--mixture", "xtreme", *more[:-3], "xnli", "--split", "dev") == 0
    assert scores(tmp_path, "xtreme", "xnli", "as_it_is", step) == found  # which stays
    chosen = scores(tmp_path, "xtreme", "xnli", "as_it_is", f"{step}-dev")["select"]["note"]
    assert chosen == "whose checkpoint was chosen by dev/mean on dev, examples of this split: its figures flatter"
    tatoeba = scores(tmp_path, "xtreme", "tatoeba", "as_it_is", step)
    assert {*tatoeba["test"]["by_language"]} == {"de", "ru"} and "layer 1, pooled by mean" in tatoeba["select"]["note"]
    lines = (tmp_path / f"cells/xtreme/tatoeba/as_it_is/{step}/predictions/tatoeba/test-de.tsv").read_text().split()
    assert len(lines) == tatoeba["test"]["examples"]["de"]


def test_tatoeba_at_every_layer_and_pooling(start, files, tmp_path, capsys):
    more = ["--mixture", "xtreme", "--tasks", "tatoeba", "--data", files / "xtreme", "--allow-missing", "--from", start]
    assert evaluate(*more, "--to", tmp_path, "--layer", "all", "--pooling", "all") == 0
    (folder,) = (tmp_path / "cells/xtreme/tatoeba/as_it_is").iterdir()
    cell, run = scores(tmp_path, folder), open_run(start)
    found = cell["layers"]["by_language"]
    assert [*found] == ["mean", "mean_no_special", "first"]
    assert cell["layers"]["layer"] == 1 and cell["layers"]["pooling"] == "mean"
    for code in ("de", "ru"):
        (bitext,) = read(task_named("xtreme/tatoeba"), files / "xtreme", "test", code)
        for pooling, layer in (("mean", 1), ("mean_no_special", 0), ("first", 1)):
            options = {"layer": layer, "pooling": pooling}
            lines = predict_retrieval(run.model, run.params, bitext, run.vocabulary, code, run.languages, **options)
            assert found[pooling][code][str(layer)] == pytest.approx(100 * accuracy(lines, bitext))
        assert {*found["first"][code]} == {"0", "1"}
        # the score and the submission are those of the paper's layer and pooling
        assert cell["test"]["by_language"][code]["tatoeba_accuracy"] == pytest.approx(found["mean"][code]["1"])
        lines = predict_retrieval(run.model, run.params, bitext, run.vocabulary, code, run.languages)
        made = (folder / f"predictions/tatoeba/test-{code}.tsv").read_text().split()
        assert made == [str(line) for line in lines]
    told = capsys.readouterr().out
    assert "pooling by layer, mean over languages:" in told and "|  | 0 | 1* |" in told and "flatters" in told
    assert evaluate(*more, "--to", tmp_path, "--layer", "0") == 0
    cell = scores(tmp_path, folder)
    assert cell["layers"]["by_language"] == found and cell["select"]["note"] == "layer 0, pooled by mean"  # kept
    assert cell["test"]["by_language"]["de"]["tatoeba_accuracy"] == pytest.approx(found["mean"]["de"]["0"])
    assert evaluate(*more, "--to", tmp_path, "--split", "dev") == 2  # it has none, and what was measured stays
    assert "xtreme/tatoeba: passed over, no dev files below" in capsys.readouterr().out
    assert scores(tmp_path, folder) == cell and [*(tmp_path / "cells/xtreme/tatoeba/as_it_is").iterdir()] == [folder]
    suite = ["--suite", "xtreme", "--tasks", "xnli", "tatoeba", *more[4:]]  # which would train first
    for asked in (more, suite):
        capsys.readouterr()
        assert evaluate(*asked, "--to", tmp_path, "--layer", "0", "2") == 2
        told = capsys.readouterr()
        assert "layer 2: this model has layers 0 (the embeddings) to 1" in told.err
    assert "--layer: read by tatoeba alone" in told.out and not (tmp_path / "cells/xtreme/xnli").exists()


def test_a_suite_goes_on_after_a_task_that_cannot_be_measured(start, files, tmp_path, capsys):
    shutil.copytree(files / "xtreme", tmp_path / "files")
    (tmp_path / "files/bucc2018/de-en.dev.gold").write_text("no tab\n")
    paths = ["--from", start, "--data", tmp_path / "files", "--to", tmp_path / "out"]
    assert evaluate("--suite", "xtreme", "--tasks", "bucc2018", "tatoeba", *paths, "--allow-missing") == 2
    told = capsys.readouterr()
    assert "de-en.dev.gold, line 1" in told.out and "## xtreme/tatoeba" in told.out
    assert told.err.endswith("xtreme/bucc2018 could not be measured (above); the card is of the others\n")


def test_labels_are_read_in_the_order_of_the_head():
    task = task_named("xtreme/xnli")
    model = SimpleNamespace(config=preset("tiny").replace(classifier="xlmr", num_labels=3))
    turned = ("entailment", "neutral", "contradiction")
    assert head_fault(model, task, turned) == "" and in_order_of(task, turned).labels == turned != task.labels
    assert "the head's bad, good, so ..." in head_fault(model, task, ("bad", "good", "so"))
    assert "not told" in head_fault(model, task, ()) and head_fault(model, task) == ""


def test_every_checkpoint_of_a_run_is_followed(swept, files, tmp_path, capsys):
    run = swept / "cells/xtreme/xnli/transfer/seed-0/run"
    more = ["--data", files / "xtreme", "--to", tmp_path, "--allow-missing", "--tasks", "xnli"]
    assert evaluate("--mixture", "xtreme", "--follow", run, *more) == 0
    steps = sorted(int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdigit())
    told = [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]
    assert told == [f"step {step}" for step in steps] and len(steps) > 0


def test_a_followed_run_that_was_killed_leaves_its_card(swept, files, tmp_path, capsys):
    shutil.copytree(swept / "cells/xtreme/xnli/transfer/seed-0/run", tmp_path / "run")
    (tmp_path / "run/result.json").unlink()
    more = ["--data", files / "xtreme", "--to", tmp_path / "out", "--allow-missing", "--tasks", "xnli"]
    assert evaluate("--mixture", "xtreme", "--follow", tmp_path / "run", *more, "--patience", "0.0001") == 2
    told = capsys.readouterr()
    assert "nothing was written there for 0.0001 minutes" in told.err and told.err.count("\n") == 1
    assert "| as it is run" in told.out and (tmp_path / "out/card.html").is_file()


@pytest.mark.long
def test_a_suite_says_what_is_missing(start, files, tmp_path, capsys):
    more = ["--from", start, "--data", files / "xtreme", "--to", tmp_path, "--tasks", "xnli", "panx", "tatoeba"]
    assert evaluate("--suite", "xtreme", *more) == 2
    told = capsys.readouterr()
    assert "xtreme/xnli: no test or dev set of ar, bg" in told.out and "or --allow-missing" in told.err
    assert not (tmp_path / "cells").exists()
    settings = ["--gin.LENGTH=24", "--gin.BATCH=8", "--gin.TRAIN_STEPS=1", "--gin.DROPOUT=0"]
    assert evaluate("--suite", "xtreme", *more, "--allow-missing", *settings) == 0
    tables = {table["task"]: table for table in json.loads((tmp_path / "card.json").read_text())["tables"]}
    assert {*tables} == {"xtreme/xnli", "xtreme/panx", "xtreme/tatoeba"}
    assert next(iter(tables["xtreme/panx"]["metrics"])) == "seqeval_f1"


@pytest.mark.parametrize(
    "words, message",
    [
        (["--suite", "xtreme"], "--from and --data and --to are needed"),
        (["--mixture", "xtreme", "--suite", "xtreme"], "give one of them"),
        (
            ["--mixture", "xtreme", "--data", ".", "--to", "x", "--from", "y", "--tasks", "nli"],
            "--tasks nli: xtreme has",
        ),
        (
            ["--mixture", "xtreme", "--from", "y", "--seeds", "2", "--data", ".", "--to", "x"],
            "--mixture trains nothing",
        ),
        (["--seeds", "2", "--workdir", "x"], "only --suite and --mixture read this"),
        (["--layer", "2", "--workdir", "x"], "only --suite and --mixture read this"),
        (
            ["--mixture", "xtreme", "--from", "y", "--patience", "2", "--data", ".", "--to", "x"],
            "--patience: only --follow reads this",
        ),
        (
            ["--mixture", "xtreme", "--from", "y", "--data", ".", "--to", "x", "--tasks", "xnli", "--layer", "2"],
            "--layer: retrieval and mining alone read this, not xnli",
        ),
        (
            ["--suite", "xtreme", "--from", "y", "--data", ".", "--to", "x", "--layer", "all"],
            "--layer: bucc2018 is mined from one layer",
        ),
        (["--mixture", "xtreme", "--layer", "-1"], "no layer: a whole number from 0"),
        (["--mixture", "xtreme", "--patience", "soon"], "'soon' is not a number of minutes"),
        ([], "give --workdir, or --suite or --mixture"),
    ],
)
def test_what_evaluate_cannot_mean_is_refused(words, message, capsys):
    assert evaluate(*words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.long
def test_what_is_written_is_scored_and_submitted(files, tmp_path):
    sizes = dict(decoder_layers=1, cross_attention=True, language_tokens=3, norm_order="pre", vocab_multiple=16)
    start = random_run(tmp_path, files, **sizes)
    more = ["--gin.TRAIN_STEPS=1", "--gin.TEST_BEAMS=2", "--gin.DEV_LANGUAGES=en de", "--gin.TEST_LANGUAGES=en de"]
    assert finetune("xglue/ntg", start, files, tmp_path / "out", *more) == 0
    cell = scores(tmp_path / "out", "xglue/ntg/transfer/seed-0")
    assert {*cell["test"]["by_language"]} == {"en", "de"} and cell["test"]["examples"]["de"] == 12
    (written,) = (tmp_path / "out/cells/xglue/ntg/transfer/seed-0/predictions").rglob("de.prediction")
    assert len(written.read_text().split("\n")) - 1 == 12


@pytest.mark.long
@pytest.mark.parametrize("suite, count", [("xtreme", 9), ("xglue", 11)])
def test_every_task_of_a_suite_from_its_official_files_to_its_submission(suite, count, official, tmp_path):
    """Trained, chosen, tested, submitted, from the command line; XTREME's test sets come without answers."""
    sizes = dict(decoder_layers=1, cross_attention=True, language_tokens=4, norm_order="pre", vocab_multiple=16)
    start = random_run(tmp_path, official, languages=official_files.LANGUAGES, **sizes)
    more = ["--gin.TRAIN_STEPS=2", "--gin.LENGTH=60", "--gin.MAX_QUESTION=16", "--gin.STRIDE=30", "--gin.BATCH=8"]
    more += ["--gin.EVAL_EVERY=1", "--gin.CHECKPOINT_EVERY=1", "--gin.LEARNING_RATE=1e-2", "--gin.DEV_LIMIT=12"]
    more += ["--gin.TEST_BEAMS=1", "--gin.DROPOUT=0", "--gin.ATTENTION_DROPOUT=0"]
    paths = ["--from", start, "--data", official / suite, "--to", tmp_path / "out"]
    assert evaluate("--suite", suite, *paths, "--allow-missing", *more) == 0
    tasks, moved = suite_tasks(suite), 0
    assert len(tasks) == count
    for task in tasks:
        (cell,) = (tmp_path / "out" / "cells" / suite / task.name).rglob("scores.json")
        found = json.loads(cell.read_text())
        means = found["test"]["means"]
        assert bool(means) == (task.name not in ("tydiqa", "tatoeba"))  # which have neither answers nor dev sets
        assert all(np.isfinite(value) for value in means.values())
        if task.kind in TRAINED:
            dev = dev_of(cell.parent / "run")
            best = max(dev, key=lambda step: (dev[step]["en"], step))  # of equals the last
            assert [*dev] == [1, 2] and (found["select"]["by"], found["select"]["step"]) == ("en", best)
            assert found["dev"]["means"]["mean"] == dev[best]["mean"]
            moved += dev[1]["en"] != dev[2]["en"]
        present = languages_present(task, official / suite, "test")
        assert present
        for language in present:
            gold = read(task, official / suite, "test", language)
            path = prediction_path(task, cell.parent / "predictions", language)
            values = read_predictions(path, task, gold).values  # as many as examples, but answers and pairs
            assert {*values} == {one.id for one in gold} if task.kind == "span_qa" else len(values), path
    assert moved > 0
