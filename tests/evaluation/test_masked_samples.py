import jax
import numpy as np
import pytest

from tests.helpers import toy
from xlingjax.data.held_out_pairs import Pairs
from xlingjax.data.text.texts import Text
from xlingjax.evaluation.masked_samples import MaskedSamples


def test_samples_show_masks_targets_and_the_likeliest_pieces(tmp_path):
    vocabulary = toy.ToyVocabulary()
    texts = toy.sentences(20, seed=1, longest=8)
    (tmp_path / "fr.txt").write_text("\n".join(texts) + "\n")
    encoder, params = toy.model()
    zeros = jax.tree.map(np.zeros_like, params)
    bias = np.zeros(encoder.config.padded_vocab_size, np.float32)
    bias[vocabulary.encode("q")[0]], bias[vocabulary.encode("j")[0]] = (
        9,
        8,
    )  # the model says q, then j, always
    bias[vocabulary.size :] = 100  # rows beyond the vocabulary are no pieces
    params = zeros | {"head": {"bias": bias}}
    pairs = {"de": Pairs("de", tuple(texts), tuple(reversed(texts)))}
    text = Text(tmp_path / "fr.txt", "fr")
    evaluator = MaskedSamples({"fr": text}, vocabulary, toy.LANGUAGES, pairs, per_language=2, top=2)
    values = evaluator(encoder, params, 0)
    assert [s["language"] for s in values["texts"]] == ["fr"] * 2
    assert [s["language"] for s in values["pairs"]] == ["de"] * 2
    partition = np.exp(9) + np.exp(8) + vocabulary.size - 2
    for sample in values["texts"] + values["pairs"]:
        assert sample["slots"]
        pieces = list(sample["pieces"])
        for slot in sample["slots"]:
            assert [name for name, _ in slot["predictions"]] == ["q", "j"]
            assert slot["predictions"][0][1] == pytest.approx(np.exp(9) / partition, abs=1e-3)
            assert pieces[slot["column"]] == "[MASK]"
            pieces[slot["column"]] = slot["target"]
        assert " ".join(pieces[1:-1]) in texts  # targets put back give the sentence
    for sample in values["pairs"]:
        assert sample["partner"] in texts
        assert all(
            slot["with_partner"] == slot["predictions"] for slot in sample["slots"]
        )  # this model sees nothing
    assert evaluator(encoder, params, 1) == values  # the same sentences at every step


def test_the_partner_is_seen_only_where_it_says_so(tmp_path):
    vocabulary = toy.ToyVocabulary()
    texts = tuple(toy.sentences(8, seed=2, longest=6))
    encoder, params = toy.model()

    def slots(english):
        evaluator = MaskedSamples(
            {}, vocabulary, toy.LANGUAGES, {"de": Pairs("de", texts, english)}, per_language=8
        )
        return [
            slot for sample in evaluator(encoder, params, 0)["pairs"] for slot in sample["slots"]
        ]

    one, other = slots(texts), slots(tuple(" ".join(reversed(text.split())) for text in texts))
    assert [s["predictions"] for s in one] == [s["predictions"] for s in other]
    assert [s["with_partner"] for s in one] != [s["with_partner"] for s in other]
