import json

import pytest

from xlingjax.data.labelled.records import Bitext, Example, Question, SourceTarget, Tagged
from xlingjax.data.labelled.task import Task
from xlingjax.errors import UserError
from xlingjax.evaluation.submissions import prediction_path, read_predictions, write_predictions

NLI = ("contradiction", "entailment", "neutral")
TAGS = ("B-PER", "I-PER", "O")


def xtreme(kind, labels=(), end="tsv"):
    return Task("xtreme", "it", kind, ("de",), {}, (), f"it/test-{{language}}.{end}", labels)


def xglue(kind, labels=()):
    return Task("xglue", "it", kind, ("de",), {}, (), "IT/{language}.prediction", labels)


def examples(*labels):
    return [Example("a", "b", label) for label in labels]


def tagged(*sentences):
    return [Tagged(tuple(text.split()), tuple(text.split())) for text in sentences]


QUESTIONS = [Question(id, "", "", ("x",), (0,)) for id in ("q1", "q2")]
BITEXT = [Bitext((("f0", ""), ("f1", "")), (("e0", ""), ("e1", "")), frozenset({("f1", "e0")}))]
TEXTS = [SourceTarget("x", "y"), SourceTarget("x", "y")]

CASES = [
    (xtreme("classification", NLI), ["neutral"], examples(NLI[0]), "neutral\n"),
    (xglue("ranking", ("0", "1")), ["1", "0"], examples("0", "0"), "1\n0\n"),
    (xtreme("tagging", TAGS), [["O"], ["B-PER", "O"]], tagged("O", "O O"), "O\n\nB-PER\nO\n\n"),
    (xtreme("retrieval"), [1, 0], BITEXT, "1\n0\n"),
    (xtreme("mining"), [("f1", "e0")], BITEXT, "f1\te0\n"),
    (xglue("generation"), ["Ein Satz.", ""], TEXTS, "Ein Satz.\n\n"),
]


@pytest.mark.parametrize(
    ("task", "predicted", "gold", "text"), CASES, ids=lambda x: getattr(x, "kind", "")
)
def test_files_are_the_official_ones_and_read_back(tmp_path, task, predicted, gold, text):
    path = write_predictions(task, tmp_path, "de", predicted)
    assert path == tmp_path / ("it/test-de.tsv" if task.suite == "xtreme" else "IT/de.prediction")
    assert path.read_bytes().decode() == text
    found = read_predictions(path, task, gold)
    assert found.values == predicted and not found.notes
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_answers_are_one_object(tmp_path):
    task = xtreme("span_qa", end="json")
    path = write_predictions(task, tmp_path, "de", {"q1": "für", "q2": ""}, split="dev")
    assert path == tmp_path / "it/dev-de.json" == prediction_path(task, tmp_path, "de", "dev")
    assert json.loads(path.read_text("utf-8")) == {"q1": "für", "q2": ""}
    assert read_predictions(path, task, QUESTIONS).values == {"q1": "für", "q2": ""}
    write_predictions(task, tmp_path, "de", {"q2": "x"}, split="dev")
    assert read_predictions(path, task, QUESTIONS).notes == {"unanswered": 1}
    assert prediction_path(xglue("span_qa"), tmp_path, "de", "dev") == tmp_path / "IT/de.prediction"


def test_xglue_fills_short_sentences_with_o_and_xtreme_does_not(tmp_path):
    gold = tagged("O O O", "B-PER", "O")
    path = tmp_path / "tags"
    path.write_text("B-PER\n\nO\n\n\n")  # two tags short, and the last sentence has none
    found = read_predictions(path, xglue("tagging", TAGS), gold)
    assert found.values == [["B-PER", "O", "O"], ["O"], ["O"]] and found.notes == {"filled": 3}
    with pytest.raises(UserError, match="tags, line 1: 1 tags for a sentence of 3 words"):
        read_predictions(path, xtreme("tagging", TAGS), gold)
    path.write_text("B-PER\nO\nO\n\nO\nO\n\nO")
    for task in (xglue("tagging", TAGS), xtreme("tagging", TAGS)):
        with pytest.raises(UserError, match="tags, line 5: 2 tags for a sentence of 1 words"):
            read_predictions(path, task, gold)


NLI_TASK, TAG_TASK = xtreme("classification", NLI), xtreme("tagging", TAGS)
REFUSED = [
    (NLI_TASK, examples(*NLI), "neutral\nneutral\n", "2 lines, but the gold file has 3"),
    (NLI_TASK, examples(*NLI[:2]), "neutral\n2\n", "line 2: unknown label '2'"),
    (TAG_TASK, tagged("O"), "O\n\nO\n", "2 sentences, but the gold file has 1"),
    (TAG_TASK, tagged("O", "O O"), "O\n\nO\nB-LOC\n", "line 4: unknown label 'B-LOC'"),
    (xtreme("span_qa"), QUESTIONS, '["a"]', "not a JSON object"),
    (xtreme("span_qa"), QUESTIONS, '{"q1": "a", "q9": "b"}', r"no question q9 \(1 such ids\)"),
    (xtreme("retrieval"), BITEXT, "1\n-1\n", "line 2: '-1' is not a row"),
    (xtreme("mining"), BITEXT, "f1\te0\nf1 e1\n", "line 2: 'f1 e1' is not an id, a tab and an id"),
]


@pytest.mark.parametrize(
    ("task", "gold", "text", "message"), REFUSED, ids=lambda x: x if isinstance(x, str) else ""
)
def test_faults_of_a_file_are_named(tmp_path, task, gold, text, message):
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        read_predictions(path, task, gold)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("task", "predicted", "message"),
    [
        (NLI_TASK, ["neutral", 2], "xtreme/it: 2 is not one of its labels: contradiction"),
        (xtreme("retrieval"), [0, -1], "'-1' is not a row"),
        (xtreme("mining"), [("a", "b\n")], "a tab or an end of line in the ids"),
    ],
    ids=lambda x: getattr(x, "kind", ""),
)
def test_what_a_file_cannot_hold_is_refused_and_nothing_is_written(
    tmp_path, task, predicted, message
):
    with pytest.raises(UserError, match=message):
        write_predictions(task, tmp_path, "de", predicted)
    assert not list(tmp_path.iterdir())
