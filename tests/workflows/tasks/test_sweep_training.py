"""What a sweep trains on: how many steps an epoch has, what a teacher labels."""

import copy
import json
import re
import shutil

import pytest

from tests.helpers import sweeping
from tests.helpers.sweeping import LANGUAGES, finetune, mixture, random_run, scores
from xlingjax.data.labelled.task import read
from xlingjax.data.labelled.teacher import read_labelled
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.evaluation.task.predictions import predict
from xlingjax.inference.run import open_run
from xlingjax.preprocessors.parts import task_source
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import Training
from xlingjax.tasks import task_named
from xlingjax.workflows.tasks import cell as cell_training
from xlingjax.workflows.tasks import request as cells
from xlingjax.workflows.tasks import sweep

files, start = sweeping.files, sweeping.start


def test_an_epoch_of_questions_is_of_windows(files, tmp_path, monkeypatch):
    """As the benchmarks' scripts count it: the steps of an epoch read every row of the training set
    once."""
    start = random_run(tmp_path, files)
    monkeypatch.setattr(cell_training, "launch", lambda *_: 7)
    short = ["--gin.LENGTH=40 --gin.MAX_QUESTION=12 --gin.STRIDE=10 --gin.EPOCHS=1 --gin.SELECT=en"]
    settings = [*short, "--gin.TEST_LANGUAGES=en", "--gin.DEV_LANGUAGES=en"]
    assert finetune("xtreme/xquad", start, files, tmp_path / "out", *settings) == 7
    recipe = (tmp_path / "out/cells/xtreme/xquad/transfer/seed-0/cell.gin").read_text()
    steps = int(re.search(r"^TRAIN_STEPS = (\d+)$", recipe, re.MULTILINE)[1])
    reading, vocabulary = Reading(40, stride=10, max_question=12), Vocabulary.load(start)
    training = Training(), vocabulary, LANGUAGES, reading
    source = task_source(task_named("xtreme/xquad"), files / "xtreme", *training, batch_size=8)
    assert (
        steps == round(source.identity["examples"] / 8) > 24 / 8
        and "24 training examples" in recipe
    )


def test_a_teacher_tags_every_word_of_the_translations_and_no_english_gold(
    files, tmp_path, monkeypatch
):
    task, data = task_named("xtreme/udpos"), tmp_path / "xtreme"
    shutil.copytree(files / "xtreme/udpos", data / "udpos")
    (data / "udpos/translate-train").mkdir()
    for language in LANGUAGES:  # what lies there of English is no translation
        sentences = read(task, files / "xtreme", "train", language)[:9]
        lines = [" ".join(s.words) + "\t" + " ".join(["X"] * len(s.words)) for s in sentences]
        (data / f"udpos/translate-train/train-{language}.mt.tsv").write_text(
            "\n".join(lines) + "\n"
        )
    random_run(tmp_path, files, classifier="tagging", num_labels=len(task.labels))
    (tmp_path / "scores.json").write_text('{"select": {"step": 7}}')
    labeller, student = (
        cells.Cell("", {}, {}, 0, folder) for folder in (tmp_path, tmp_path / "student")
    )
    monkeypatch.setattr(
        sweep, "bindings", lambda *_: {"LENGTH": "8"}
    )  # rows shorter than the sentences
    request = cells.Request(task, "", str(data), "")
    folder = sweep.label(request, labeller, student)
    assert sorted(path.name for path in folder.iterdir()) == ["udpos.de.jsonl", "udpos.ru.jsonl"]
    assert Training(("en",), labelled=str(folder)).parts(task, data) == [
        ("gold", "en"), ("labelled", "de"), ("labelled", "ru"),
    ]  # fmt: skip
    trained, reading = open_run(tmp_path / "run"), Reading(length=8)
    for language in ("de", "ru"):
        made = read_labelled(folder / f"udpos.{language}.jsonl", task)
        given = read(task, data, "translate_train", language)
        assert [one.words for one in made] == [one.words for one in given]
        alone = [predict(trained, task, [one], language, reading)[0] for one in given]
        assert [list(one.tags) for one in made] == alone and {
            tag for tags in alone for tag in tags
        } != {"X"}


