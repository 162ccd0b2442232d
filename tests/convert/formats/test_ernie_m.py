"""ERNIE-M, under transformers' old names and under Paddle's: the states of a reference in PyTorch,
the same bits."""

import json
import pickle
import shutil

import jax
import numpy as np
import pytest

from tests.helpers.foreign_params import params_of
from xlingjax.cli.main import main
from xlingjax.convert.formats import checkpoints
from xlingjax.convert.formats.names import places, to_theirs
from xlingjax.convert.formats.xlm_roberta import ERNIE_M, PADDLE_ERNIE_M
from xlingjax.errors import UserError

torch = pytest.importorskip("torch")
from tests.helpers import foreign_models as foreign  # noqa: E402 - needs torch
from tests.helpers import small_xlmr  # noqa: E402
from tests.helpers.foreign_models import Payload  # noqa: E402 - needs transformers

CONFIG = dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96)
CONFIG |= dict(max_position_embeddings=40, pad_token_id=1, vocab_size=50, hidden_act="gelu")
CONFIG |= dict(initializer_range=0.02)
HEAD = "the vocabulary head is random"
# Paddle's layer is PyTorch's, under the names of its parts.
PARTS = ("self_attn.out_proj", "linear1", "linear2", "norm1", "norm2")


class Reference(torch.nn.Module):
    """ErnieMModel of the paper's shape: positions from row 2 on, post-LN, GELU by erf, eps 1e-5."""

    def __init__(self, words, dim=24, labels=5):
        super().__init__()
        self.word_embeddings = torch.nn.Embedding(words, dim)
        self.position_embeddings = torch.nn.Embedding(40, dim)
        self.layer_norm = torch.nn.LayerNorm(dim)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(
                dim, 4, 4 * dim, 0.0, torch.nn.functional.gelu, batch_first=True
            )
            for _ in range(3)
        )
        self.pooler, self.classifier = torch.nn.Linear(dim, dim), torch.nn.Linear(dim, labels)

    def forward(self, ids, mask):
        positions = torch.arange(ids.shape[1]) + 2
        x = self.layer_norm(self.word_embeddings(ids) + self.position_embeddings(positions))
        states = [x]
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=mask == 0)
            states.append(x)
        return states, self.classifier(torch.tanh(self.pooler(x[:, 0])))


def table_of(model, attention):
    """{published name: tensor}. attention: "self_attn" (Paddle) or "self_attn.self_attn"
    (transformers)."""
    found = {
        f"ernie_m.embeddings.{name}.weight": getattr(model, name).weight
        for name in ("word_embeddings", "position_embeddings")
    }
    modules = {"embeddings.layer_norm": model.layer_norm, "pooler.dense": model.pooler}
    for n, layer in enumerate(model.layers):
        modules |= {f"encoder.layers.{n}.{name}": layer.get_submodule(name) for name in PARTS}
    for name, module in modules.items():
        found |= {f"ernie_m.{name}.weight": module.weight, f"ernie_m.{name}.bias": module.bias}
    for n, layer in enumerate(model.layers):
        for part in ("weight", "bias"):
            thirds = getattr(layer.self_attn, f"in_proj_{part}").chunk(3)
            for projection, value in zip("qkv", thirds, strict=True):
                found[f"ernie_m.encoder.layers.{n}.{attention}.{projection}_proj.{part}"] = value
    return {name: value.detach().numpy().copy() for name, value in found.items()}


def published(path, model, config=CONFIG, **more):
    from safetensors.numpy import save_file

    table = table_of(model, "self_attn.self_attn") | more
    table = {name: np.ascontiguousarray(value) for name, value in table.items()}
    save_file(table, path / "model.safetensors")
    values = {"architectures": ["ErnieMModel"], "model_type": "ernie_m", "layer_norm_eps": 1e-5}
    values |= config
    (path / "config.json").write_text(json.dumps(values))
    return table


def of_paddle(table):
    """Linear layers as [in, out], column by column."""
    linear = ("_proj", "linear1", "linear2", "dense", "classifier")
    linear = tuple(f"{name}.weight" for name in linear)
    return {name: value.T if name.endswith(linear) else value for name, value in table.items()}


def written(path, table, protocol=4, config=None):
    names = {"StructuredToParameterName@@": {name: f"param_{i}" for i, name in enumerate(table)}}
    (path / "model_state.pdparams").write_bytes(pickle.dumps({**table, **names}, protocol=protocol))
    older = {name: value for name, value in CONFIG.items() if name != "intermediate_size"}
    (path / "model_config.json").write_text(
        json.dumps(config or {"init_args": [], "init_class": "ErnieMModel", **older})
    )
    return path / "model_state.pdparams"


@pytest.fixture(scope="module")
def reference():
    return foreign.randomised(Reference(50))


def assert_is(found, reference):
    batch = foreign.batch_of(50, 38, pad=1, ends=2)
    states, _ = foreign.states_and_logits(found, batch)
    with torch.no_grad():
        wanted, _ = reference(**foreign.tensors(batch, ids="input_ids", mask="pack_ids"))
    foreign.assert_states_are(states, wanted, batch["pack_ids"] > 0)


