"""Texts that a model wrote in place of an answer."""

import pytest
import seqio

from xlingjax.data.labelled.records import Example, Tagged
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.tasks.registry import _metric_fn
from xlingjax.tasks.text_to_text import prediction_of


@pytest.mark.parametrize(
    ("metric", "kind", "records", "written", "expected"),
    [
        # One word of three is right; a sentence with a tag too few has none.
        ("token_accuracy", "tagging", [("a b c", "O X O")], ["O Y Z "], 100 / 3),
        ("token_accuracy", "tagging", [("a b", "O O"), ("c d", "O O")], ["O ", "O O "], 50),
        ("token_accuracy", "tagging", [("a b", "O O")], ["no tags at all"], 0),
        ("token_accuracy", "tagging", [("a b", "O B-X")], ["O B-X"], 100),
        ("seqeval_f1", "tagging", [("a b", "B-X O"), ("c", "B-X")], ["B-X B-X O ", "B-X "], 66.67),
        ("conll_f1", "tagging", [("a b", "B-X O"), ("c", "B-X")], ["", "B-X "], 200 / 3),
        ("ndcg_wpr", "ranking", [("q", "4"), ("q", "0")], ["4", "Good"], 100),
        ("ndcg_wpr", "ranking", [("q", "4"), ("q", "0")], ["nan", "1"], 63.09),
        ("accuracy", "classification", [("p", "neutral")], ["neutral "], 0),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_a_wrong_one(metric, kind, records, written, expected):
    if kind == "tagging":
        records = [Tagged(tuple(w.split()), tuple(t.split())) for w, t in records]
    else:
        records = [Example(text, None, label) for text, label in records]
    score = _metric_fn(metric, METRICS[metric], kind, "de")
    # As SeqIO does: the text goes through the vocabulary and the postprocessor.
    bytes_ = seqio.ByteVocabulary()
    read = [prediction_of(bytes_.decode(bytes_.encode(text)), kind) for text in written]
    assert score(records, read) == {metric: pytest.approx(expected, abs=0.01)}
