"""Training sets of the strategies: what an epoch holds, and examples that a teacher labelled."""

import json

import numpy as np
import official_files
import pytest
from evaluation import toy

from xlingjax.data.benchmark import read
from xlingjax.data.labelled import Example, Tagged
from xlingjax.errors import UserError
from xlingjax.preprocessors.benchmark import (
    Reading,
    Training,
    beside_rows,
    count_rows,
    labelled_path,
    read_labelled,
    task_rows,
    task_source,
    write_labelled,
)
from xlingjax.tasks import task_named

LANGUAGES = ("de", "en", "fr")
READING = Reading(length=24)
XNLI, UDPOS = task_named("xtreme/xnli"), task_named("xtreme/udpos")


class Hashed(toy.ToyVocabulary):
    """Every word is a piece of its own, by its letters."""

    def encode(self, text):
        return [14 + sum(map(ord, word)) % 26 for word in text.split()]

    def encode_with_spans(self, text):
        ends = np.cumsum([len(word) + 1 for word in text.split(" ")])
        return self.encode(text), [(end - 1 - len(word), end - 1) for word, end in zip(text.split(" "), ends)]  # noqa: B905


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = official_files.write(tmp_path_factory.mktemp("files"), LANGUAGES, train=30, dev=4, test=4)
    return root / "xtreme"


def source(task, folder, training, **options):
    return task_source(task, folder, training, Hashed(), LANGUAGES, READING, **dict(batch_size=10, seed=3) | options)


def rows(of, batches):
    """[(language, bytes of every field)] of each example in turn."""
    made = [of.next() for _ in range(batches)]
    return [
        (int(batch["language_ids"][i, 0]), b"".join(batch[name][i].tobytes() for name in sorted(batch)))
        for batch in made
        for i in range(len(batch["input_ids"]))
    ]


def test_an_epoch_of_translate_train_all_is_every_example_in_every_language_once(folder):
    found = rows(source(XNLI, folder, Training(("en",), ("all",))), 18)  # two epochs of 90
    assert all(len({language for language, _ in found[at : at + 10]}) > 1 for at in range(0, 180, 10))
    parts = [("train", "en"), ("translate_train", "de"), ("translate_train", "fr")]
    for epoch in (found[:90], found[90:]):
        for index, (split, language) in zip((1, 0, 2), parts, strict=True):
            alone = Training(("en",), ()) if language == "en" else Training((), (language,))
            own = sorted(row for at, row in epoch if at == index)
            assert len(read(XNLI, folder, split, language)) == len(own) == 30
            assert own == sorted(row for _, row in rows(source(XNLI, folder, alone), 3))
    assert found[:90] != found[90:]


@pytest.mark.parametrize("seed", [3, 4])
def test_without_the_translations_it_is_zero_shot_training_bit_for_bit(folder, seed):
    alone = rows(source(XNLI, folder, Training(), seed=seed), 6)  # two epochs of 30
    both = rows(source(XNLI, folder, Training(("en",), ("all",)), seed=seed), 18)
    assert [row for row in both if row[0] == 1] == alone


def test_sets_that_are_read_side_by_side_must_be_in_one_order():
    first = [Example("a", "b", "neutral", 1), Example("c", "d", "entailment", 2)]
    message = "xtreme/xnli, line 2 in 'de' is 'entailment', line 1 in 'en' 'neutral': .* in the same order"
    with pytest.raises(UserError, match=message):
        beside_rows(XNLI, first[::-1], first, Hashed(), READING, "de", (0, 1))
    with pytest.raises(UserError, match="2 examples in 'de' and 1 in 'en'"):
        beside_rows(XNLI, first, first[:1], Hashed(), READING, "de", (0, 1))


@pytest.mark.parametrize(
    "name, length, resets", [("xnli", 12, False), ("udpos", 5, False), ("xquad", 20, False), ("xquad", 20, True)]
)
def test_rows_are_counted_without_making_them(folder, name, length, resets):
    """The rows that an epoch has: windows of questions and parts of sentences are more than their files' records."""
    task = task_named(f"xtreme/{name}")
    records = read(task, folder, "train", "en")
    reading = Reading(length=length, stride=6, max_question=8, reset_positions=resets)
    made = task_rows(task, records, Hashed(), reading, "en", 1)
    counted = count_rows(task, records, Hashed(), reading, "en")
    assert counted == len(made["input_ids"]) and (counted > 1.2 * len(records)) == (name != "xnli")


# --- a teacher's labels ----------------------------------------------------------------------------------------------

SENTENCES = [Tagged(("no", "dogs", "sleep"), ("DET", "NOUN", "VERB"), 1), Tagged(("run",), ("VERB",), 5)]


def labelled(root, language="de", sentences=SENTENCES):
    write_labelled(labelled_path(root, UDPOS, language), sentences)
    return labelled_path(root, UDPOS, language)


def test_a_tag_of_the_teacher_stands_at_its_word(folder, tmp_path):
    path = labelled(tmp_path)
    assert read_labelled(path, UDPOS) == SENTENCES and [s.line for s in read_labelled(path, UDPOS)] == [1, 5]
    batch = source(UDPOS, folder, Training((), (), labelled=str(tmp_path)), batch_size=2).next()
    by_length = batch["tag_weights"].sum(axis=1).argsort()
    used = batch["tag_weights"][by_length] > 0
    assert used.sum(axis=1).tolist() == [1, 3] and used[1, 1:4].all()  # behind </s>, one tag a word
    tags = [UDPOS.labels[i] for i in batch["tag_labels"][by_length[1]][1:4]]
    assert tags == ["DET", "NOUN", "VERB"] and (batch["language_ids"][:, 0] == 0).all()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"tags": ["DET", "NOUN"]}, "line 2: 3 words, but 2 tags"),
        ({"tags": []}, "line 2: 3 words, but 0 tags"),
        ({"tags": ["DET", "NOUN", "VREB"]}, "line 2: unknown tag 'VREB', expected one of ADJ, ADP"),
        ({"marks": []}, "line 2: not a record of a tagging task"),
    ],
)
def test_faults_of_a_teachers_file_name_the_line(tmp_path, change, message):
    path = labelled(tmp_path, sentences=[SENTENCES[1], SENTENCES[0]])
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{json.dumps(json.loads(second) | change)}\n")
    with pytest.raises(UserError, match=f"udpos.de.jsonl, {message}") as error:
        read_labelled(path, UDPOS)
    assert "\n" not in str(error.value)


def test_a_label_that_the_task_does_not_have_is_named(tmp_path):
    path = labelled_path(tmp_path, XNLI, "de")
    path.write_text('{"premise": "a", "hypothesis": "b", "label": "maybe", "line": 1}\n')
    with pytest.raises(UserError, match="xnli.de.jsonl, line 1: unknown label 'maybe', expected one of contradiction"):
        read_labelled(path, XNLI)
