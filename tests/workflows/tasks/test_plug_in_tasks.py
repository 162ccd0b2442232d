"""Sweeps of plug-in fine-tuning on questions and tags, from files laid out as XTREME's and FILTER's
authors have them."""

import json
import shutil

import pytest

from tests.helpers import sweeping
from tests.helpers.official_files import Told
from tests.helpers.sweeping import finetune, random_run, scores
from xlingjax.config.recipe import bindings
from xlingjax.data.labelled.task import read
from xlingjax.evaluation.task.predictions import predict
from xlingjax.inference.run import open_run
from xlingjax.preprocessors.beside import standing_beside, training_pairs
from xlingjax.preprocessors.training_set import Training
from xlingjax.tasks import task_named
from xlingjax.workflows.tasks.request import reading_of, values_of

files = sweeping.files
XQUAD, UDPOS, MLQA = (task_named(f"xtreme/{name}") for name in ("xquad", "udpos", "mlqa"))
SPANS = ("--gin.LENGTH=48", "--gin.MAX_QUESTION=12", "--gin.STRIDE=24", "--gin.TRAIN_STEPS=1")
PLUG_IN = ("--strategy plug_in",)


def put(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture(scope="module")
def start(tmp_path_factory, files):
    return random_run(tmp_path_factory.mktemp("start"), files, cross_attention=True)


@pytest.fixture
def data(files, tmp_path):
    """The questions in another order in German, translated into English in Russian; of the tags
    words alone."""
    root = tmp_path / "files"
    for name in ("squad", "xquad", "udpos", "mlqa"):
        shutil.copytree(files / "xtreme" / name, root / "xtreme" / name)
    translated = root / "xtreme/squad/translate-train/squad.translate.train.en-de.json"
    squad = json.loads(translated.read_text("utf-8"))
    squad["data"].reverse()
    put(translated, [json.dumps(squad)])
    told = Told(files / "told", ("de", "en", "ru"))
    english = told.squad("test", "en")
    for article in english["data"]:
        paragraph = article["paragraphs"][0]
        paragraph["context"] = "By a machine. " + paragraph["context"]
        # XTREME's have answers that stand nowhere.
        paragraph["qas"][0]["answers"] = [{"text": "nowhere", "answer_start": 3}]
    put(root / "xtreme/xquad/translate-test/xquad.translate.test.ru-en.json", [json.dumps(english)])
    for code in ("de", "ru"):
        name = f"udpos/translate-train/train-{code}.mt.tsv"
        put(root / "xtreme" / name, words(told, "train", code))
        for part in ("dev", "test"):
            put(
                root / f"xtreme/udpos/translate-{part}/{part}-{code}-en.tsv",
                words(told, part, "en"),
            )
    return root


def words(told, part, code):
    return [
        " ".join(word for word, _ in sentence) for sentence in told.sentences("pos", part, code)
    ]


def test_what_stands_beside_which(data):
    at = data / "xtreme"
    own, beside, *lost = training_pairs(XQUAD, at, Training(("en",), ("de",)), "translated", "de")
    assert own[0].id == "train-23" and lost == [0, ""]
    assert [one.id for one in own] == [one.id for one in beside]
    assert own[0].context != beside[0].context
    # Of a part of the English questions the translations of that part, wherever they stand.
    cut = training_pairs(XQUAD, at, Training(("en",), ("de",), "train[:25%]"), "translated", "de")
    assert [one.id for one in cut[0]] == [f"train-{n}" for n in reversed(range(6))]
    german, russian = (standing_beside(XQUAD, at, "test", code)[0] for code in ("de", "ru"))
    assert [*german] == read(XQUAD, at, "test", "en")
    assert all(one.context.startswith("By a machine. ") for one in russian)
    assert standing_beside(XQUAD, at, "test", "en")[0] == read(XQUAD, at, "test", "en")
    half = standing_beside(MLQA, at, "dev[:50%]", "de")[0]
    assert [one.id for one in half] == [one.id for one in read(MLQA, at, "dev[:50%]", "de")]
    part = standing_beside(UDPOS, at, "dev[50%:]", "de")[0]
    assert part == read(UDPOS, at, "translate_dev", "de")[6:]
    pairs = training_pairs(UDPOS, at, Training(("en",), ("de",)), "translated", "de")
    assert not pairs[0][0].tags and pairs[1][0].tags


def test_what_is_missing_is_told_in_a_line_before_any_training(data, start, tmp_path, capsys):
    def refused(task, part, *more):
        assert finetune(task, start, data, tmp_path / "out", *PLUG_IN, *more) == 2
        error = capsys.readouterr().err.strip().splitlines()
        assert len(error) == 1 and part in error[0], error

    path = data / "xtreme/udpos/translate-dev/dev-ru-en.tsv"
    kept = path.read_text("utf-8")
    path.unlink()
    refused("xtreme/udpos", f"missing file: {path}: plug-in")
    put(path, kept.splitlines()[:-1])
    refused("xtreme/udpos", f"12 examples in 'ru' and 11 in 'en' ({path})")
    english = data / "xtreme/xquad/xquad.en.json"
    english.write_text(english.read_text("utf-8").replace('"test-', '"other-'), "utf-8")
    told = f"12 of 12 examples in 'de' have no partner by id in 'en' ({english})"
    refused("xtreme/xquad", told, *SPANS)


@pytest.mark.long
def test_questions_are_answered_beside_their_translations(data, start, tmp_path, capsys):
    out = tmp_path / "out"
    assert finetune("xtreme/xquad", start, data, out, *PLUG_IN, *SPANS) == 0, capsys.readouterr()
    cell = out / "cells/xtreme/xquad/plug_in/seed-0"
    record = json.loads((cell / "run/run.json").read_text())
    assert record["model"]["classifier"] == "plug_in_spans"
    mixture = record["identity"]["data"]["plug_in_spans"]["mixture"]
    assert mixture == "xtreme/xquad: translated de 24 beside en, translated ru 24 beside en"
    tested = scores(out, "xtreme", "xquad", "plug_in", "seed-0")["test"]
    assert [*tested["by_language"]] == ["de", "en", "ru"]
    found = json.loads((cell / "predictions/xquad/test-de.json").read_text("utf-8"))
    german = read(XQUAD, data / "xtreme", "test", "de")
    assert [*found] == [one.id for one in german]
    assert all(found[one.id] in one.context for one in german)
    # Another text beside them gives other answers.
    trained = open_run(cell / "run")
    bound = values_of(bindings([str(cell / "cell.gin")], ()))
    english = standing_beside(XQUAD, data / "xtreme", "test", "de")[0]
    how = (trained, XQUAD, german, "de", reading_of(bound))
    assert predict(*how, english) == found
    assert predict(*how, english[::-1]) != found


@pytest.mark.long
def test_words_are_tagged_beside_their_translations(data, start, tmp_path):
    def trained(strategy):
        more = ("--gin.TRAIN_STEPS=1", "--strategy", strategy)
        assert finetune("xtreme/udpos", start, data, tmp_path / "out", *more) == 0
        cell = tmp_path / "out/cells/xtreme/udpos" / strategy / "seed-0"
        return cell, json.loads((cell / "run/run.json").read_text())

    cell, record = trained("plug_in")
    assert record["model"]["classifier"] == "plug_in_tagging"
    lines = (cell / "predictions/udpos/test-de.tsv").read_text("utf-8").strip("\n").split("\n\n")
    german = read(UDPOS, data / "xtreme", "test", "de")
    assert [len(block.splitlines()) for block in lines] == [len(one.words) for one in german]
    # What a teacher labels has tags on both sides.
    _, record = trained("plug_in_teacher")
    mixture = record["identity"]["data"]["plug_in_tagging"]["mixture"]
    assert mixture == "xtreme/udpos: labelled de 24 beside en, labelled ru 24 beside en"


@pytest.mark.long
def test_xtremes_own_translations_of_pairs_are_paired_by_their_originals(
    files, start, tmp_path, capsys
):
    """XTREME's translate-train and translate-test files in an order of their own; one row has
    another original."""
    data = tmp_path / "files"
    shutil.copytree(files / "xtreme/xnli", data / "xtreme/xnli")
    train = data / "xtreme/xnli/translate-train/en-de-translated.tsv"
    test = data / "xtreme/xnli/translate-test/test-de-en-translated.tsv"
    for path in (train, test):
        lines = path.read_text("utf-8").splitlines()
        put(path, [*lines[5:], *lines[:5]])
    lines = train.read_text("utf-8").splitlines()
    other = ("Another pair", "of MultiNLI", *lines[0].split("\t")[2:])
    put(train, ["\t".join(other), *lines[1:]])
    out = tmp_path / "out"
    assert finetune("xtreme/xnli", start, data, out, *PLUG_IN, "--gin.TRAIN_STEPS=1") == 0
    told = capsys.readouterr().out
    assert (
        f"{train}, de: 1 of 24 examples (4.2%) have no partner by original text: left out" in told
    )
    record = out / "cells/xtreme/xnli/plug_in/seed-0/run/run.json"
    mixture = json.loads(record.read_text())["identity"]["data"]["plug_in"]["mixture"]
    assert mixture == "xtreme/xnli: translated de 23 beside en, translated ru 24 beside en"
    xnli = task_named("xtreme/xnli")
    english = read(xnli, data / "xtreme", "test", "en")
    assert [*standing_beside(xnli, data / "xtreme", "test", "de")[0]] == english
