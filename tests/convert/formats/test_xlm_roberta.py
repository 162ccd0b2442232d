"""XLM-R of Hugging Face: the same states and logits, the same bits, and a clear word for what is
broken."""

import json
import shutil

import jax
import numpy as np
import pytest

from xlingjax.cli.main import main
from xlingjax.convert.formats.hugging_face import read
from xlingjax.convert.formats.xlm_roberta import XLM_ROBERTA
from xlingjax.errors import UserError

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch
from tests.helpers import small_xlmr  # noqa: E402 - needs transformers

SHAPES = {
    "odd": dict(hidden_size=21, num_hidden_layers=1, num_attention_heads=7, intermediate_size=5),
    "deep": dict(num_hidden_layers=5),
    "two segments": dict(layer_norm_eps=1e-3, type_vocab_size=2),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("xlmr")
    small_xlmr.save(path)
    return path


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_the_states_of_every_layer_are_theirs(shape, tmp_path):
    theirs = small_xlmr.save(tmp_path, **SHAPES[shape])
    found = read(tmp_path)
    # To the last row of the position table.
    batch = foreign.batch_of(found.config.vocab_size, 68, pad=1, ends=2)
    states, logits = foreign.states_and_logits(found, batch)
    given = foreign.tensors(batch, input_ids="input_ids", attention_mask="pack_ids")
    with torch.no_grad():
        wanted = theirs(**given, output_hidden_states=True)
    valid_BL = batch["pack_ids"] > 0
    foreign.assert_states_are(states, wanted.hidden_states, valid_BL)
    foreign.assert_states_are([logits], [wanted.logits], valid_BL)


def test_the_names_lead_back_to_the_same_bits(folder):
    theirs = foreign.weights(folder)
    theirs["roberta.embeddings.position_embeddings.weight"] += theirs.pop(XLM_ROBERTA.segments)[0]
    foreign.assert_same_bits(foreign.back(XLM_ROBERTA, read(folder)), theirs)


@pytest.mark.parametrize(
    ("kind", "labels", "compared"),
    [
        ("ForSequenceClassification", 5, "logits of the classes"),
        ("ForTokenClassification", 4, "logits of the tags"),
        ("Model", 0, "states of every layer"),
    ],
)
def test_another_head_is_compared_and_the_random_vocabulary_head_said(
    kind, labels, compared, tmp_path, capsys
):
    small_xlmr.save(tmp_path / "hf", f"XLMRoberta{kind}", num_labels=labels)
    assert main(["import", str(tmp_path / "hf"), "--to", str(tmp_path / "run")]) == 0
    assert f"{compared}: largest difference" in capsys.readouterr().out
    found = read(tmp_path / "hf")
    assert found.config.num_labels == labels and not found.vocabulary_head
    assert found.notes[0].startswith("the vocabulary head is random")
    assert not found.params["head"]["bias"].any()


@pytest.mark.parametrize("wraps", ["module.{}", "_orig_mod.module.{}", "{0}._orig_mod.{1}"])
def test_names_that_training_wrapped_are_unwrapped_and_said(wraps, folder, tmp_path, capsys):
    def wrap(table):
        for name in [*table]:
            first, _, rest = name.partition(".")
            parts = [name] if wraps.endswith(".{}") else [first, rest]
            table[wraps.format(*parts)] = table.pop(name)

    copy = shutil.copytree(folder, tmp_path / "hf")
    foreign.reweighted(wrap)(copy)
    assert main(["import", str(copy), "--to", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert "read without what wraps their names" in told and "largest difference" in told
    jax.tree.map(np.testing.assert_array_equal, read(copy).params, read(folder).params)


def test_an_adapter_is_to_be_merged_first(folder, tmp_path):
    def add(table):
        table["roberta.encoder.layer.0.attention.self.query.lora_A.weight"] = np.ones((2, 2), "f4")

    foreign.assert_refused(read, folder, foreign.reweighted(add), "merge it into", tmp_path)
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with pytest.raises(UserError, match="holds an adapter .*: merge it into its model first"):
        read(tmp_path)


def test_an_imported_model_is_a_run_to_start_from(folder, tmp_path, capsys):
    from xlingjax.inference.run import open_run

    assert main(["import", str(folder), "--to", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert "logits of the pieces: largest difference" in told and "16 sentences" in told
    opened, direct = open_run(tmp_path / "run"), read(folder)
    assert opened.vocabulary == direct.vocabulary and opened.model.config == direct.config
    jax.tree.map(np.testing.assert_array_equal, opened.params, direct.params)
    assert main(["import", str(folder), "--to", str(tmp_path / "run")]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_shards_pickles_and_half_precision_are_the_same_weights(folder, tmp_path):
    whole = read(folder)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    shutil.copytree(folder, tmp_path / "shards")
    (tmp_path / "shards" / "model.safetensors").unlink()
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len([*(tmp_path / "shards").glob("model-*.safetensors")]) > 1
    shutil.copytree(folder, tmp_path / "pickle")
    (tmp_path / "pickle" / "model.safetensors").unlink()
    torch.save(
        model.state_dict(), tmp_path / "pickle" / "pytorch_model.bin"
    )  # with every name of tied weights
    for name in ("shards", "pickle"):
        jax.tree.map(np.testing.assert_array_equal, read(tmp_path / name).params, whole.params)
    shutil.copytree(folder, tmp_path / "half")
    model.bfloat16().save_pretrained(tmp_path / "half")
    half = read(tmp_path / "half").params
    wanted = model.state_dict()["roberta.encoder.layer.1.output.dense.weight"].float().numpy().T
    np.testing.assert_array_equal(half["encoder"]["layers"]["ffn"]["out"]["kernel"][1], wanted)


def truncated(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def with_nan(found):
    found["lm_head.dense.weight"][3, 4] = np.nan


def pickled_by_torch(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"a": foreign.Payload(folder / "ran")}, folder / "pytorch_model.bin")


def shard_elsewhere(folder):
    (folder / "model.safetensors").rename(folder.parent / "elsewhere.safetensors")
    text = json.dumps({"weight_map": {"lm_head.bias": "../elsewhere.safetensors"}})
    (folder / "model.safetensors.index.json").write_text(text)


def another_tokenizer(folder):
    small_xlmr.tokenizer_model(folder, 60, small_xlmr.SENTENCES[:3])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (truncated, "is no whole safetensors file"),
        (
            foreign.reweighted(with_nan),
            "dense.weight has 1 values that are NaN or infinite",
        ),
        (pickled_by_torch, "holds more than tensors, and what a pickle holds it can run: refused"),
        (
            foreign.changed(intermediate_size=41, num_hidden_layers=2),
            r"layer.0.intermediate.dense.bias: wanted 41, found 40 \(and 21 more\)",
        ),
        (foreign.changed(tie_word_embeddings=False), "tie_word_embeddings=False is not something"),
        (foreign.changed(model_type="gpt2"), "model_type='gpt2' is not something"),
        (foreign.changed(hidden_size="24"), "hidden_size='24'; it must be a whole number"),
        (shard_elsewhere, "'../elsewhere.safetensors', which is no file of its folder"),
        (another_tokenizer, "its tokenizer .* pieces and 0 languages: these are not of"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights in"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is no JSON"),
    ],
)
def test_what_is_broken_is_said_and_nothing_written(folder, spoil, message, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "hf")
    spoil(tmp_path / "hf")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=message):
        read(tmp_path / "hf")
    assert main(["import", str(tmp_path / "hf"), "--to", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_model_that_transformers_computes_otherwise_is_refused(
    folder, tmp_path, capsys, monkeypatch
):
    def swapped(config):
        modules = dict(XLM_ROBERTA.modules)
        query, key = (f"encoder/layers/attention/{name}" for name in ("query", "value"))
        modules[query], modules[key] = modules[key], modules[query]
        return modules

    monkeypatch.setattr(XLM_ROBERTA, "names_of", swapped)
    assert main(["import", str(folder), "--to", str(tmp_path / "run")]) == 2
    assert "is not what transformers computes: logits of the pieces" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def overflowing(found):
    found["lm_head.dense.weight"][:] = 3e38


def test_logits_that_are_no_numbers_are_not_the_same(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "hf")
    foreign.reweighted(overflowing)(tmp_path / "hf")
    assert main(["import", str(tmp_path / "hf"), "--to", str(tmp_path / "run")]) == 2
    assert "largest difference nan" in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_a_hub_id_that_cannot_be_fetched_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["import", "nobody/no-such-model", "--to", str(tmp_path / "run")]) == 2
    assert "nobody/no-such-model: no such folder, and the hub" in capsys.readouterr().err


def test_safetensors_are_read_without_torch(folder, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert read(folder).vocabulary_head
    with pytest.raises(UserError, match="comparing with transformers needs it"):
        from xlingjax.convert.formats.parity import compare

        compare(folder, None, None, None, True)
