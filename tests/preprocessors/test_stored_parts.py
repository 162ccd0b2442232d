"""What a task is trained on, from the store: the rows that its files make, made once."""

import dataclasses
import functools
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

from tests.helpers import released
from tests.preprocessors import test_task
from tests.preprocessors.test_task import XNLI, Hashed
from xlingjax.data.labelled.own_task import own_task
from xlingjax.data.labelled.records import Example, learnable
from xlingjax.data.labelled.task import read
from xlingjax.data.row_store import part_folder
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.preprocessors import finetuning, stored_parts
from xlingjax.preprocessors.finetuning import classification_rows, pair_row, stacked
from xlingjax.preprocessors.stored_parts import Part, stored
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
    monkeypatch.setattr(stored_parts, "CHUNK_RECORDS", 7)


def assert_same(part, made, *language_ids):
    found = part.rows.take(np.arange(len(part.rows)), part.rows.length, language_ids)
    assert {*found} == {*made}
    for name, values in made.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
        assert found[name].dtype == values.dtype


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
        made = task_rows(task, records, Hashed(), reading, part.language, 2)
        assert_same(found, made, 2)
        count = len(records)
        assert found.facts == {"records": count, "learnt": count, "unpaired": ""}


def test_rows_of_two_texts_are_too(folder):
    part = Part(XNLI, str(folder), ALL, Reading(24), "translated", "fr", paired=True)
    (found,) = stored([part], Hashed())
    records = [read(XNLI, folder, *which) for which in (("translate_train", "fr"), ("train", "en"))]
    made = beside_rows(XNLI, *records, Hashed(), Reading(24), "fr", (2, 1))
    assert made["input_ids"].shape == (30, 48)
    assert_same(found, made, 2, 1)


@functools.cache
def released_vocabulary():
    return Vocabulary.load(released.FOLDER)


@released.needs_released
@released.needs_data
@pytest.mark.parametrize(
    ("kind", "name", "length"),
    [
        ("classification", "xnli/train-en", 48),
        ("tagging", "panx/train-ur", 16),
        ("span_qa", "", 128),
    ],
)
def test_rows_of_official_files_and_a_released_tokenizer(kind, name, length, monkeypatch, tmp_path):
    monkeypatch.setattr(stored_parts, "CHUNK_RECORDS", 51)
    vocabulary = released_vocabulary()
    root = str(released.DATA / "tasks")
    if name:
        split, labels = "train", ("contradiction", "entailment", "neutral")
        if kind == "tagging":
            labels = tuple(f"{a}-{b}" for a in "BI" for b in ("PER", "ORG", "LOC")) + ("O",)
        lines = open(f"{root}/{name}.tsv", "rb").readlines()  # noqa: SIM115
        (tmp_path / "files.tsv").write_bytes(b"".join(lines[:1500]))
        task = own_task(kind, split, {"ur": tmp_path / "files.tsv"}, labels)
        data, training, part_of = "", OwnFiles(), ("own", "ur")
        records = training.records(task, data, *part_of)
    else:
        task, data, part_of = task_named("xtreme/mlqa"), root, ("gold", "de")
        task = dataclasses.replace(task, files={"train": task.files["dev"]})
        training = Training(split="train[:60]")
        records = learnable(read(task, data, "train[:60]", "de"))
    reading = Reading(length, max_question=16, stride=64)
    (found,) = stored([Part(task, data, training, reading, *part_of)], vocabulary)
    made = task_rows(task, records, vocabulary, reading, part_of[1], 3)
    assert len(records) >= 60 and (made["input_ids"] > 65_535).any()
    assert_same(found, made, 3)
    assert (found.rows.longest.max() == length) and (found.rows.longest.min() < length / 2)


