"""Which examples stand beside which, of small files in XTREME's layouts."""

import dataclasses
import json
import re

import pytest

from xlingjax.data.labelled.records import Tagged
from xlingjax.data.labelled.task import read
from xlingjax.data.labelled.teacher import labelled_path, write_labelled
from xlingjax.errors import UserError
from xlingjax.preprocessors.beside import beside_of, standing_beside, training_pairs
from xlingjax.preprocessors.training_set import Training
from xlingjax.tasks import task_named

PAWSX, UDPOS, XNLI, XQUAD = (
    task_named(f"xtreme/{name}") for name in ("pawsx", "udpos", "xnli", "xquad")
)
DE = Training(("en",), ("de",))
HEADER = "id\tsentence1\tsentence2\tlabel\n"


def put(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path):
    """Five English pairs and their German translations, the third of which is lost; three tagged
    sentences, of whose translations there are the words alone."""
    for path, words in (("en/train", "abcde"), ("de/translated_train", "ABCDE")):
        rows = [f"{n}\t{word}\t{word} {word}\t{n % 2}" for n, word in enumerate(words)]
        if "translated" in path:
            rows[2] = "2\t\t\t0"
        put(tmp_path / f"x-final/{path}.tsv", HEADER.strip(), *rows)
    put(tmp_path / "udpos/train-en.tsv", "a\tDET", "", "b\tNOUN", "", "c\tVERB", "")
    put(tmp_path / "udpos/translate-train/train-de.mt.tsv", "A A", "B", "C")
    return tmp_path


def pairs_of(found):
    return [(one.premise, two.premise) for one, two in zip(*found[:2], strict=True)]


# --- what is trained on ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("split", "learnt", "lost"),
    [
        ("train", "abde", 1),
        ("train[:60%]", "ab", 1),
        ("train[60%:]", "de", 0),
        ("train[:40%]", "ab", 0),
    ],
)
def test_of_a_part_of_the_originals_the_translations_but_those_that_were_lost(
    folder, split, learnt, lost
):
    training = dataclasses.replace(DE, split=split)
    found = training_pairs(PAWSX, folder, training, "translated", "de")
    assert pairs_of(found) == [(word.upper(), word) for word in learnt]
    assert found[2:] == (lost, "")


def test_what_a_teacher_labelled_stands_beside_what_the_translation_translates(folder):
    german = read(PAWSX, folder, "translate_train", "de")
    labelled = [dataclasses.replace(one, label="1") for one in german]
    root = folder / "labelled"
    path = labelled_path(root, PAWSX, "de")
    write_labelled(path, labelled)
    training = Training((), (), labelled=str(root))
    found = training_pairs(PAWSX, folder, training, "labelled", "de")
    assert pairs_of(found) == [(word.upper(), word) for word in "abde"] and found[2] == 1
    assert {one.label for one in found[0]} == {"1"}
    write_labelled(path, labelled[1:])
    with pytest.raises(
        UserError, match=f"{re.escape(str(path))}, de: 4 examples, but 5 in the translation that th"
    ):
        training_pairs(PAWSX, folder, training, "labelled", "de")


def test_tags_that_a_teacher_gave_are_learnt_and_words_without_are_read(folder):
    found = training_pairs(UDPOS, folder, DE, "translated", "de")
    assert [one.words for one in found[0]] == [("A", "A"), ("B",), ("C",)]
    assert not any(one.tags for one in found[0])
    assert [one.tags for one in found[1]] == [("DET",), ("NOUN",), ("VERB",)] and not found[2]
    root = folder / "labelled"
    tags = [("DET", "NOUN"), ("VERB",), ("NOUN",)]
    given = [Tagged(one.words, tag) for one, tag in zip(found[0], tags, strict=True)]
    write_labelled(labelled_path(root, UDPOS, "de"), given)
    training = Training((), (), labelled=str(root))
    found = training_pairs(UDPOS, folder, training, "labelled", "de")
    assert [one.tags for one in found[0]] == tags
    # The first rows of a translation beside those of the whole file that it translates.
    short = dataclasses.replace(UDPOS, first=2)
    write_labelled(labelled_path(root, UDPOS, "de"), given[:2])
    for own, origin in ((DE, "translated"), (training, "labelled")):
        found = training_pairs(short, folder, own, origin, "de")
        assert [one.words for one in found[0]] == [("A", "A"), ("B",)]
        assert [one.tags for one in found[1]] == [("DET",), ("NOUN",)]


def squad(path, *asked):
    """asked: (id, context, answer) of each question."""
    paragraphs = [
        {"context": context, "qas": [
            {"id": id_, "question": "?", "answers": [{"text": answer, "answer_start": 0}]},
        ]}
        for id_, context, answer in asked
    ]  # fmt: skip
    return put(path, json.dumps({"data": [{"paragraphs": paragraphs}]}))


def test_rows_without_a_partner_are_left_out_and_said(tmp_path):
    both = [(f"q{n}", f"x{n}", "x") for n in range(39)]
    squad(tmp_path / "squad/train-v1.1.json", *both, ("gone", "x", "x"))
    path = tmp_path / "squad/translate-train/squad.translate.train.en-de.json"
    squad(path, *both[::-1], ("new", "x", "x"))
    found = training_pairs(XQUAD, tmp_path, DE, "translated", "de")
    assert [one.id for one in found[0]] == [f"q{n}" for n in range(39)][::-1]
    assert [one.id for one in found[1]] == [one.id for one in found[0]]
    said = "1 of 40 examples (2.5%) have no partner by id: left out"
    assert found[2:] == (0, said)