@pytest.fixture
def questions(files, tmp_path):
    """The files of questions: one German answer of SQuAD's translations was lost, and TyDi QA has
    translations with a row more than the English set."""
    for name in ("squad", "xquad", "tydiqa"):
        shutil.copytree(files / "xtreme" / name, tmp_path / "files/xtreme" / name)
    root = tmp_path / "files/xtreme"
    lost = root / "squad/translate-train/squad.translate.train.en-de.json"
    told = json.loads(lost.read_text("utf-8"))
    more = copy.deepcopy(told)
    told["data"][3]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] += 1
    lost.write_text(json.dumps(told), "utf-8")
    more["data"].append(more["data"][0])
    (root / "tydiqa/translate-train").mkdir()
    (root / "tydiqa/translate-train/tydiqa.translate.train.en-ru.json").write_text(
        json.dumps(more), "utf-8"
    )
    return tmp_path / "files"


ASKED = "--gin.TRAIN_STEPS=1 --gin.LENGTH=64 --gin.MAX_QUESTION=20 --strategy"


@pytest.mark.long
def test_translated_questions_are_learnt_without_those_whose_answer_was_lost(
    questions, start, tmp_path, capsys
):
    output = tmp_path / "out"

    def asked(strategy):
        return finetune("xtreme/xquad", start, questions, output, f"{ASKED} {strategy}")

    assert asked("multi_language") == 0
    told = "translated questions, whose answer does not stand where the file says"
    file = questions / "xtreme/squad/translate-train/squad.translate.train.en-de.json"
    assert f"{file}, de: passed over 1 of 24 {told}\n" in capsys.readouterr().out
    cells = output / "cells/xtreme/xquad"
    cell = cells / "multi_language/seed-0"
    assert "71 training examples;" in (cell / "cell.gin").read_text()
    read_by = "xtreme/xquad: gold en 24, translated de 23, translated ru 24"
    assert mixture(cell / "run") == read_by
    assert asked("translate_train --languages ru") == 0
    found = scores(cells / "translate_train/ru/seed-0")
    assert found["trained"]["examples"] == 24
    assert {*found["dev"]["by_language"]} == {"en"}  # SQuAD's dev set alone
    assert {*found["test"]["by_language"]} == {"ru"}
    capsys.readouterr()
    taught = "a teacher labels classes, ranks and tags, and xtreme/xquad is of span_qa;"
    plugged = "CLASSIFIER=plug_in goes through cross-attention, which"
    for strategy, why in (("teacher", taught), ("plug_in", plugged)):
        assert asked(strategy) == 2
        assert why in capsys.readouterr().err and not (cells / strategy).exists()


@pytest.mark.long
def test_translations_of_held_out_questions_are_not_learnt(questions, start, tmp_path, capsys):
    """TyDi QA has no dev set, so rows of its training set choose, and ids do not tell what
    translates them."""
    output, more = tmp_path / "out", f"{ASKED} multi_language"
    assert finetune("xtreme/tydiqa", start, questions, output, more) == 2
    told = capsys.readouterr().err
    what = "25 examples translated into 'ru', of 24 in 'en': which of them translate the rows of"
    assert what in told and not (output / "cells").exists()
    dev = re.search(r"--gin.DEV_SPLIT='(\S+)'", told)[1]
    remedy = ["--gin.SELECT=last", f"--gin.DEV_SPLIT={dev}"]
    assert finetune("xtreme/tydiqa", start, questions, output, *remedy, more) == 0
    (run,) = (path.parent for path in output.rglob("run.json"))
    assert mixture(run) == "xtreme/tydiqa: gold en 24, translated ru 25"


def test_faults_of_test_sets_are_told_before_the_training(files, tmp_path, monkeypatch, capsys):
    """Of every language: the last one's too, and of the sets that are to be submitted."""
    data = tmp_path / "files"
    shutil.copytree(files / "xtreme/xnli", data / "xtreme/xnli")
    start = random_run(tmp_path, files)
    monkeypatch.setattr(cell_training, "launch", lambda *_: pytest.fail("it was trained"))
    lines = (data / "xtreme/xnli/test-ru.tsv").read_text().splitlines()
    halves = "--gin.DEV_SPLIT=dev[:50%]", "--gin.TEST_SPLIT=dev[50%:]"
    for line, fault in (("A\tB\tmaybe", "unknown label 'maybe'"), ("A", "1 columns, expected 3")):
        (data / "xtreme/xnli/test-ru.tsv").write_text("\n".join([*lines[:3], line]) + "\n")
        for more in ((), halves):
            assert finetune("xtreme/xnli", start, data, tmp_path / "out", *more) == 2
            told = capsys.readouterr().err
            assert f"xnli/test-ru.tsv, line 4: {fault}" in told and told.count("\n") == 1
            assert not (tmp_path / "out").exists()
