"""Literal values that a wrong reading of the official scripts would miss."""

import math

import pytest

from xlingjax.data.labelled.records import Bitext, Example, Question, SourceTarget, Tagged
from xlingjax.data.labelled.task import KINDS, Task
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics import averages
from xlingjax.evaluation.metrics import tags as scores_tagging
from xlingjax.evaluation.metrics.registry import METRICS, find_metric, metrics_of


def score(name, gold, predicted, language="en"):
    return METRICS[name].compute(gold, predicted, language)


def tagged(*sentences):
    return [Tagged(tuple(tags), tuple(tags)) for tags in map(str.split, sentences)]


def tags(*sentences):
    return [text.split() for text in sentences]


def rated(*rows):
    return [Example(query, "page", label) for query, label in rows]


def question(*answers, id="q"):
    return [Question(id, "", "", answers, ())]


def written(*texts):
    return [SourceTarget("", text) for text in texts]


# --- tags -----------------------------------------------------------------------------------------


def test_bare_tags_are_no_words_to_seqeval():
    gold = tagged("NOUN NOUN")
    assert score("seqeval_precision", gold, tags("NOUN VERB")) == 0
    assert score("token_accuracy", gold, tags("NOUN VERB")) == 50
    # An S stands for a single word, so SYM SYM are two chunks; B opens one whatever went before.
    bare, marked = ["SYM", "SYM", "NOUN", "NOUN"], ["B-PER", "B-PER", "I-LOC", "O"]
    assert scores_tagging.chunks(bare) == {(0, 0, "SYM"), (1, 1, "SYM"), (2, 3, "NOUN")}
    assert scores_tagging.chunks(marked) == {(0, 0, "PER"), (1, 1, "PER"), (2, 2, "LOC")}
    # The type is the text after the last "-", so of CCONJ and SCONJ one word each, not the same
    # "CONJ".
    assert scores_tagging.chunks(["CCONJ", "SCONJ"]) == {(0, 0, "CCONJ"), (1, 1, "SCONJ")}
    assert scores_tagging.chunks(["B-X-PER", "I-PER"]) == {(0, 1, "PER")}


def test_precision_recall_and_f1_are_of_all_sentences_together():
    gold = tagged("B-PER I-PER O", "B-LOC O", "B-LOC")
    made = tags("B-PER I-PER B-LOC", "O O", "B-LOC")
    assert score("seqeval_precision", gold, made) == pytest.approx(200 / 3)
    assert score("seqeval_recall", gold, made) == pytest.approx(200 / 3)
    gold, made = tagged("B-PER O O", "B-LOC"), tags("B-PER B-PER B-PER", "O")
    assert score("seqeval_precision", gold, made) == pytest.approx(100 / 3)
    assert score("seqeval_recall", gold, made) == 50
    assert score("seqeval_f1", gold, made) == score("conll_f1", gold, made) == pytest.approx(40)
    assert score("seqeval_f1", tagged("O O"), tags("O O")) == 0


def test_entities_are_conlls():
    found = scores_tagging.entities(["B-PER", "I-PER", "O", "B-LOC", "B-LOC"])
    assert found == {(0, 1, "PER"), (3, 3, "LOC"), (4, 4, "LOC")}
    found = scores_tagging.entities(["I-PER", "I-PER", "I-LOC", "O", "I-LOC"])
    assert found == {(0, 1, "PER"), (2, 2, "LOC"), (4, 4, "LOC")}
    assert scores_tagging.entities(["NOUN", "NOUN"]) == set()
    gold = tagged("B-PER I-PER O", "B-LOC")
    assert score("conll_f1", gold, tags("B-PER O O", "B-LOC")) == 50
    assert score("conll_f1", gold, tags("B-PER I-PER O", "B-LOC")) == 100


# --- ranking --------------------------------------------------------------------------------------


def test_ndcg_averages_over_ties():
    value = score("ndcg_wpr", rated(("q", "4"), ("q", "0")), ["2", "2"])
    assert value == pytest.approx(100 * (4 * (1 + 1 / math.log2(3)) / 2) / 4)
    assert round(value / 100, 4) == 0.8155


def test_ndcgs_queries_are_runs_of_equal_lines_and_need_two_results():
    gold = rated(("q1", "4"), ("q1", "0"), ("q2", "3"), ("q1", "1"))
    assert score("ndcg_wpr", gold, ["0", "4", "0", "4"]) == pytest.approx(100 / math.log2(3))
    with pytest.raises(UserError, match="no query has two results in a row"):
        score("ndcg_wpr", gold[1:], ["0", "4", "0"])


