"""XLM-R and mBART of fairseq: old and new names are one model, that of transformers; a pickle's
code is never run."""

import argparse

import jax
import numpy as np
import pytest

from xlingjax.cli.main import main
from xlingjax.convert.formats import checkpoints
from xlingjax.convert.formats.bart import FAIRSEQ_BART
from xlingjax.convert.formats.xlm_roberta import FAIRSEQ_XLM_ROBERTA
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch
from tests.helpers import small_xlmr  # noqa: E402

OF_XLMR = {
    "roberta.embeddings.word_embeddings": "embed_tokens",
    "roberta.embeddings.position_embeddings": "embed_positions",
    "roberta.embeddings.LayerNorm": "emb_layer_norm",
    "roberta.encoder.layer": "layers",
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
}


def xlmr(path):
    """(transformers' model, {fairseq's name of before 0.10: tensor}); the tokenizer and dict.txt
    lie in `path`."""
    pieces = small_xlmr.tokenizer_model(path)
    vocabulary = Vocabulary.load(path / "sentencepiece.bpe.model", "xlmr")
    words = vocabulary.pieces(range(4, pieces + 1))
    (path / "dict.txt").write_text("".join(f"{word} {1000 - i}\n" for i, word in enumerate(words)))
    config = transformers.XLMRobertaConfig(**small_xlmr.CONFIG, vocab_size=pieces + 2)
    model = foreign.randomised(transformers.XLMRobertaForMaskedLM(config))
    model.roberta.embeddings.token_type_embeddings.weight.data[:] = 0  # fairseq has none
    table = {}
    for name, value in model.state_dict().items():
        for theirs, old in OF_XLMR.items():
            name = name.replace(theirs, old)
        body = "" if name.startswith("lm_head.") else "sentence_encoder."
        table[f"decoder.{body}{name}"] = value
    table.pop("decoder.sentence_encoder.roberta.embeddings.token_type_embeddings.weight")
    table["decoder.lm_head.weight"] = table.pop("decoder.lm_head.decoder.weight")
    table.pop("decoder.lm_head.decoder.bias", None)
    return model, table


ARGS = dict(encoder_layers=3, encoder_embed_dim=24, encoder_ffn_embed_dim=40)
ARGS |= dict(arch="roberta_base", encoder_attention_heads=4, max_positions=68)
ARGS |= dict(activation_fn="gelu", dropout=0.1, attention_dropout=0.0)


def save(path, table, args=ARGS):
    made = {"args": argparse.Namespace(**args), "model": table, "extra_state": {}}
    torch.save(made, path)


def newer(table):
    found = {name.replace("decoder.", "encoder.", 1): value for name, value in table.items()}
    return {
        name.replace("emb_layer_norm", "layernorm_embedding"): value
        for name, value in found.items()
    }


def fused(table):
    found = dict(table)
    for name in [name for name in table if ".q_proj." in name]:
        parts = [found.pop(name.replace(".q_proj.", f".{part}_proj.")) for part in "qkv"]
        found[name.replace(".q_proj.", ".in_proj_")] = torch.cat(parts)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("fairseq")
    model, table = xlmr(path)
    save(path / "model.pt", table)
    return path, model, table


def test_states_and_logits_of_xlmr_are_those_of_transformers(folder):
    path, theirs, _ = folder
    found = checkpoints.params_of(path / "model.pt")
    assert found.vocabulary_head and found.notes == () and found.config.position_offset == 2
    batch = foreign.batch_of(found.config.vocab_size, 68, pad=1, ends=2)
    states, logits = foreign.states_and_logits(found, batch)
    with torch.no_grad():
        given = foreign.tensors(batch, input_ids="input_ids", attention_mask="pack_ids")
        wanted = theirs(**given, output_hidden_states=True)
    valid_BL = batch["pack_ids"] > 0
    foreign.assert_states_are(states, wanted.hidden_states, valid_BL)
    foreign.assert_states_are([logits], [wanted.logits], valid_BL)


def test_new_names_fused_projections_and_newer_options_are_the_same(folder, tmp_path):
    path, _, table = folder
    whole = checkpoints.params_of(path / "model.pt").params
    save(tmp_path / "new.pt", newer(table))
    save(tmp_path / "fused.pt", fused(table))
    torch.save(
        {"args": None, "cfg": {"model": argparse.Namespace(**ARGS)}, "model": table},
        tmp_path / "cfg.pt",
    )
    assert "decoder.sentence_encoder.layers.0.self_attn.in_proj_weight" in fused(table)
    for name in ("new", "fused", "cfg"):
        found = checkpoints.params_of(tmp_path / f"{name}.pt")
        jax.tree.map(np.testing.assert_array_equal, found.params, whole)
    found = checkpoints.params_of(tmp_path / "fused.pt")
    wanted = {
        name: value.numpy()
        for name, value in newer(table).items()
        if name != "encoder.lm_head.weight"
    }
    foreign.assert_same_bits(foreign.back(FAIRSEQ_XLM_ROBERTA, found), wanted)


