"""Which metrics are T5's own, on texts that a wrong definition would trip over; and predictions
that are no answers."""

import random

import numpy as np
import pytest
import seqio
from t5.evaluation import metrics as t5

from xlingjax.data.labelled.records import Bitext, Example, Question, SourceTarget, Tagged
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.tasks import t5_metrics
from xlingjax.tasks.registry import _metric_fn
from xlingjax.tasks.text_to_text import prediction_of

ODD = [
    "", " ", "the", "The the cat", "a b", "$5.00", "5.00", "İstanbul", "a\u00a0b", "Anna's", "an.a",
    "„das“", "北京 大学", "x\ty", "the-cat", "a\0", "naïve", "nai\u0308ve", "ein Haus , groß .",
]  # fmt: skip


def texts(rng, count):
    return [f"{rng.choice(ODD)} {rng.choice(ODD)}".strip() or "x" for _ in range(count)]


def test_those_that_are_used_give_our_numbers():
    rng = random.Random(0)
    assert {*t5_metrics.METRICS} == {"accuracy", "squad_f1", "squad_em", "sacrebleu"}
    seen = {name: set() for name in t5_metrics.METRICS}
    for _ in range(60):
        wanted, made = texts(rng, 4), rng.choices(ODD, k=4)
        same = rng.randint(0, 4)
        made[:same] = wanted[:same]
        gold = {
            "accuracy": [Example("x", None, label) for label in wanted],
            "sacrebleu": [SourceTarget("x", text + " and so on") for text in wanted],
        }
        questions = [Question(str(i), "", "", (wanted[i], rng.choice(ODD)), ()) for i in range(4)]
        gold |= {"squad_f1": questions, "squad_em": questions}
        for name, of_t5 in t5_metrics.METRICS.items():
            for language in ("de", "zh_TW", "ja"):
                given = made
                if name.startswith("squad"):
                    given = dict(zip("0123", made, strict=True))
                ours = METRICS[name].compute(gold[name], given, language)
                assert of_t5(gold[name], made, language) == pytest.approx(ours, abs=1e-9)
                seen[name].add(round(ours, 2))
    assert all(len(values) > 2 for values in seen.values())


def test_those_that_differ_and_by_what():
    # NumPy drops a zero at the end of a text.
    labels = [Example("x", None, "a\0"), Example("x", None, "b")]
    assert METRICS["accuracy"].compute(labels, ["a", "b"], "de") == 50
    assert t5.accuracy(["a\0", "b"], ["a", "b"])["accuracy"] == 100
    # `intl` makes a token of the sign, and case is kept where XGLUE folds it.
    wanted, made = "Das kostet 5€ im Haus nebenan", "das kostet 5 € im Haus nebenan"
    gold = [SourceTarget("", wanted)]
    told = t5.bleu([wanted], [made])["bleu"]
    assert told == pytest.approx(70.71, abs=20) and told != METRICS["sacrebleu"].compute(
        gold, [made], "de"
    )
    folded = METRICS["xglue_bleu"].compute(
        [SourceTarget("", "Das Haus ist rot")], ["das haus ist rot"], "de"
    )
    assert folded == pytest.approx(100)
    assert t5.bleu(["Das Haus ist rot"], ["das haus ist rot"], "13a")["bleu"] < 50
    # Words of a-z alone: "läuft" is two to T5's ROUGE.
    ours = METRICS["rouge_l"].compute(
        [SourceTarget("", "der Hund läuft")], ["der Hund lauft"], "de"
    )
    assert ours == pytest.approx(200 / 3)
    theirs = t5.rouge(["der Hund läuft"], ["der Hund lauft"], score_keys=["rougeL"])["rougeL"]
    assert theirs == pytest.approx(400 / 7)
    # And over several texts the median of means of samples with repetition.
    pairs = (["a b c", "d e f", "x y z"], ["a b c", "d e g", "q r s"])
    gold = [SourceTarget("", text) for text in pairs[0]]
    np.random.seed(0)
    assert t5.rouge(*pairs, score_keys=["rougeL"])["rougeL"] == pytest.approx(55.56, abs=20)
    assert METRICS["rouge_l"].compute(gold, pairs[1], "en") == pytest.approx(500 / 9)


BITEXT = Bitext(
    (("f0", "x"), ("f1", "y")), (("e0", "x"), ("e1", "y")), frozenset({("f0", "e0"), ("f1", "e1")})
)


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
        ("tatoeba_accuracy", "retrieval", BITEXT, ["entailment"], 0),
        ("tatoeba_accuracy", "retrieval", BITEXT, ["[0, 1]"], 100),
        ("tatoeba_accuracy", "retrieval", BITEXT, ["[0, true]"], 50),
        ("tatoeba_accuracy", "retrieval", BITEXT, ["[0, 7]"], 50),
        ("tatoeba_accuracy", "retrieval", BITEXT, ["[0]"], 0),
        ("tatoeba_accuracy", "retrieval", BITEXT, ["[" * 100_000], 0),
        ("bucc_precision", "mining", BITEXT, ['[["f0", "e0"], ["f1"], 3, [["f1"], "e1"]]'], 100),
        ("bucc_recall", "mining", BITEXT, ['{"f0": "e0"}'], 0),
        ("ndcg_wpr", "ranking", [("q", "4"), ("q", "0")], ["4", "Good"], 100),
        ("ndcg_wpr", "ranking", [("q", "4"), ("q", "0")], ["nan", "1"], 63.09),
        ("accuracy", "classification", [("p", "neutral")], ["neutral "], 0),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_a_wrong_one(metric, kind, records, written, expected):
    if kind == "tagging":
        records = [Tagged(tuple(w.split()), tuple(t.split())) for w, t in records]
    elif kind in ("ranking", "classification"):
        records = [Example(text, None, label) for text, label in records]
    else:
        records = [records]
    score = _metric_fn(metric, METRICS[metric], kind, "de")
    # As SeqIO does: the text goes through the vocabulary and the postprocessor.
    bytes_ = seqio.ByteVocabulary()
    read = [prediction_of(bytes_.decode(bytes_.encode(text)), kind) for text in written]
    assert score(records, read) == {metric: pytest.approx(expected, abs=0.01)}
