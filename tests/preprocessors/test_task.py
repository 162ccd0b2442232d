"""Training sets of the strategies: what an epoch holds, and examples that a teacher labelled."""

import json

import numpy as np
import pytest

from tests.data.labelled.test_teacher import labelled
from tests.helpers import official_files, toy
from xlingjax.data.labelled.task import read
from xlingjax.errors import UserError
from xlingjax.preprocessors.parts import task_source
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import Training
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
        words = text.split(" ")
        spans = [(end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True)]
        return self.encode(text), spans


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = official_files.write(
        tmp_path_factory.mktemp("files"), LANGUAGES, train=30, dev=4, test=4
    )
    return root / "xtreme"


def source(task, folder, training, **options):
    return task_source(
        task,
        folder,
        training,
        Hashed(),
        LANGUAGES,
        READING,
        **dict(batch_size=10, seed=3) | options,
    )


def rows(of, batches):
    """[(language, bytes of every field)] of each example in turn."""
    made = [of.next() for _ in range(batches)]
    return [
        (
            int(batch["language_ids"][i, 0]),
            b"".join(batch[name][i].tobytes() for name in sorted(batch)),
        )
        for batch in made
        for i in range(len(batch["input_ids"]))
    ]


def test_an_epoch_of_translate_train_all_is_every_example_in_every_language_once(folder):
    found = rows(source(XNLI, folder, Training(("en",), ("all",))), 18)  # two epochs of 90
    assert all(
        len({language for language, _ in found[at : at + 10]}) > 1 for at in range(0, 180, 10)
    )
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


# --- translations ---------------------------------------------------------------------------------


def told(task, folder, training):
    with pytest.raises(UserError) as error:
        task_source(
            task, folder, training, Hashed(), LANGUAGES, Reading(24, max_question=4), batch_size=4
        )
    assert "\n" not in str(error.value)
    return str(error.value)


def questions(path, *asked):
    """asked: (question, answer, start) of each paragraph "In Rom und Bonn."."""
    paragraphs = [
        {"context": "In Rom und Bonn.", "qas": [
            {"id": "x", "question": text, "answers": [{"text": answer, "answer_start": start}]}
        ]}
        for text, answer, start in asked
    ]  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return path


def test_a_question_that_cannot_be_learnt_is_named_with_its_file_and_language(tmp_path):
    """TyDi QA's ids are rows, alike in every language."""
    task = task_named("xtreme/tydiqa")
    gold = tmp_path / "tydiqa/tydiqa-goldp-v1.1-train"
    questions(gold / "tydiqa.goldp.en.train.json", ("Wo?", "Rom", 3), ("Wo?", "Bonn.", 11))
    korean = questions(gold / "tydiqa.goldp.ko.train.json", ("Wo?", "Rom", 3), ("Wo?", " ", 6))
    training = Training(("en", "ko"))
    assert told(task, tmp_path, training).startswith(
        "xtreme/tydiqa: training language 'ko' is not one of the run's"
    )
    with pytest.raises(
        UserError, match="^.*tydiqa.goldp.ko.train.json, ko: question 1: its answer ' ' does not"
    ) as e:
        task_source(
            task,
            tmp_path,
            training,
            Hashed(),
            ("en", "ko"),
            Reading(24, max_question=4),
            batch_size=2,
        )
    assert str(e.value).startswith(str(korean))
    with pytest.raises(UserError, match="^rows of 24 tokens"):  # of no file's making
        task_source(task, tmp_path, training, Hashed(), ("en", "ko"), Reading(24), batch_size=2)


# --- a teacher's labels ---------------------------------------------------------------------------


def test_a_tag_of_the_teacher_stands_at_its_word(folder, tmp_path):
    labelled(tmp_path)
    batch = source(UDPOS, folder, Training((), (), labelled=str(tmp_path)), batch_size=2).next()
    by_length = batch["tag_weights"].sum(axis=1).argsort()
    used = batch["tag_weights"][by_length] > 0
    assert used.sum(axis=1).tolist() == [1, 3] and used[1, 1:4].all()  # behind </s>, one tag a word
    tags = [UDPOS.labels[i] for i in batch["tag_labels"][by_length[1]][1:4]]
    assert tags == ["DET", "NOUN", "VERB"] and (batch["language_ids"][:, 0] == 0).all()