@pytest.mark.parametrize("layout", ["xlm", "xlmr"])
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("length", [6, 9, 24])
def test_pairs_at_once_are_pairs_one_by_one(layout, reset, length):
    vocabulary = test_task.toy.ToyVocabulary(layout)
    texts = ["", "a", "a b c", "a b c d e f g h i j k l m n"]
    examples = [Example(a, b, None) for a in texts for b in [*texts, None]]
    made = classification_rows(examples, vocabulary, length, ("x",), 4, reset)
    encoded = []
    for one in examples:
        second = None
        if one.hypothesis is not None:
            second = vocabulary.encode(one.hypothesis)
        first = vocabulary.encode(one.premise)
        encoded.append(pair_row(first, second, vocabulary, length, reset))
    for name, values in stacked(encoded).items():
        np.testing.assert_array_equal(made[name], values, err_msg=name)
        assert made[name].dtype == np.int32
    assert (made["language_ids"] == 4 * made["pack_ids"]).all()
    with pytest.raises(UserError, match="leaves no room for a pair"):
        classification_rows(examples, vocabulary, 4, ("x",), 4, reset)


# --- once -----------------------------------------------------------------------------------------


def part(folder, **changes):
    return dataclasses.replace(
        Part(XNLI, str(folder), ALL, Reading(24), "translated", "de"), **changes
    )


def forbidden(*_):
    raise AssertionError("the files are read")


def test_a_second_start_reads_no_file(folder, monkeypatch):
    parts = [part(folder), part(folder, language="fr")]
    first = stored(parts, Hashed())
    monkeypatch.setattr(Training, "records", forbidden)
    again = stored(parts, Hashed())
    assert [one.digest for one in again] == [one.digest for one in first]
    assert first[0].digest != first[1].digest


def test_a_part_is_of_all_that_its_rows_depend_on(folder, tmp_path, monkeypatch):
    key = part(folder).key(Hashed())
    others = [
        part(folder, language="fr"),
        part(folder, origin="gold", language="en"),
        part(folder, paired=True),
        part(folder, reading=Reading(25)),
        part(folder, reading=Reading(24, reset_positions=True)),
        part(folder, training=Training((), ("all",), "train[:50%]")),
        part(folder, task=dataclasses.replace(XNLI, labels=XNLI.labels[::-1])),
        part(folder, task=task_named("xnli/xnli")),
    ]
    keys = [one.key(Hashed()) for one in others]
    keys.append(part(folder).key(test_task.toy.ToyVocabulary()))
    # Of pairs these make no difference.
    assert part(folder, reading=Reading(24, stride=3, beams=5)).key(Hashed()) == key
    moved = tmp_path / "moved"
    moved.symlink_to(folder)
    assert part(moved).key(Hashed()) == key
    edited = tmp_path / "edited/xnli/translate-train"
    edited.mkdir(parents=True)
    (path,) = part(folder).paths()
    (edited / path.name).write_bytes(path.read_bytes() + b"A\tB\tA\tB\tneutral\n")
    keys.append(part(tmp_path / "edited").key(Hashed()))
    # A change of the code that makes rows, and of a vocabulary of one's own.
    for changed, name, code in (
        (finetuning, "_begins", lambda ids, lengths, kept: ids),
        (Hashed, "encode", lambda vocabulary, text: [14]),
    ):
        with monkeypatch.context() as one:
            one.setattr(changed, name, code)
            stored_parts._made_by.cache_clear()
            keys.append(part(folder).key(Hashed()))
    stored_parts._made_by.cache_clear()
    assert len({key, *keys}) == 13


def test_a_damaged_part_is_made_again_with_one_line(folder, capsys):
    (found,) = stored([part(folder)], Hashed())
    place = part_folder(part(folder).key(Hashed()))
    os.truncate(place / "input_ids.bin", 10)
    (again,) = stored([part(folder)], Hashed())
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"xtreme/xnli translated de: its rows in {place} are damaged (input_ids")
    assert line.endswith("they are made again") and again.digest == found.digest
    stored([part(folder)], Hashed())
    assert not capsys.readouterr().out


