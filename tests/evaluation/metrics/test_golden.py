"""Published predictions score to the published results."""

import ast
import json
import os
from pathlib import Path

import pytest

from xlingjax.data.labelled.records import Bitext, Example, Question, Tagged
from xlingjax.data.labelled.task import Task
from xlingjax.evaluation.metrics import averages
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.evaluation.submissions import (
    prediction_path,
    read_pairs,
    read_predictions,
    read_rows,
    read_tag_lines,
)

pytestmark = pytest.mark.skipif(
    not os.environ.get("XLINGJAX_DATA"), reason="XLINGJAX_DATA names no folder of real data"
)
DATA = Path(os.environ.get("XLINGJAX_DATA", ""))
UNICODER = DATA / "reference_predictions/xglue_unicoder_dev"
MOCK = DATA / "reference_predictions/xtreme_mock"

XGLUE = {
    "XNLI": ("classification", "accuracy", "ar bg de el en es fr hi ru sw th tr ur vi zh"),
    "PAWSX": ("classification", "accuracy", "de en es fr"),
    "MLQA": ("span_qa", "mlqa_f1", "ar de en es hi vi zh"),
    "POS": ("tagging", "seqeval_precision", "bg hi ur vi"),
}
XTREME = {
    "pawsx": ("classification", {"accuracy": 51.42857142857143}),
    "xnli": ("classification", {"accuracy": 30.666666666666668}),
    "panx": ("tagging", dict(seqeval_f1=57.50793650793652, seqeval_precision=54.729166666666664,
                             seqeval_recall=62.750000000000014)),
    "udpos": ("tagging", dict(seqeval_f1=70.21746048354693, seqeval_precision=71.02232625883823,
                              seqeval_recall=69.54982073976082)),
    "xquad": ("span_qa", {"squad_em": 77.27272727272727, "squad_f1": 79.9586776859504}),
    "mlqa": ("span_qa", {"mlqa_em": 57.142857142857146, "mlqa_f1": 81.76870748299321}),
    "tydiqa": ("span_qa", {"squad_em": 88.88888888888889, "squad_f1": 97.22222222222223}),
    "tatoeba": ("retrieval", {"tatoeba_accuracy": 53.611111111111114}),
    "bucc2018": ("mining", {"bucc_f1": 55.0}),
}  # fmt: skip
LANGUAGES = {"panx": 40, "udpos": 33, "tatoeba": 36, "bucc2018": 4, "xquad": 11}
LANGUAGES |= {"tydiqa": 9, "pawsx": 7}


def questions(path):
    data = json.loads(path.read_text(encoding="utf-8"))["data"]
    asked = [
        qa for article in data for paragraph in article["paragraphs"] for qa in paragraph["qas"]
    ]
    return [
        Question(qa["id"], qa["question"], "", tuple(a["text"] for a in qa["answers"]), ())
        for qa in asked
    ]


def examples(path):
    return [
        Example("", None, line.split("\t")[-1])
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def tagged(path):
    blocks = path.read_text(encoding="utf-8").strip().split("\n\n")
    rows = [[line.split("\t")[-1] for line in block.split("\n")] for block in blocks]
    return [Tagged(tuple(tags), tuple(tags)) for tags in rows]


def unicoder_gold(name, language):
    if name == "MLQA":
        return questions(
            DATA / f"tasks/mlqa/MLQA_V1/dev/dev-context-{language}-question-{language}.json"
        )
    if name == "POS":
        return tagged(DATA / f"tasks/udpos/dev-{language}.tsv")
    return examples(DATA / f"tasks/{name.lower()}/dev-{language}.tsv")


def mock_gold(name, kind, path):
    if kind == "classification":
        return examples(path)
    if kind == "tagging":
        return [Tagged(tuple(tags), tuple(tags)) for _, tags in read_tag_lines(path)]
    if kind == "span_qa":
        return questions(path)
    if kind == "mining":
        return [Bitext((), (), frozenset(read_pairs(path)))]
    rows = read_rows(path)
    english = tuple((str(number), "") for number in range(len(rows)))
    return [
        Bitext((), english, frozenset(zip(map(str, rows), map(str, range(len(rows))), strict=True)))
    ]


@pytest.mark.parametrize("name", XGLUE)
def test_unicoders_predictions_on_xglue_to_the_last_digit(name):
    lines = (UNICODER / "expected_scores.txt").read_text().splitlines()
    published = ast.literal_eval(lines[lines.index(name) + 1])
    kind, metric, languages = XGLUE[name]
    pattern = name + "/{language}.prediction"
    task = Task("xglue", name, kind, tuple(languages.split()), {}, (metric,), pattern)
    scores = {}
    for language in task.languages:
        gold = unicoder_gold(name, language)
        found = read_predictions(prediction_path(task, UNICODER, language), task, gold)
        assert not found.notes
        scores[language] = METRICS[metric].compute(gold, found.values, language)
        score, wanted = scores[language], published[language]
        assert score == 100 * wanted or score / 100 == wanted, language
    if len(task.languages) == len(published) - 1:
        score = averages.task_score(task, {metric: scores})
        assert score == pytest.approx(100 * published["avg"], rel=1e-15, abs=0)


@pytest.mark.parametrize("name", XTREME)
def test_the_predictions_of_xtremes_own_test(name):
    kind, expected = XTREME[name]
    languages = tuple(
        sorted(path.stem.removeprefix("test-") for path in (MOCK / "labels" / name).iterdir())
    )
    assert len(languages) == LANGUAGES.get(name, len(languages))
    suffix = "json" if kind == "span_qa" else "tsv"
    pattern = f"{name}/test-{{language}}.{suffix}"
    task = Task("xtreme", name, kind, languages, {}, tuple(expected), pattern)
    scores = {metric: {} for metric in expected}
    for language in languages:
        gold = mock_gold(name, kind, MOCK / "labels" / name / f"test-{language}.{suffix}")
        found = read_predictions(prediction_path(task, MOCK / "predictions", language), task, gold)
        for metric in expected:
            scores[metric][language] = METRICS[metric].compute(gold, found.values, language)
    for metric, value in expected.items():
        assert sum(scores[metric].values()) / len(languages) == pytest.approx(
            value, rel=1e-14, abs=0
        ), metric
    mean = sum(expected.values()) / 2 if kind == "span_qa" else next(iter(expected.values()))
    assert averages.task_score(task, scores) == pytest.approx(mean, rel=1e-14, abs=0)
