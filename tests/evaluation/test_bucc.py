import numpy as np
import pytest

from tests.helpers import toy
from xlingjax.data.labelled.records import Bitext
from xlingjax.errors import UserError
from xlingjax.evaluation import bucc, tatoeba
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.workflows.tasks import retrieval

ALIKE = toy.run(toy.model(num_languages=0))
"""To it a sentence and its copy in another language are the same."""
GOLD = {("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")}


def scored(pairs, gold):
    """Precision, recall and F1."""
    bitext = Bitext((), (), frozenset(gold))
    names = ("bucc_precision", "bucc_recall", "bucc_f1")
    return [METRICS[name].compute([bitext], pairs, "de") for name in names]


def test_the_threshold_lies_halfway_behind_the_best_cut():
    # F1 after each pair: 2/5, 4/6, 4/7, 6/8, 6/9.
    mined = {("a", "A"): 1.5, ("b", "B"): 1.4, ("x", "C"): 1.3, ("c", "C"): 1.2, ("y", "X"): 1.0}
    assert bucc.tune_threshold(mined, GOLD) == pytest.approx(1.1)
    # In any order.
    assert bucc.tune_threshold(dict(reversed(mined.items())), GOLD) == pytest.approx(1.1)
    found = bucc.kept(mined, 1.2)
    assert found == [("a", "A"), ("b", "B"), ("x", "C"), ("c", "C")]  # 1.2 is not below 1.2
    assert scored(found, GOLD) == [75, 75, 75]


def test_thresholds_at_the_ends():
    # Nothing comes after the last.
    assert bucc.tune_threshold({("a", "A"): 1.5, ("b", "B"): 1.4}, GOLD) == 1.4
    assert bucc.tune_threshold({("x", "A"): 1.5}, GOLD) == 0.0
    # 2/3 after one pair and again after four: the fewest.
    mined = {("a", "A"): 4.0, ("x", "X"): 3.0, ("y", "Y"): 2.0, ("b", "B"): 1.0}
    assert bucc.tune_threshold(mined, {("a", "A"), ("b", "B")}) == 3.5
    with pytest.raises(UserError, match="no gold pairs"):
        bucc.tune_threshold(mined, set())


def test_the_layer_is_that_of_xtremes_script():
    """run_bucc2018.sh: --specific_layer 7 whatever the model; run_tatoeba.sh: 7, and 13 of 24."""
    assert [bucc.paper_layer(n) for n in (12, 16, 24, 36)] == [8] * 4
    for of in (bucc, tatoeba):
        assert [of.paper_layer(n) for n in (1, 3, 6)] == [1, 2, 4]
    told = {kind: retrieval.states(kind, 24) for kind in ("retrieval", "mining")}
    assert {kind: (one.layer, one.pooling) for kind, one in told.items()} == {
        "retrieval": (14, "mean"), "mining": (8, "first"),
    }  # fmt: skip
    assert retrieval.states("mining", 24, requested_layers=(20,)).layer == 20


def sides(count, noise, seed):
    """`count` sentences and their copies under other ids, and `noise` others on each side."""
    texts = list(dict.fromkeys(toy.sentences(4 * (count + noise), seed, longest=12)))
    rng = np.random.default_rng(seed)
    source = [texts[i] for i in rng.permutation(count + noise)]
    of_target = [*range(count), *range(count + noise, count + 2 * noise)]
    target = [texts[i] for i in rng.permutation(of_target)]
    gold = {(source.index(texts[i]), target.index(texts[i])) for i in range(count)}
    rows = (
        tuple((f"{code}-{i}", text) for i, text in enumerate(side))
        for code, side in (("de", source), ("en", target))
    )
    return Bitext(*rows, frozenset((f"de-{i}", f"en-{j}") for i, j in gold))


def test_translations_are_mined_from_texts_and_the_threshold_comes_from_dev():
    dev, test = sides(15, 10, seed=0), sides(15, 10, seed=1)
    options = {"layer": 0, "pooling": "mean"}
    found = bucc.predict_mining(ALIKE, test, dev, "de", **options)
    assert scored(found.pairs, test.gold)[2] > 80
    on_dev = bucc.mine_pairs(ALIKE, dev, "de", **options)
    assert found.threshold == bucc.tune_threshold(on_dev, dev.gold)
    mined = bucc.mine_pairs(ALIKE, test, "de", **options)
    kept = [pair for pair, score in mined.items() if score >= found.threshold]
    assert found.pairs == kept != list(mined)
    assert list(mined.values()) == sorted(mined.values(), reverse=True)
    with pytest.raises(UserError, match="de: the dev set has no gold"):
        bucc.predict_mining(ALIKE, test, Bitext(dev.source, dev.target, None), "de")


def test_equal_sentences_are_searched_as_one_and_have_no_id():
    """The copy of de-0 is found once and left out; with two copies left in the search each would
    take a partner."""
    plain = sides(12, 0, seed=2)
    first = plain.source[0][1]
    more = (*plain.source, ("de-copy", f" {first} "), ("de-blank", " "))
    doubled = Bitext(more, plain.target, plain.gold)
    options = {"layer": 0, "pooling": "mean"}
    without = bucc.mine_pairs(ALIKE, plain, "de", **options)
    found = bucc.mine_pairs(ALIKE, doubled, "de", **options)
    assert set(found) == set(without) - {next(pair for pair in without if pair[0] == "de-0")}
    assert all(found[pair] == pytest.approx(without[pair], rel=1e-5) for pair in found)
