"""What a sweep trains on: how many steps an epoch has, what a teacher labels."""

import re
import shutil
from types import SimpleNamespace

import pytest
import sweeping
from sweeping import LANGUAGES, finetune, random_run

from xlingjax import cells, sweep, verbs
from xlingjax.data.benchmark import read
from xlingjax.data.vocabulary import Vocabulary
from xlingjax.preprocessors.benchmark import Reading, Training, read_labelled, task_source
from xlingjax.tasks import task_named
from xlingjax.trained import open_run

files = sweeping.files


def test_an_epoch_of_questions_is_of_windows(files, tmp_path, monkeypatch):
    """As the benchmarks' scripts count it: the steps of an epoch read every row of the training set once."""
    start = random_run(tmp_path, files)
    monkeypatch.setattr(verbs, "train", lambda args, recipe: 7)
    short = ["--gin.LENGTH=40", "--gin.MAX_QUESTION=12", "--gin.STRIDE=10", "--gin.EPOCHS=1", "--gin.SELECT=en"]
    settings = [*short, "--gin.TEST_LANGUAGES=en", "--gin.DEV_LANGUAGES=en"]
    assert finetune("xtreme/xquad", start, files, tmp_path / "out", *settings) == 7
    recipe = (tmp_path / "out/cells/xtreme/xquad/transfer/seed-0/cell.gin").read_text()
    steps = int(re.search(r"^TRAIN_STEPS = (\d+)$", recipe, re.MULTILINE)[1])
    reading, vocabulary = Reading(40, stride=10, max_question=12), Vocabulary.load(start)
    training = Training(), vocabulary, LANGUAGES, reading
    source = task_source(task_named("xtreme/xquad"), files / "xtreme", *training, batch_size=8)
    assert steps == round(source.identity["examples"] / 8) > 24 / 8 and "24 training examples" in recipe


def test_a_teacher_tags_every_word_of_the_translations_and_no_english_gold(files, tmp_path):
    task, data = task_named("xtreme/udpos"), tmp_path / "xtreme"
    shutil.copytree(files / "xtreme/udpos", data / "udpos")
    (data / "udpos/translate-train").mkdir()
    for language in LANGUAGES:  # what lies there of English is no translation
        sentences = read(task, files / "xtreme", "train", language)[:9]
        lines = [" ".join(s.words) + "\t" + " ".join(["X"] * len(s.words)) for s in sentences]
        (data / f"udpos/translate-train/train-{language}.mt.tsv").write_text("\n".join(lines) + "\n")
    random_run(tmp_path, files, classifier="tagging", num_labels=len(task.labels))
    (tmp_path / "scores.json").write_text('{"select": {"step": 7}}')
    teacher, student = (cells.Cell(task, "", {}, {}, 0, folder) for folder in (tmp_path, tmp_path / "student"))
    tools = SimpleNamespace(parse=lambda files, overrides: {"LENGTH": "8"})  # rows shorter than the sentences
    asked = cells.Asked(task, "", str(data), "")
    folder = sweep._label(asked, teacher, student, tools)
    assert sorted(path.name for path in folder.iterdir()) == ["udpos.de.jsonl", "udpos.ru.jsonl"]
    assert Training(("en",), labelled=str(folder)).parts(task, data) == [
        ("gold", "en"), ("labelled", "de"), ("labelled", "ru"),
    ]  # fmt: skip
    trained, reading = open_run(tmp_path / "run"), Reading(length=8)
    for language in ("de", "ru"):
        made = read_labelled(folder / f"udpos.{language}.jsonl", task)
        given = read(task, data, "translate_train", language)
        assert [one.words for one in made] == [one.words for one in given]
        alone = [sweep._predicted(trained, task, [one], language, reading)[0] for one in given]
        assert [list(one.tags) for one in made] == alone and {tag for tags in alone for tag in tags} != {"X"}


def test_faults_of_test_sets_are_told_before_the_training(files, tmp_path, monkeypatch, capsys):
    """Of every language: the last one's too, and of the sets that are to be submitted."""
    data = tmp_path / "files"
    shutil.copytree(files / "xtreme/xnli", data / "xtreme/xnli")
    start = random_run(tmp_path, files)
    monkeypatch.setattr(verbs, "train", lambda args, recipe: pytest.fail("it was trained"))
    lines = (data / "xtreme/xnli/test-ru.tsv").read_text().splitlines()
    halves = "--gin.DEV_SPLIT=dev[:50%]", "--gin.TEST_SPLIT=dev[50%:]"
    for line, fault in (("A\tB\tmaybe", "unknown label 'maybe'"), ("A", "1 columns, expected 3")):
        (data / "xtreme/xnli/test-ru.tsv").write_text("\n".join([*lines[:3], line]) + "\n")
        for more in ((), halves):
            assert finetune("xtreme/xnli", start, data, tmp_path / "out", *more) == 2
            told = capsys.readouterr().err
            assert f"xnli/test-ru.tsv, line 4: {fault}" in told and told.count("\n") == 1
            shutil.rmtree(tmp_path / "out")
