"""ProphetNet and XLM-ProphetNet: the same states on both sides, logits of every stream, the same
bits."""

import jax
import numpy as np
import pytest

from tests.helpers.foreign_params import params_of
from xlingjax.convert.formats.prophetnet import PROPHETNET
from xlingjax.errors import UserError

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch

CONFIG = dict(vocab_size=50, hidden_size=24, max_position_embeddings=40, ngram=2)
CONFIG |= dict(num_encoder_layers=2, num_encoder_attention_heads=4, encoder_ffn_dim=40)
CONFIG |= dict(num_decoder_layers=2, num_decoder_attention_heads=4, decoder_ffn_dim=40)
ODD = dict(hidden_size=21, vocab_size=131, ngram=3, num_encoder_layers=1)
ODD |= dict(num_encoder_attention_heads=7, num_decoder_attention_heads=7)
ODD |= dict(encoder_ffn_dim=5, decoder_ffn_dim=5)
SHAPES = {
    "two streams": {},
    "padding 1": dict(pad_token_id=1, num_buckets=8, relative_max_distance=20),
    "odd": ODD,
}


def save(path, suffix="ForConditionalGeneration", **changes):
    config = transformers.ProphetNetConfig(**{**CONFIG, **changes})
    model = foreign.randomised(getattr(transformers, f"ProphetNet{suffix}")(config))
    model.save_pretrained(path)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("prophetnet")
    save(path)
    return path


@pytest.mark.parametrize("shape", SHAPES)
def test_states_of_both_sides_and_logits_of_all_streams_are_theirs(shape, tmp_path, monkeypatch):
    theirs = save(tmp_path, **SHAPES[shape])
    attention = type(theirs.prophetnet.decoder.layers[0].self_attn)
    monkeypatch.setattr(attention, "get_predict_relative_pos_embeddings", foreign.relative_scores)
    found = params_of(tmp_path)
    pad = found.config.position_offset - 1
    assert found.vocabulary_head and found.notes == () and pad == (1 if shape == "padding 1" else 0)
    batch = foreign.both_sides(found.config.vocab_size, 38, 31, pad=pad)
    given = foreign.tensors(batch, **foreign.SIDES)
    with torch.no_grad():
        wanted = theirs(**given, use_cache=False, output_hidden_states=True)
    states, decoded, logits = foreign.states_and_logits_of_both_sides(
        found, batch, "decode_streams"
    )
    foreign.assert_states_are(states, wanted.encoder_hidden_states, batch["pack_ids"] > 0)
    columns_BT = batch["decoder_pack_ids"] > 0
    streams = [wanted.logits, *wanted.logits_ngram.unbind(1)]
    foreign.assert_states_are(logits, streams, columns_BT)
    for ours, predicting in zip(decoded, wanted.decoder_ngram_hidden_states[1:], strict=True):
        by_stream = predicting.unflatten(1, (found.config.streams, -1)).unbind(1)
        foreign.assert_states_are(ours, by_stream, columns_BT)


def test_the_names_lead_back_to_the_same_bits(folder):
    foreign.assert_same_bits(foreign.back(PROPHETNET, params_of(folder)), foreign.weights(folder))


def test_xlm_prophetnet_and_a_body_without_prefix_are_the_same(folder, tmp_path):
    whole = params_of(folder).params
    model = transformers.ProphetNetForConditionalGeneration.from_pretrained(folder)
    model.prophetnet.save_pretrained(tmp_path / "body")
    assert "word_embeddings.weight" in foreign.weights(tmp_path / "body")
    foreign.changed(model_type="xlm-prophetnet", architectures=["XLMProphetNetModel"])(
        tmp_path / "body"
    )
    jax.tree.map(np.testing.assert_array_equal, params_of(tmp_path / "body").params, whole)


class Letters:
    """A vocabulary with padding 0."""

    bos_id = eos_id = 2
    pad_id = 0

    def encode(self, text):
        return [6 + ord(letter) % 40 for letter in text]


def test_an_import_is_compared_with_what_their_decoder_writes_step_by_step(tmp_path, monkeypatch):
    from xlingjax.convert.formats import parity

    monkeypatch.setattr(parity, "SENTENCES", ("The lake.", "Das Wasser"))
    save(tmp_path)
    found = params_of(tmp_path)
    same = parity.compare(tmp_path, found.config, found.params, Letters(), True)
    assert same.startswith("logits of the next piece: largest difference")
    relative = found.params["decoder"]["layers"]["attention"]["relative"]["kernel"]
    relative[:, :, [3, 4]] = relative[:, :, [4, 3]]
    with pytest.raises(UserError, match="what xlingjax computes is not what transformers"):
        parity.compare(tmp_path, found.config, found.params, Letters(), True)


def another_table(found):
    found["prophetnet.encoder.word_embeddings.weight"] = (
        found["prophetnet.word_embeddings.weight"] + 1
    )


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (foreign.changed(num_buckets=16), "relative_pos_embeddings.bias: wanted 64, found 128"),
        (
            foreign.reweighted(another_table),
            "encoder.word_embeddings.weight is not prophetnet.word_embeddings.weight",
        ),
    ],
)
def test_what_is_broken_or_not_computed_is_said(folder, spoil, message, tmp_path):
    foreign.assert_refused(params_of, folder, spoil, message, tmp_path)