def test_published_names_are_the_reference(reference, tmp_path):
    theirs = published(tmp_path, reference)
    found = params_of(tmp_path)
    assert not found.vocabulary_head and found.notes[0].startswith(HEAD)
    assert_is(found, reference)
    there, without = places(ERNIE_M.names_of(found.config), found.config, found.params)
    assert without and all(name.startswith("head/") for name in without)
    back = {name: value for name, value in theirs.items() if "pooler" not in name}
    foreign.assert_same_bits(to_theirs(there, found.params), back)


@pytest.mark.parametrize("protocol", [2, 4])
def test_paddles_names_are_the_reference(protocol, reference, tmp_path):
    table = of_paddle(table_of(reference, "self_attn"))
    table["ernie_m.embeddings.position_ids"] = np.arange(40)[None]
    found = checkpoints.params_of(written(tmp_path, table, protocol))
    assert_is(found, reference)
    there, _ = places(PADDLE_ERNIE_M.names_of(found.config), found.config, found.params, False)
    left = ("pooler", "position_ids")
    back = {name: x for name, x in table.items() if not any(word in name for word in left)}
    foreign.assert_same_bits(to_theirs(there, found.params), back)


def test_a_classifier_is_the_references(reference, tmp_path):
    classifier = reference.classifier
    head = {"classifier.weight": classifier.weight, "classifier.bias": classifier.bias}
    head = {name: value.detach().numpy() for name, value in head.items()}
    named = {**CONFIG, "architectures": ["ErnieMForSequenceClassification"]}
    published(tmp_path, reference, named | {"id2label": {str(i): str(i) for i in range(5)}}, **head)
    inner = {"init_class": "ErnieMModel", **CONFIG}
    inner.pop("intermediate_size")
    outer = {"init_args": [inner], "num_classes": 5}
    outer["init_class"] = "ErnieMForSequenceClassification"
    table = of_paddle(table_of(reference, "self_attn") | head)
    batch = foreign.batch_of(50, 38, pad=1, ends=2)
    with torch.no_grad():
        _, wanted = reference(**foreign.tensors(batch, ids="input_ids", mask="pack_ids"))
    for found in (
        params_of(tmp_path),
        checkpoints.params_of(written(tmp_path, table, config=outer)),
    ):
        assert found.config.num_labels == 5
        ours = foreign.class_logits(found, batch)
        np.testing.assert_allclose(ours, wanted.numpy(), atol=1e-4)


@pytest.mark.parametrize("kind", ["value", "dtype", "cut"])
def test_a_pickle_of_more_than_arrays_is_refused_and_not_run(kind, reference, tmp_path):
    table = of_paddle(table_of(reference, "self_attn"))
    payload = Payload(tmp_path / "ran")
    content = {
        "value": {**table, "a": payload},
        "dtype": {**table, "a": np.array([payload], object)},
        "cut": table,
    }[kind]
    path = written(tmp_path, table)
    path.write_bytes(pickle.dumps(content)[: -1000 if kind == "cut" else None])
    with pytest.raises(UserError, match="holds more than named arrays, .* can run: refused"):
        checkpoints.params_of(path)
    assert not (tmp_path / "ran").exists()


def test_weights_that_are_no_floats_and_other_architectures_are_refused(reference, tmp_path):
    table = of_paddle(table_of(reference, "self_attn"))
    name = "ernie_m.encoder.layers.1.linear1.weight"
    path = written(tmp_path, {**table, name: table[name].astype(np.uint16)})
    with pytest.raises(UserError, match="is uint16; weights are floating-point numbers"):
        checkpoints.params_of(path)
    path = written(tmp_path, table, config={**CONFIG, "init_class": "ErnieModel"})
    with pytest.raises(UserError, match="architecture ErnieModel is not read"):
        checkpoints.params_of(path)


def test_both_folders_are_imported_unverified(tmp_path, capsys):
    from xlingjax.inference.run import open_run

    rows = small_xlmr.tokenizer_model(tmp_path) + 2
    for name in ("hf", "paddle"):
        (tmp_path / name).mkdir()
        shutil.copy(tmp_path / "sentencepiece.bpe.model", tmp_path / name)
    model = foreign.randomised(Reference(rows))
    config = {**CONFIG, "vocab_size": rows, "model_type": "ernie_m"}
    published(tmp_path / "hf", model, config)
    written(tmp_path / "paddle", of_paddle(table_of(model, "self_attn")), config=config)
    opened = []
    for name in ("hf", "paddle"):
        command = ["import", str(tmp_path / name), "--to", str(tmp_path / f"{name}-run")]
        assert main(command) == 2
        capsys.readouterr()
        assert main([*command, "--unverified"]) == 0
        opened.append(open_run(tmp_path / f"{name}-run").params)
    jax.tree.map(np.testing.assert_array_equal, *opened)
