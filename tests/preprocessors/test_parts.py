"""What a task is trained on, from the store: the rows that its files make, made once."""

import dataclasses
import pickle
import shutil

import numpy as np
import pytest

from tests.preprocessors import test_task
from tests.preprocessors.test_task import XNLI, Hashed
from xlingjax.data.labelled.own_task import own_task
from xlingjax.data.labelled.task import read
from xlingjax.data.store.entries import folder_of
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.preprocessors import parts as making
from xlingjax.preprocessors.parts import Part, stored
from xlingjax.preprocessors.task_rows import Reading, beside_rows, task_rows
from xlingjax.preprocessors.training_set import OwnFiles, Training
from xlingjax.tasks import task_named

folder = test_task.folder
ALL = Training(("en",), ("all",))
GOLD = Training(("all",))
KINDS = {
    "pairs": ("xtreme/xnli", Reading(24)),
    "as in TLM": ("xtreme/xnli", Reading(9, reset_positions=True)),
    "tags": ("xtreme/udpos", Reading(5)),
    "tags of all pieces": ("xtreme/panx", Reading(24, pieces="all", apart=False)),
    "questions": ("xtreme/xquad", Reading(20, stride=6, max_question=8)),
    "questions as in TLM": (
        "xtreme/xquad",
        Reading(22, reset_positions=True, stride=9, max_question=8),
    ),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path / "cache"))
    # Chunks of a few records: what stands at their borders is seen.
    monkeypatch.setattr(making, "CHUNK_RECORDS", 7)


def assert_same(part, made, *language_ids):
    found = part.rows.take(np.arange(len(part.rows)), language_ids)
    assert {*found} == {*made}
    for name, values in made.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_that_the_records_make(folder, kind):
    name, reading = KINDS[kind]
    task = task_named(name)
    training = ALL
    if task.kind == "tagging":
        training = GOLD
    parts = [
        Part(task, str(folder), training, reading, origin, language)
        for origin, language in training.parts(task, folder)
    ]
    assert len(parts) > 1
    for part, found in zip(parts, stored(parts, Hashed()), strict=True):
        split = {"gold": "train", "translated": "translate_train"}[part.origin]
        records = read(task, folder, split, part.language)
        made, _ = task_rows(task, records, Hashed(), reading, part.language, 2)
        assert_same(found, made, 2)
        count = len(records)
        assert found.facts.items() >= {"records": count, "learnt": count, "unpaired": ""}.items()


def test_rows_of_two_texts_are_too(folder):
    part = Part(XNLI, str(folder), ALL, Reading(24), "translated", "fr", paired=True)
    (found,) = stored([part], Hashed())
    records = [read(XNLI, folder, *which) for which in (("translate_train", "fr"), ("train", "en"))]
    made = beside_rows(XNLI, *records, Hashed(), Reading(24), "fr", (2, 1))
    assert made["input_ids"].shape == (30, 48)
    assert_same(found, made, 2, 1)


# --- once -----------------------------------------------------------------------------------------


def part(folder, **changes):
    return dataclasses.replace(
        Part(XNLI, str(folder), ALL, Reading(24), "translated", "de"), **changes
    )


def forbidden(*_):
    raise AssertionError("the files are read")


def digests(parts, vocabulary):
    return [one.facts["digest"] for one in stored(parts, vocabulary)]


def test_a_second_start_reads_no_file(folder, monkeypatch):
    parts = [part(folder), part(folder, language="fr")]
    first = digests(parts, Hashed())
    monkeypatch.setattr(Training, "records", forbidden)
    assert digests(parts, Hashed()) == first and first[0] != first[1]