# --- what is predicted ----------------------------------------------------------------------------


def test_a_set_stands_beside_its_translation_or_the_set_that_it_translates(tmp_path):
    """The English set itself beside none."""
    put(tmp_path / "pawsx/translate-test/test-de-en-translated.tsv", "A\tA\ta\ta\t0")
    put(tmp_path / "udpos/translations/dev-de-en.tsv", "a")
    put(tmp_path / "x-final/de/translated_train.tsv", HEADER)
    alone = dataclasses.replace(PAWSX, parallel=False)
    by_id = dataclasses.replace(UDPOS, shared_ids=True)
    found = [
        beside_of(task, tmp_path, split, language)
        for task, split, language in (
            (PAWSX, "test", "en"),
            (PAWSX, "test", "de"),
            (PAWSX, "test[:50%]", "de"),
            (PAWSX, "test", "fr"),
            (PAWSX, "dev", "de"),
            (PAWSX, "train", "de"),
            # Of classes it shows when lines are compared.
            (alone, "test", "fr"),
            (UDPOS, "dev[50%:]", "de"),
            (by_id, "dev", "fr"),
        )
    ]
    assert found == [
        ("test", "en"),
        ("translate_test", "de"),
        ("translate_test[:50%]", "de"),
        ("test", "en"),
        ("dev", "en"),
        ("train", "en"),
        ("test", "en"),
        ("translate_dev[50%:]", "de"),
        ("dev", "en"),
    ]


def test_what_was_lost_on_the_way_stands_beside_itself(tmp_path):
    german = [("A", "B", 0), ("C", "D", 1), ("E", "F", 0), ("G", "H", 1)]
    rows = [f"{n}\t{a}\t{b}\t{label}" for n, (a, b, label) in enumerate(german)]
    put(tmp_path / "x-final/de/test_2k.tsv", HEADER.strip(), *rows)
    english = [("a", "b"), ("", ""), ("", "f"), ("g", "")]
    lines = [
        f"{a}\t{b}\t{x}\t{y}\t{label}"
        for (a, b, label), (x, y) in zip(german, english, strict=True)
    ]
    put(tmp_path / "pawsx/translate-test/test-de-en-translated.tsv", *lines)
    found = standing_beside(PAWSX, tmp_path, "test", "de")
    texts = [(one.premise, one.hypothesis) for one in found[0]]
    # Half of a pair is read as it is.
    assert texts == [("a", "b"), ("C", "D"), ("", "f"), ("g", "")] and found[1] == ""
    half = standing_beside(PAWSX, tmp_path, "test[50%:]", "de")
    assert [one.premise for one in half[0]] == ["", "g"]
    assert standing_beside(PAWSX, tmp_path, "test[:50%]", "de")[0] == found[0][:2]


@pytest.mark.parametrize(
    "labels",
    [
        ("neutral", "entailment", "contradiction", "neutral"),
        # By line the labels of each half agree, too.
        ("neutral", "entailment", "entailment", "neutral"),
    ],
)
def test_of_a_part_in_another_order_the_translations_of_that_part(tmp_path, labels):
    put(
        tmp_path / "xnli/test-de.tsv", *(f"{n} x\t{n} y\t{label}" for n, label in enumerate(labels))
    )
    lines = [f"{n} x\t{n} y\ta{n}\tb{n}\t{labels[n]}" for n in (3, 2, 1, 0)]
    put(tmp_path / "xnli/translate-test/test-de-en-translated.tsv", *lines)
    for split, numbers in (("test", range(4)), ("test[:50%]", (0, 1)), ("test[50%:]", (2, 3))):
        found = standing_beside(XNLI, tmp_path, split, "de")
        assert [one.premise for one in found[0]] == [f"a{n}" for n in numbers]
        assert found[1] == ""


def test_questions_without_a_translation_stand_beside_themselves_and_are_counted(tmp_path):
    german = [(f"q{n}", f"de{n}", "de") for n in range(40)]
    squad(tmp_path / "xquad/xquad.de.json", *german)
    english = [(id_, f"en{n}", "en") for n, (id_, *_) in enumerate(german)]
    # Of one the id is another's, of one the context is lost.
    english[3] = ("other", "en3", "en")
    english[5] = ("q5", "", "")
    path = tmp_path / "xquad/translate-test/xquad.translate.test.de-en.json"
    squad(path, *english)
    found = standing_beside(XQUAD, tmp_path, "test", "de")
    want = ["de" if n in (3, 5) else "en" for n in range(40)]
    assert [one.context[:2] for one in found[0]] == want
    said = f"{path}: 1 of 40 examples (2.5%) have no partner by id: they stand beside themselves"
    assert found[1] == said
    part = standing_beside(XQUAD, tmp_path, "test[20:]", "de")
    assert [one.id for one in part[0]] == [f"q{n}" for n in range(20, 40)]
    assert part[1] == ""
