import numpy as np
import pytest

from tests.helpers import toy
from xlingjax.data.labelled.records import Bitext
from xlingjax.errors import UserError
from xlingjax.evaluation import tatoeba
from xlingjax.inference import encode
from xlingjax.inference.search import unit_rows

TEXTS = toy.sentences(12, seed=4)
ORDER = np.random.default_rng(0).permutation(12)
"""English line i is the translation of foreign line ORDER[i]."""
ALIKE = toy.run(toy.model(num_languages=0))
"""To it a sentence and its copy in another language are the same."""


@pytest.fixture(scope="module")
def bitext():
    """A sentence and its copy; the English side lies in another order."""
    source = tuple((f"de-{i}", text) for i, text in enumerate(TEXTS))
    target = tuple((f"en-{i}", TEXTS[row]) for i, row in enumerate(ORDER))
    gold = frozenset((f"de-{row}", f"en-{i}") for i, row in enumerate(ORDER))
    return Bitext(source, target, gold)


def predict(bitext, run=None, **options):
    return tatoeba.predict_retrieval(run or toy.run(), bitext, "de", **options)


def test_the_papers_layer():
    assert [tatoeba.paper_layer(n) for n in (1, 3, 4, 6, 12, 24)] == [1, 2, 3, 4, 8, 14]


def test_english_asks_and_foreign_lines_answer(bitext):
    found = predict(bitext, ALIKE, layer=0)
    assert found == ORDER.tolist() and tatoeba.accuracy(found, bitext) == 1.0
    # One foreign line more than English ones: an answer for each English line, among all foreign
    # ones.
    longer = Bitext((("de-x", "q r s t u v"), *bitext.source), bitext.target, bitext.gold)
    assert predict(longer, ALIKE, layer=0) == (ORDER + 1).tolist()
    assert tatoeba.accuracy(predict(longer, ALIKE, layer=0), longer) == 1.0


@pytest.mark.parametrize("pooling", encode.POOLINGS)
def test_predictions_are_those_of_a_plain_search(bitext, pooling):
    foreign, english = (
        encode.embed_texts(toy.run(), TEXTS, code, (pooling,), max_length=64)[0]
        for code in ("de", "en")
    )
    for layer in (1, 2):
        cosines = unit_rows(english[layer])[ORDER] @ unit_rows(foreign[layer]).T
        assert predict(bitext, layer=layer, pooling=pooling) == cosines.argmax(axis=1).tolist()
    assert predict(bitext) == predict(bitext, layer=1, pooling="mean")  # two thirds of two layers


def test_every_layer_and_pooling(bitext):
    found = tatoeba.predict_layers(ALIKE, bitext, "de")
    assert list(found) == list(encode.POOLINGS) and list(found["mean"]) == [0, 1, 2]
    assert tatoeba.accuracy(found["mean"][0], bitext) == 1.0
    assert found["first"][0] == [0] * 12  # every sentence begins alike: all find line 0
    for pooling, layer in (("mean_no_special", 1), ("first", 2)):
        assert found[pooling][layer] == predict(bitext, ALIKE, layer=layer, pooling=pooling)
    some = tatoeba.predict_layers(ALIKE, bitext, "de", poolings=("first",), layers=(2, 0))
    assert some == {"first": {2: found["first"][2], 0: found["first"][0]}}


def test_refusals(bitext):
    with pytest.raises(UserError, match=r"layer 3: this model has layers 0 \(the embeddings\) to"):
        predict(bitext, layer=3)
    with pytest.raises(UserError, match="11 predictions for 12 English sentences"):
        tatoeba.accuracy([0] * 11, bitext)