# --- answers --------------------------------------------------------------------------------------


def test_mlqa_drops_the_articles_of_the_language_and_squad_english_ones():
    gold = question("Hund")
    for name in ("mlqa_f1", "mlqa_em"):
        assert score(name, gold, {"q": "der Hund"}, "de") == 100
    assert score("squad_f1", gold, {"q": "der Hund"}, "de") == pytest.approx(200 / 3)
    assert score("squad_em", gold, {"q": "der Hund"}, "de") == 0
    assert score("squad_f1", gold, {"q": "the Hund"}, "de") == 100
    assert score("mlqa_f1", gold, {"q": "the Hund"}, "de") == pytest.approx(200 / 3)


def test_mlqa_reads_chinese_by_ideograph_and_squad_does_not():
    gold = question("北京大学")
    assert score("mlqa_f1", gold, {"q": "北京"}, "zh") == pytest.approx(200 / 3)
    assert score("mlqa_em", gold, {"q": "北京"}, "zh") == 0
    assert score("squad_f1", gold, {"q": "北京"}, "zh") == 0
    assert score("mlqa_f1", question("在2010 年"), {"q": "2010"}, "zh") == 50


def test_punctuation_and_arabic_articles_are_as_published():
    assert score("mlqa_em", question("北京"), {"q": "「北京」。"}, "zh") == 100
    assert score("squad_em", question("北京"), {"q": "「北京」"}, "zh") == 0
    assert score("squad_em", question("U.S."), {"q": "the us"}, "en") == 100
    # ASCII symbols are dropped though they are no punctuation in Unicode; others stay.
    assert score("mlqa_em", question("100"), {"q": "$100"}, "en") == 100
    assert score("mlqa_em", question("100"), {"q": "€100"}, "en") == 0
    # "ال" goes inside words too.
    assert score("mlqa_em", question("سم"), {"q": "السم"}, "ar") == 100
    assert score("mlqa_f1", question("سؤ"), {"q": "سؤال"}, "ar") == 100


def test_the_best_gold_answer_counts_and_a_missing_one_is_0():
    gold = question("red", "dark red car", id="a") + question("x", id="b")
    assert score("squad_f1", gold, {"a": "red car"}) == pytest.approx(40)
    article = question("the"), {"q": "the"}
    assert (score("squad_f1", *article), score("squad_em", *article)) == (0, 100)
    with pytest.raises(UserError, match="no rules for the language 'ru'"):
        score("mlqa_f1", gold, {}, "ru")
    with pytest.raises(UserError, match="question q: no gold answer"):
        score("squad_em", question(), {"q": "x"})


# --- pairs and texts ------------------------------------------------------------------------------


def test_bucc_counts_sets():
    gold = [Bitext((), (), frozenset({("zh-1", "en-1"), ("zh-2", "en-2"), ("zh-3", "en-3")}))]
    made = [("zh-1", "en-1"), ("zh-1", "en-1"), ("zh-2", "en-9")]
    assert score("bucc_precision", gold, made) == 50
    assert score("bucc_recall", gold, made) == pytest.approx(100 / 3)
    assert score("bucc_f1", gold, made) == pytest.approx(40)
    assert score("bucc_f1", gold, [("en-1", "zh-1")]) == 0 == score("bucc_f1", gold, [])


def test_each_english_sentence_retrieves_a_foreign_row():
    foreign = (("f0", "null"), ("f1", "eins"), ("f2", "zwei"))
    english = (("e1", "one"), ("e2", "two"))
    gold = [Bitext(foreign, english, frozenset({("f1", "e1"), ("f2", "e2")}))]
    assert score("tatoeba_accuracy", gold, [1, 2]) == 100
    assert score("tatoeba_accuracy", gold, [0, 2]) == 50
    with pytest.raises(UserError, match="prediction 2 is 3: not a row of the foreign side, 0 to 2"):
        score("tatoeba_accuracy", gold, [1, 3])
    rows = [Bitext((), english, frozenset({("7", "e1"), ("2", "e2")}))]
    assert score("tatoeba_accuracy", rows, [7, 700]) == 50


