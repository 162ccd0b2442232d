import jax
import numpy as np
import pytest

from tests.helpers import toy
from xlingjax.data.held_out_pairs import Pairs
from xlingjax.errors import UserError
from xlingjax.evaluation.perplexity import pair_rows
from xlingjax.evaluation.word_recovery import RecoverySamples

TEXTS = tuple(toy.sentences(12, seed=4, longest=7))
PAIRS = {code: Pairs(code, TEXTS, TEXTS[::-1]) for code in ("de", "fr")}


@pytest.mark.parametrize("layout", ["xlm", "xlmr"])
def test_shares_are_those_of_the_definition(layout):
    """softmax over the partner of w [e_i; e_j; e_i * e_j], in float64, by the pieces' names."""
    vocabulary = toy.ToyVocabulary(layout)
    encoder, params = toy.model(word_recovery=True, vocab_size=vocabulary.size)
    params = {
        **params,
        "word_recovery": {
            "kernel": np.random.default_rng(0).normal(size=48).astype(np.float32) * 3
        },
    }
    evaluator = RecoverySamples(PAIRS, vocabulary, toy.LANGUAGES, per_language=2)
    values = evaluator(encoder, params, 0)
    assert values["kind"] == "recovery_samples"
    names = [(s["language"], s["partner_language"]) for s in values["samples"]]
    assert names == [("de", "en"), ("en", "de")] * 2 + [("fr", "en"), ("en", "fr")] * 2
    table = np.asarray(params["embeddings"]["tokens"]["embedding"], np.float64)
    w = np.asarray(params["word_recovery"]["kernel"], np.float64)

    def embedded(pieces):
        return [
            table[int(p.strip("<>")) if p.startswith("<") else vocabulary.encode(p)[0]]
            for p in pieces
        ]

    for sample in values["samples"]:
        assert " ".join(sample["pieces"]) in TEXTS and " ".join(sample["partner"][1:-1]) in TEXTS
        ends = vocabulary.pieces([vocabulary.bos_id, vocabulary.eos_id])
        assert [
            sample["partner"][0],
            sample["partner"][-1],
        ] == ends  # either text opens as one does alone
        partner = embedded(sample["partner"])
        for x, shares in zip(embedded(sample["pieces"]), sample["attention"], strict=True):
            scores = np.exp([w @ np.concatenate([x, y, x * y]) for y in partner])
            np.testing.assert_allclose(shares, scores / scores.sum(), atol=1e-4)
    assert evaluator(encoder, params, 1) == values  # the same pairs at every step


def test_what_is_recovered_is_the_models_likeliest_piece():
    vocabulary = toy.ToyVocabulary()
    encoder, params = toy.model(word_recovery=True)
    bias = np.zeros(encoder.config.padded_vocab_size, np.float32)
    bias[vocabulary.encode("q")[0]] = 9
    bias[vocabulary.size :] = 100  # rows beyond the vocabulary are no pieces
    params = jax.tree.map(np.zeros_like, params) | {"head": {"bias": bias}}
    values = RecoverySamples(PAIRS, vocabulary, toy.LANGUAGES)(encoder, params, 0)
    for sample in values["samples"]:
        assert sample["recovered"] == ["q"] * len(sample["pieces"])
        assert np.allclose(sample["attention"], 1 / len(sample["partner"]), atol=1e-4)


def test_bad_input_is_refused():
    vocabulary, (encoder, params) = toy.ToyVocabulary(), toy.model()
    with pytest.raises(UserError, match="word_recovery=True"):
        RecoverySamples(PAIRS, vocabulary, toy.LANGUAGES)(encoder, params, 0)
    with pytest.raises(UserError, match="no de-en pair fits a row of 3"):
        RecoverySamples(PAIRS, vocabulary, toy.LANGUAGES, length=3)(encoder, params, 0)


def test_the_second_text_opens_only_where_asked():
    vocabulary = toy.ToyVocabulary("xlmr")
    plain, opened = (
        pair_rows(PAIRS["de"], vocabulary, 24, (0, 1), each_opens=on) for on in (False, True)
    )
    turn = (plain["sides"] == 1).argmax(axis=1)
    rows = np.arange(len(turn))
    assert (plain["input_ids"][rows, turn] == vocabulary.eos_id).all()
    assert (opened["input_ids"][rows, turn] == vocabulary.bos_id).all()
    assert (plain["input_ids"] != opened["input_ids"]).sum() == len(turn)
