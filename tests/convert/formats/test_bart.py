"""BART and mBART: the same states on both sides, the same logits, the same bits."""

import pytest

from tests.helpers.foreign_params import params_of
from xlingjax.convert.formats.bart import BART

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch

ODD = dict(d_model=21, encoder_layers=1, encoder_ffn_dim=5, decoder_ffn_dim=5, vocab_size=131)
ODD |= dict(encoder_attention_heads=7, decoder_attention_heads=7)
SHAPES = {
    "bart": ("Bart", {}),
    "mbart": ("MBart", dict(scale_embedding=True)),
    "odd bart": ("Bart", dict(ODD, scale_embedding=True)),
}


def save(path, family, suffix="ForConditionalGeneration", **changes):
    config = getattr(transformers, f"{family}Config")(**foreign.BART | changes)
    model = foreign.randomised(getattr(transformers, f"{family}{suffix}")(config))
    model.save_pretrained(path)
    return model


@pytest.mark.parametrize("shape", SHAPES)
def test_states_of_both_sides_and_logits_are_theirs(shape, tmp_path):
    family, changes = SHAPES[shape]
    theirs = save(tmp_path, family, **changes)
    found = params_of(tmp_path)
    assert found.vocabulary_head and found.notes == ()
    batch = foreign.both_sides(found.config.vocab_size)
    with torch.no_grad():
        wanted = theirs(**foreign.tensors(batch, **foreign.SIDES), output_hidden_states=True)
    states, decoded, logits = foreign.states_and_logits_of_both_sides(found, batch)
    foreign.assert_states_are(states, wanted.encoder_hidden_states, batch["pack_ids"] > 0)
    norm = theirs.model.decoder.layer_norm if family == "MBart" else lambda states: states
    *earlier, last = wanted.decoder_hidden_states[1:]  # theirs has the norm in the last ones alone
    columns_BT = batch["decoder_pack_ids"] > 0
    foreign.assert_states_are(decoded, [*map(norm, earlier), last], columns_BT)
    foreign.assert_states_are([logits], [wanted.logits], columns_BT)


@pytest.mark.parametrize("tied", [True, False])
def test_a_bias_of_the_head_and_tables_that_are_not_tied_are_computed(tied, tmp_path):
    theirs = save(tmp_path, "Bart", tie_word_embeddings=tied)
    bias_1V = torch.linspace(-2, 2, theirs.config.vocab_size)[None]
    theirs.final_logits_bias = torch.nn.Buffer(bias_1V)
    theirs.lm_head.weight.data = theirs.model.decoder.embed_tokens.weight.data.clone()
    theirs.save_pretrained(tmp_path)
    found = params_of(tmp_path)
    assert found.config.head == "tied"
    assert found.config.decoder_embeddings == ("shared_tokens" if tied else "separate")
    batch = foreign.both_sides(found.config.vocab_size)
    with torch.no_grad():
        wanted = theirs(**foreign.tensors(batch, **foreign.SIDES))
    *_, logits = foreign.states_and_logits_of_both_sides(found, batch)
    foreign.assert_states_are([logits], [wanted.logits], batch["decoder_pack_ids"] > 0)


@pytest.mark.parametrize("family", ["Bart", "MBart"])
def test_the_names_lead_back_to_the_same_bits(family, tmp_path):
    save(tmp_path, family)
    theirs = foreign.weights(tmp_path)
    assert not theirs.pop("final_logits_bias").any()
    foreign.assert_same_bits(foreign.back(BART, params_of(tmp_path)), theirs)


def untied(found):
    found["lm_head.weight"] = found["model.shared.weight"] + 1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (foreign.changed(normalize_before=False), "normalize_before=False is not something"),
        (
            foreign.changed(tie_word_embeddings=False),
            "coder.embed_tokens.weight: wanted 50 x 24, found none",
        ),
        (foreign.reweighted(untied), "lm_head.weight is not model.shared.weight"),
    ],
)
def test_what_is_broken_or_not_computed_is_said(spoil, message, tmp_path):
    save(tmp_path / "theirs", "MBart")
    foreign.assert_refused(params_of, tmp_path / "theirs", spoil, message, tmp_path)