def test_a_part_is_of_all_that_its_rows_depend_on(folder, tmp_path):
    def name(one, vocabulary=Hashed):
        return one.entry(vocabulary())

    own = name(part(folder))
    others = [
        part(folder, language="fr"),
        part(folder, origin="gold", language="en"),
        part(folder, paired=True),
        part(folder, reading=Reading(25)),
        part(folder, training=Training((), ("all",), "train[:50%]")),
        part(folder, task=dataclasses.replace(XNLI, labels=XNLI.labels[::-1])),
        part(folder, task=task_named("xnli/xnli")),
    ]
    names = [name(one) for one in others]
    assert name(part(folder, reading=Reading(24, stride=3, beams=5))) == own
    assert name(part(folder), test_task.toy.ToyVocabulary) != own  # of a class of one's own
    tags = part(folder, task=task_named("xtreme/udpos"), origin="gold", language="en")
    of_tags = [name(dataclasses.replace(tags, reading=Reading(n))) for n in (24, 25)]
    longer = dataclasses.replace(tags, reading=Reading(24, stride=3, beams=5))
    assert name(longer) == of_tags[0] != of_tags[1]
    moved = tmp_path / "moved"
    moved.symlink_to(folder)
    assert name(part(moved)) == own
    edited = tmp_path / "edited/xnli/translate-train"
    edited.mkdir(parents=True)
    (path,) = part(folder).paths()
    (edited / path.name).write_bytes(path.read_bytes() + b"A\tB\tA\tB\tneutral\n")
    names.append(name(part(tmp_path / "edited")))
    assert len({own, *names}) == 9


def test_a_file_that_cannot_be_read_leaves_no_part(folder, tmp_path):
    with pytest.raises(UserError, match="no translate_train files of '(sw|tr)'"):
        stored([part(folder, language="sw")], Hashed())
    path = tmp_path / "xnli/translate-train/en-de-translated.tsv"
    path.parent.mkdir(parents=True)
    path.write_text("A\tB\tA\tB\tmaybe\n")
    for _ in range(2):
        with pytest.raises(UserError, match="line 1: unknown label 'maybe'"):
            stored([part(tmp_path)], Hashed())


def test_a_part_is_the_same_in_another_process(folder, tmp_path, small_vocabulary):
    """Of every kind of task of a benchmark, and one's own files."""
    vocabulary = Vocabulary.load(small_vocabulary)
    (tmp_path / "own.tsv").write_text("A\tB\tx\n")
    (tmp_path / "words.tsv").write_text("A\tx\nB\ty\n")
    parts = [
        Part(task_named(name), str(folder), ALL, reading, "gold", "en")
        for name, reading in KINDS.values()
    ]
    for kind, name in (("classification", "own.tsv"), ("tagging", "words.tsv")):
        own = own_task(kind, "train", {"en": tmp_path / name}, "xy")
        parts.append(Part(own, "", OwnFiles(), Reading(24), "own", "en"))
    for one in parts:
        assert pickle.loads(pickle.dumps(one)).entry(vocabulary) == one.entry(vocabulary)


def test_much_text_is_made_in_several_processes(folder, small_vocabulary, monkeypatch):
    vocabulary = Vocabulary.load(small_vocabulary)
    parts = [part(folder), part(folder, language="fr")]
    alone = digests(parts, vocabulary)
    shutil.rmtree(folder_of(making.KIND, ""))
    monkeypatch.setattr(making, "FEW_BYTES", 0)
    monkeypatch.setattr(making, "default_processes", lambda: 2)
    with monkeypatch.context() as patch:
        # They are made elsewhere.
        patch.setattr(Training, "records", forbidden)
        assert digests(parts, vocabulary) == alone
    bad = part(folder, language="sw")
    worse = part(folder, language="tr")
    with pytest.raises(UserError, match="no translate_train files of '(sw|tr)'"):
        stored([bad, worse], vocabulary)


@pytest.fixture(scope="module")
def small_vocabulary(tmp_path_factory):
    from xlingjax.data.vocabulary import training

    root = tmp_path_factory.mktemp("vocabulary")
    text = root / "text.en.txt"
    lines = test_task.toy.sentences(2000, longest=9)
    text.write_text("".join(f"{line} the dogs sleep und in Rom\n" for line in lines))
    options = {"threads": 1, "character_coverage": 1.0}
    training.train_vocabulary(root / "v", mono=str(text), size=45, **options)
    return root / "v"