def test_a_file_that_cannot_be_read_leaves_no_part(folder, tmp_path):
    with pytest.raises(UserError, match="no translate_train files of 'sw'"):
        stored([part(folder, language="sw")], Hashed())
    path = tmp_path / "xnli/translate-train/en-de-translated.tsv"
    path.parent.mkdir(parents=True)
    path.write_text("A\tB\tA\tB\tmaybe\n")
    for _ in range(2):
        with pytest.raises(UserError, match="line 1: unknown label 'maybe'"):
            stored([part(tmp_path)], Hashed())


def test_of_two_at_once_one_makes_it_and_the_other_waits(folder, monkeypatch, capsys):
    begun, waits = threading.Event(), threading.Event()
    records, made = Training.records, []

    def slow(*arguments):
        made.append(arguments)
        begun.set()
        assert waits.wait(60)
        return records(*arguments)

    def say(line):
        assert "another process makes its rows; waiting for it" in line
        waits.set()

    monkeypatch.setattr(Training, "records", slow)
    monkeypatch.setattr(stored_parts, "_say", say)
    found = []
    threads = [
        threading.Thread(target=lambda: found.extend(stored([part(folder)], Hashed())))
        for _ in range(2)
    ]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and len({one.digest for one in found}) == 1 and len(found) == 2
    place = part_folder(part(folder).key(Hashed()))
    assert [*place.parent.iterdir()] == [place]


def test_a_process_of_its_own_makes_the_same_part(folder, tmp_path, small_vocabulary):
    """As `_in_process` starts it, for every kind of task of a benchmark, and one's own files."""
    vocabulary = Vocabulary.load(small_vocabulary)
    parts = [
        Part(task_named(name), str(folder), ALL, reading, "gold", "en")
        for name, reading in KINDS.values()
    ]
    path = tmp_path / "own.tsv"
    path.write_text("A\tB\tx\n")
    own = own_task("classification", "train", {"en": path}, "xy")
    parts.append(Part(own, "", OwnFiles(), Reading(24), "own", "en"))
    own = own_task("tagging", "train", {"en": tmp_path / "words.tsv"}, "xy")
    (tmp_path / "words.tsv").write_text("A\tx\nB\ty\n")
    parts.append(Part(own, "", OwnFiles(), Reading(24), "own", "en"))
    for name, content in vocabulary.files().items():
        (tmp_path / name).write_bytes(content)
    job = tmp_path / "1.part"
    for one in parts:
        job.write_bytes(pickle.dumps((one, part_folder(one.key(vocabulary)))))
    command = [sys.executable, "-m", "xlingjax.preprocessors.stored_parts", str(job)]
    assert subprocess.run(command, check=False).returncode == 0
    own_folder = part_folder(parts[-1].key(vocabulary))
    there = (own_folder / "part.json").read_bytes()
    (found,) = stored(parts[-1:], vocabulary)
    assert (own_folder / "part.json").read_bytes() == there and len(found.rows) == 1
    (tmp_path / "words.tsv").write_text("A\tz\nB\ty\n")
    job.write_bytes(pickle.dumps((parts[-1], part_folder("another"))))
    assert subprocess.run(command, check=False).returncode == 0
    assert "tag 'z' is not one of x, y" in job.with_suffix(".error").read_text()


def test_much_text_is_tokenised_in_several_processes(folder, small_vocabulary, monkeypatch):
    vocabulary = Vocabulary.load(small_vocabulary)
    parts = [part(folder), part(folder, language="fr")]
    alone = [one.digest for one in stored(parts, vocabulary)]
    for one in parts:
        place = part_folder(one.key(vocabulary))
        os.rename(place, place.with_name(f"{place.name}.alone"))
    monkeypatch.setattr(stored_parts, "MUCH_BYTES", 0)
    monkeypatch.setattr(stored_parts, "default_processes", lambda: 2)
    with monkeypatch.context() as patch:
        # They are made elsewhere.
        patch.setattr(Training, "records", forbidden)
        assert [one.digest for one in stored(parts, vocabulary)] == alone
    bad = part(folder, language="sw")
    worse = part(folder, language="tr")
    with pytest.raises(UserError, match="no translate_train files of 'sw'"):
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