def test_a_folder_is_imported_only_unverified(folder, tmp_path, capsys):
    from xlingjax.inference.run import open_run

    path, _, _ = folder
    assert main(["import", str(path), "--to", str(tmp_path / "run")]) == 2
    assert "nothing to compare with; say --unverified" in capsys.readouterr().err
    assert main(["import", str(path), "--to", str(tmp_path / "run"), "--unverified"]) == 0
    opened, direct = open_run(tmp_path / "run"), checkpoints.read(path / "model.pt")
    assert opened.vocabulary == direct.vocabulary and opened.model.config == direct.config
    jax.tree.map(np.testing.assert_array_equal, opened.params, direct.params)


def test_what_does_not_fit_is_said(folder, tmp_path):
    path, _, table = folder
    for file in ("dict.txt", "sentencepiece.bpe.model"):
        (tmp_path / file).write_bytes((path / file).read_bytes())
    place = tmp_path / "model.pt"
    save(place, table, {**ARGS, "activation_fn": "relu"})
    with pytest.raises(UserError, match="activation_fn='relu' is not something"):
        checkpoints.read(place)
    save(place, table, {**ARGS, "encoder_layers": 4})
    with pytest.raises(UserError, match=r"layers.3.*found none"):
        checkpoints.read(place)
    save(place, {**table, "decoder.lm_head.weight": table["decoder.lm_head.weight"] + 1})
    with pytest.raises(UserError, match="lm_head.weight is not .*embed_tokens.weight"):
        checkpoints.read(place)
    torch.save({"model": table}, place)
    with pytest.raises(UserError, match="it needs model, and args or cfg"):
        checkpoints.read(place)
    save(place, table)
    lines = (tmp_path / "dict.txt").read_text().splitlines()
    lines[4], lines[5] = lines[5], lines[4]
    (tmp_path / "dict.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match="dict.txt: line 5 is .*; give files of one model"):
        checkpoints.read(place)


# --- mBART ---

BART_ARGS = dict(arch="mbart_large", activation_fn="gelu", dropout=0.3, no_scale_embedding=False)
BART_ARGS |= dict(share_all_embeddings=True, layernorm_embedding=True)
for side, layers in (("encoder", 3), ("decoder", 2)):
    sizes = dict(layers=layers, embed_dim=24, ffn_embed_dim=40, attention_heads=4)
    sizes |= dict(normalize_before=True, learned_pos=True)
    BART_ARGS |= {f"{side}_{name}": value for name, value in sizes.items()}


@pytest.fixture(scope="module")
def mbart(tmp_path_factory):
    """(the folder, transformers' model, fairseq's table)"""
    config = transformers.MBartConfig(**foreign.BART, scale_embedding=True)
    model = foreign.randomised(transformers.MBartForConditionalGeneration(config))
    table = {
        name: value for name, value in model.model.state_dict().items() if name != "shared.weight"
    }
    table |= {
        "decoder.output_projection.weight": model.lm_head.weight.data,
        "encoder.version": torch.ones(1),
    }
    path = tmp_path_factory.mktemp("mbart")
    save(path / "model.pt", fused(table), BART_ARGS)
    return path, model, table


def test_logits_of_mbart_are_those_of_transformers(mbart):
    path, theirs, table = mbart
    found = checkpoints.params_of(path / "model.pt")
    config = found.config
    assert config.embedding_scale and config.norm_order == "pre" and config.dropout == 0.3
    batch = foreign.both_sides(50)
    states, _, logits = foreign.states_and_logits_of_both_sides(found, batch)
    with torch.no_grad():
        wanted = theirs(**foreign.tensors(batch, **foreign.SIDES), output_hidden_states=True)
    foreign.assert_states_are(states, wanted.encoder_hidden_states, batch["pack_ids"] > 0)
    foreign.assert_states_are([logits], [wanted.logits], batch["decoder_pack_ids"] > 0)
    left = ("encoder.version", "decoder.output_projection.weight", "decoder.embed_tokens.weight")
    wanted = {f"model.{name}": value.numpy() for name, value in table.items() if name not in left}
    wanted["model.shared.weight"] = wanted.pop("model.encoder.embed_tokens.weight")
    foreign.assert_same_bits(foreign.back(FAIRSEQ_BART, found), wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(decoder_normalize_before=False), "decoder_normalize_before=False is not something"),
        (
            dict(decoder_attention_heads=8),
            "encoder_attention_heads=4 and decoder_attention_heads=8",
        ),
    ],
)
def test_an_mbart_that_is_not_computed_is_refused(mbart, change, message, tmp_path):
    save(tmp_path / "model.pt", mbart[2], {**BART_ARGS, **change})
    with pytest.raises(UserError, match=message):
        checkpoints.params_of(tmp_path / "model.pt")