def test_case_is_folded_for_xglue_and_not_in_translation():
    gold, made = written("The Cat sat on The Mat"), ["the cat sat on the mat"]
    assert score("xglue_bleu", gold, made) == pytest.approx(100)
    assert score("sacrebleu", gold, made) < 50
    whole = written("source\tThe Cat sat on The Mat"), [" the cat sat on the mat\n"]
    assert score("xglue_bleu", *whole) == pytest.approx(100)
    # XGLUE splits every language as English: without spaces there is one token.
    assert score("xglue_bleu", written("我们今天去北京"), ["我们今天去上海"], "zh") == 0
    assert score("sacrebleu", written("我们今天去北京"), ["我们今天去上海"], "zh") > 50
    assert score("rouge_l", gold, made) == 100 and 0 < score("chrf", gold, made) < 100
    assert score("tokenised_bleu", gold, made) == 0


# --- averages -------------------------------------------------------------------------------------


def task(suite, name, kind, languages, metrics, **more):
    return Task(
        suite, name, kind, tuple(languages.split()), {}, metrics, name + "/{language}", **more
    )


def test_xtreme_takes_both_values_of_an_answer_and_xglue_f1_alone():
    values = {"mlqa_f1": {"de": 60.0, "en": 80.0}, "mlqa_em": {"de": 40.0, "en": 50.0}}
    for suite, mean in (("xtreme", 57.5), ("xglue", 70)):
        asked = task(suite, "mlqa", "span_qa", "de en", ("mlqa_f1", "mlqa_em"))
        assert averages.task_score(asked, values) == mean
    tags = task("xtreme", "udpos", "tagging", "de en", ("seqeval_f1", "token_accuracy"))
    assert averages.task_score(tags, {"seqeval_f1": {"de": 1.0, "en": 2.0}}) == 1.5


def test_an_average_may_leave_a_language_out():
    xqa = task("xqa", "xqa", "classification", "en fr de", ("accuracy",), averaged=("fr", "de"))
    assert averages.task_score(xqa, {"accuracy": {"en": 99.0, "fr": 70.0, "de": 80.0}}) == 75
    assert averages.task_score(xqa, {"accuracy": {"en": 99.0, "fr": 70.0}}) == 70
    assert averages.task_score(xqa, {"accuracy": {"en": 99.0}}) is None


def test_groups_and_the_overall_are_means_over_tasks():
    tasks = [
        task("xtreme", "xnli", "classification", "en", ("accuracy",)),
        task("xtreme", "udpos", "tagging", "en", ("seqeval_f1",)),
        task("xtreme", "bucc2018", "mining", "en", ("bucc_f1",)),
        task("xtreme", "tatoeba", "retrieval", "en", ("tatoeba_accuracy",)),
    ]
    assert [one.name for one in averages.groups(tasks)["retrieval"]] == ["bucc2018", "tatoeba"]
    assert averages.mean([10.0, 20.0, 30.0, 50.0]) == 27.5
    assert averages.mean([10.0, None]) is None is averages.mean([])


# --- the table and what it refuses ----------------------------------------------------------------


def test_every_kind_has_metrics_and_every_signature_is_one_line():
    assert {metric.kind for metric in METRICS.values()} == set(KINDS)
    for metric in METRICS.values():
        assert metric.signature and "\n" not in metric.signature
    assert len({metric.signature for metric in METRICS.values()}) == len(METRICS)
    assert find_metric("accuracy", "ranking") is METRICS["accuracy"]
    assert metrics_of("ranking") == ("accuracy", "ndcg_wpr")
    assert "ndcg_wpr" not in metrics_of("classification")
    with pytest.raises(UserError, match="'f1' is no metric of a tagging task: token_accuracy"):
        find_metric("f1", "tagging")


def test_wrong_numbers_and_ids_instead_of_labels_are_refused():
    gold = [Example("a", None, "x"), Example("b", None, "y")]
    assert score("accuracy", gold, ["x", "x"]) == 50
    with pytest.raises(UserError, match="prediction 2 is 1: give the label's text, not its id"):
        score("accuracy", gold, ["x", 1])
    with pytest.raises(UserError, match="example 2 has no gold label"):
        score("accuracy", [*gold[:1], Example("b", None, None)], ["x", "y"])
    with pytest.raises(UserError, match="0 examples: there is nothing to score"):
        score("accuracy", [], [])
    with pytest.raises(UserError, match="sentence 2: 1 tags predicted for 2 words"):
        score("token_accuracy", tagged("A B", "A B"), tags("A B", "A"))
    with pytest.raises(UserError, match="1 predictions for 2 examples"):
        score("xglue_bleu", written("a", "b"), ["a"])
