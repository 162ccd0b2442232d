import jax
import numpy as np
import pytest

from tests.helpers import toy
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
    text = Text(tmp_path / "fr.txt", "fr")
    evaluator = MaskedSamples({"fr": text}, vocabulary, toy.LANGUAGES, per_language=2, top=2)
    values = evaluator(encoder, params, 0)
    assert [s["language"] for s in values["texts"]] == ["fr"] * 2
    partition = np.exp(9) + np.exp(8) + vocabulary.size - 2
    for sample in values["texts"]:
        assert sample["slots"]
        pieces = list(sample["pieces"])
        for slot in sample["slots"]:
            assert [name for name, _ in slot["predictions"]] == ["q", "j"]
            assert slot["predictions"][0][1] == pytest.approx(np.exp(9) / partition, abs=1e-3)
            assert pieces[slot["column"]] == "[MASK]"
            pieces[slot["column"]] = slot["target"]
        assert " ".join(pieces[1:-1]) in texts  # targets put back give the sentence
    assert evaluator(encoder, params, 1) == values  # the same sentences at every step
