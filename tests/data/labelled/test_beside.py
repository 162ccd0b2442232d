"""Which example of a file translates which of another, by XTREME's own layouts (README of
google-research/xtreme, "Translations"): five columns, the original pair first."""

import csv
import json
from collections import Counter

import pytest

from xlingjax.data.labelled.beside import paired
from xlingjax.data.labelled.records import Tagged
from xlingjax.data.labelled.task import read
from xlingjax.errors import UserError
from xlingjax.tasks import task_named

XNLI, TYDIQA = task_named("xtreme/xnli"), task_named("xtreme/tydiqa")
# As XNLI-MT has MultiNLI: tokens apart; the same pair twice with two labels, and once again.
ENGLISH = [
    ("Conceptually cream skimming has two basic dimensions - product .", "It works .", "neutral"),
    ('He said " no " .', "He did n't .", "entailment"),
    ("One of our number .", "A member .", "entailment"),
    ("One of our number .", "A member .", "neutral"),
    ("How do you know ?", "Tell me .", "contradiction"),
    ("One of our number .", "A member .", "entailment"),
    ("...", "!", "neutral"),
]
ORDER = (4, 0, 3, 6, 2, 1, 5)


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """xnli/train-en.tsv and its translation, as XTREME's scripts write them: another order, the
    original as it was before it was tokenised, csv-quoted, "contradictory"."""
    train = tmp_path / "xnli" / "train-en.tsv"
    train.parent.mkdir()
    with open(train, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(ENGLISH)
    lines = []
    for n in ORDER:
        premise, hypothesis, label = ENGLISH[n]
        label = {"contradiction": "contradictory"}.get(label, label)
        original = [premise.replace(" .", ".").replace('" no "', '"No"'), hypothesis.upper()]
        lines.append("\t".join([*original, f"eins {n}", f"zwei {n}", label]) + "\n")
    put(tmp_path / "xtreme_translations/XNLI/translate-train/en-de-translated.tsv", "".join(lines))
    return tmp_path


def partners(folder, **changes):
    german = read(XNLI, folder, "translate_train", "de")
    return german, paired("xnli", german, read(XNLI, folder, "train", "en"), "de", "'en'")


def test_a_translation_in_another_order_stands_beside_its_original(folder):
    german, pairs = partners(folder)
    assert pairs.by == "original text" and pairs.unpaired == 0
    # Of the equal texts (2, 3, 5) those of one label, in the order of both files.
    assert [*pairs.partners] == [4, 0, 3, 6, 2, 1, 5]
    assert [one.premise for one in german] == [f"eins {n}" for n in ORDER]
    # The other way round: a set beside its translation, which holds its text.
    back = paired("xnli", read(XNLI, folder, "train", "en"), german, "en", "'de'")
    assert [ORDER[row] for row in back.partners] == [0, 1, 2, 3, 4, 5, 6]


def test_lines_that_correspond_are_taken_as_they_are(folder):
    path = folder / "xtreme_translations/XNLI/translate-train/en-de-translated.tsv"
    lines = path.read_text("utf-8").splitlines(keepends=True)
    put(path, "".join(lines[ORDER.index(n)] for n in range(len(ENGLISH))))
    _, pairs = partners(folder)
    assert pairs.by == "line" and [*pairs.partners] == [*range(7)]
    # Labels alone would not show that two lines of one label changed places.
    lines = path.read_text("utf-8").splitlines(keepends=True)
    lines[1], lines[2] = lines[2], lines[1]
    put(path, "".join(lines))
    _, pairs = partners(folder)
    assert [*pairs.partners] == [0, 2, 1, 3, 4, 5, 6]


def test_rows_without_a_partner_are_left_out_and_said_and_many_are_refused(folder):
    path = folder / "xtreme_translations/XNLI/translate-train/en-de-translated.tsv"
    text = path.read_text("utf-8")
    put(path, text * 6 + "Another text\tof MultiNLI\teins\tzwei\tneutral\n")
    _, pairs = partners(folder)
    assert pairs.unpaired == 1 and pairs.partners[-1] is None
    assert pairs.said("left out") == (
        "1 of 43 examples (2.3%) have no partner by original text: left out"
    )
    # The third of two equal texts stands beside the last of them.
    assert Counter(pairs.partners)[5] == 11 and Counter(pairs.partners)[2] == 1
    # A label that the original does not have shows another example.
    put(path, text.replace("zwei 0\tneutral", "zwei 0\tentailment"))
    with pytest.raises(UserError, match="xnli: 1 of 7 examples in 'de' have no partner by orig"):
        partners(folder)


def test_without_the_original_lines_must_correspond(folder):
    path = folder / "xtreme_translations/XNLI/translate-train/en-de-translated.tsv"
    lines = [line.split("\t", 2)[2] for line in path.read_text("utf-8").splitlines(keepends=True)]
    put(path, "".join(lines))
    with pytest.raises(UserError, match="line 1 in 'de' is 'contradiction', line 1 in 'en'"):
        partners(folder)


def squad(path, rows):
    """TyDiQA's gold passages: a paragraph for each question."""
    articles = []
    for id_, question, context, answer in rows:
        answers = [{"text": answer, "answer_start": context.find(answer)}]
        qas = [{"id": id_, "question": question, "answers": answers}]
        articles.append({"paragraphs": [{"context": context, "qas": qas}]})
    put(path, json.dumps({"data": articles, "version": "1"}))


def test_tydiqas_translations_are_told_by_the_ids_that_xtremes_script_cuts_off(tmp_path):
    """utils_preprocess.py writes "english-12-0" as "0", and leaves the raw file beside it."""
    at = tmp_path / "tydiqa/tydiqa-goldp-v1.1-train"
    raw = [
        ("finnish-7-0", "Kuka?", "Se on Anna.", "Anna"),
        ("english-12-0", "Who?", "It is Anna.", "Anna"),
        ("english-13-0", "Where?", "It is in Oslo.", "Oslo"),
        ("english-13-1", "When?", "It was in May.", "May"),
    ]
    squad(at / "tydiqa-goldp-v1.1-train.json", raw)
    cut = [(id_.split("-")[-1], *rest) for id_, *rest in raw if id_.startswith("english")]
    squad(at / "tydiqa.goldp.en.train.json", cut)
    german = [
        ("english-13-1", "Wann?", "Es war im Mai.", "Mai"),
        ("english-12-0", "Wer?", "Das ist Anna.", "Anna"),
    ]
    name = "xtreme_translations/TyDiQA-GoldP/translate-train/tydiqa.translate.train.en-ru.json"
    squad(tmp_path / name, german)
    translated = read(TYDIQA, tmp_path, "translate_train", "ru")
    pairs = paired("tydiqa", translated, read(TYDIQA, tmp_path, "train", "en"), "ru", "'en'")
    assert pairs.by == "id" and [*pairs.partners] == [2, 0]
    squad(at / "tydiqa-goldp-v1.1-train.json", raw[:-1])
    with pytest.raises(UserError, match="does not hold the questions of .*'english-', in their"):
        read(TYDIQA, tmp_path, "train", "en")


def test_tagged_sentences_correspond_by_line_also_where_one_was_not_translated(tmp_path):
    task = task_named("xtreme/panx")
    put(tmp_path / "panx/test-de.tsv", "Anna\n\nOslo\nist\n\nHier\n")
    put(tmp_path / "panx/translate-test/test-de-en.tsv", "Anna\n\n\n")
    german = read(task, tmp_path, "test", "de")
    english = read(task, tmp_path, "translate_test", "de")
    assert english[1:] == [Tagged((), ())] * 2
    assert [*paired("panx", german, english, "de", "'en'").partners] == [0, 1, 2]
    with pytest.raises(UserError, match="3 examples in 'de' and 2 in 'en'.*line by line"):
        paired("panx", german, english[:2], "de", "'en'")
