"""Rotary positions, local layers, gates and norms of modern encoders: the arithmetic, and that a
row cut into blocks is the row."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import tiny
from tests.helpers.numpy_transformer import erf
from xlingjax.model import attention, flash, flash_gpu
from xlingjax.model.attention import bind, blocks_of, turns_of
from xlingjax.model.build import build_model, count_parameters
from xlingjax.model.config import CHOICES, ModelConfig
from xlingjax.model.masks import Fields, bidirectional, near
from xlingjax.model.params import path_names
from xlingjax.objectives.xlm import MLM
from xlingjax.runtime.traced_program import dot_flops

SHAPE = dict(layers=5, dim=24, heads=4, ffn=20, vocab_size=50, norm_order="pre", dropout=0.0)
ROTARY = dict(positions="rotary", gated=True, attention_bias=False, ffn_bias="none", init_std=0.5)
MODERNBERT = ModelConfig(
    name="modern",
    **SHAPE,
    **ROTARY,
    window=6,
    rotary_theta=1000.0,
    local_theta=10.0,
    norm_bias=False,
    first_norm=False,
    head="transform",
)
EUROBERT = ModelConfig(
    name="euro",
    **SHAPE,
    **ROTARY,
    kv_heads=2,
    norm="rms",
    activation="silu",
    embedding_norm=False,
    head="plain",
    tied=False,
    rotary_scale=1.5,
)
ACTIVATIONS = {
    "gelu": lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def batch_of(rows, length, rng):
    """Two examples in each row, the last columns of padding; positions begin anew in each."""
    first, last = length // 3, length - length // 8
    pack = np.zeros((rows, length), np.int32)
    pack[:, :first], pack[:, first:last] = 1, 2
    column = np.arange(length)
    return {
        "input_ids": rng.integers(5, 50, (rows, length)).astype(np.int32),
        "pack_ids": pack,
        "position_ids": np.where(column < first, column, column - first) * np.ones_like(pack),
        "language_ids": np.zeros_like(pack),
    }


def reference(c, params, batch):
    """h [B, L, D] in float64, a token and a head at a time; 0 of padding."""
    p = jax.tree.map(np.float64, params)
    act = ACTIVATIONS[c.activation]

    def norm(x, q):
        if c.norm == "rms":
            return x / np.sqrt((x**2).mean(-1, keepdims=True) + c.norm_eps) * q["scale"]
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + c.norm_eps) * q["scale"]

    def turned(x, position, theta):
        half = c.head_dim // 2
        out = np.empty_like(x)
        for i in range(half):
            angle = position / c.rotary_scale * theta ** (-2 * i / c.head_dim)
            out[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
            out[i + half] = x[i + half] * math.cos(angle) + x[i] * math.sin(angle)
        return out

    states = np.zeros((*batch["pack_ids"].shape, c.dim))
    for row, pack in enumerate(batch["pack_ids"]):
        used = np.flatnonzero(pack)
        position = batch["position_ids"][row]
        x = p["embeddings"]["tokens"]["embedding"][batch["input_ids"][row]]
        if c.embedding_norm:
            x = norm(x, p["embeddings"]["norm"])
        for n in range(c.layers):
            q = jax.tree.map(lambda a, n=n: a[n], p["encoder"]["layers"])
            far = not c.window or n % 3 == 0
            theta = c.rotary_theta if far else c.local_theta
            y = x if n == 0 and not c.first_norm else norm(x, q["attention_norm"])
            seen = np.zeros_like(x)
            for i in used:
                keys = [s for s in used if pack[s] == pack[i] and (far or abs(s - i) <= 3)]
                for head in range(c.heads):
                    of_keys = head * (c.kv_heads or c.heads) // c.heads
                    a = q["attention"]
                    ask = turned(y[i] @ a["query"]["kernel"][:, head], position[i], theta)
                    found = [
                        turned(y[s] @ a["key"]["kernel"][:, of_keys], position[s], theta)
                        for s in keys
                    ]
                    weight = np.exp(np.array(found) @ ask / math.sqrt(c.head_dim))
                    mixed = weight / weight.sum() @ (y[keys] @ a["value"]["kernel"][:, of_keys])
                    seen[i] += mixed @ a["out"]["kernel"][head]
            x = x + seen
            y = norm(x, q["ffn_norm"])
            f = q["ffn"]
            inner = act(y @ f["in"]["kernel"]) * (y @ f["gate"]["kernel"])
            x = x + inner @ f["out"]["kernel"]
        states[row][used] = norm(x, p["encoder"]["final_norm"])[used]
    return states


def parameters(config):
    """Random, norms too."""
    params = build_model(config).init(jax.random.key(0))
    keys = iter(jax.random.split(jax.random.key(1), 100))
    return jax.tree.map(lambda a: a + 0.1 * jax.random.normal(next(keys), a.shape), params)


@pytest.mark.parametrize("config", [MODERNBERT, EUROBERT], ids=lambda c: c.name)
@pytest.mark.parametrize("unroll", [0, 1])
def test_states_are_those_of_the_reference(config, unroll):
    config = config.replace(unroll=unroll)
    batch = batch_of(2, 24, np.random.default_rng(0))
    params = parameters(config)
    h_BLD = build_model(config).encode(params, batch, bidirectional)
    real = batch["pack_ids"] > 0
    np.testing.assert_allclose(
        np.asarray(h_BLD)[real], reference(config, params, batch)[real], rtol=2e-4, atol=2e-4
    )


def test_a_head_of_its_own_projects_on_its_own_table():
    params = parameters(EUROBERT)
    model = build_model(EUROBERT)
    g, table_VD, bias_V = model.vocab_head(params, jnp.ones((1, 24)))
    np.testing.assert_array_equal(table_VD, params["head"]["tokens"]["embedding"])
    assert not bias_V.any() and (g == 1).all()


def test_parameters_are_counted_without_the_norm_that_is_not_there():
    leaves = jax.tree.leaves(build_model(MODERNBERT.replace(vocab_multiple=1)).abstract())
    assert count_parameters(MODERNBERT) == sum(leaf.size for leaf in leaves) - MODERNBERT.dim


WINDOW, LENGTH, HEADS, SIZE = 20, 512, 2, 16


def given(rows=2, length=LENGTH):
    rng = np.random.default_rng(1)
    batch = batch_of(rows, length, rng)
    fields = Fields.from_batch(jax.tree.map(jnp.asarray, batch))
    qkv = [jnp.float32(rng.normal(size=(rows, length, HEADS, SIZE))) for _ in range(3)]
    return fields, qkv, turns_of(batch["position_ids"], SIZE, 100.0)


def whole(fields, qkv, turns):
    """Without blocks: the mask over whole rows."""
    mask = dataclasses.replace(bidirectional & near(WINDOW), window=0)
    return bind(mask, fields, fields, turns=turns)(*qkv)


@pytest.mark.parametrize("backend", ["xla", "chunked"])
@pytest.mark.parametrize("length", [512, 640, 1000])
def test_blocks_see_what_rows_see(backend, length):
    fields, qkv, turns = given(length=length)
    local = bind(bidirectional & near(WINDOW), fields, fields, backend, turns=turns)
    assert local.blocks == {512: 4, 640: 5, 1000: 8}[length]

    def loss(run):
        return lambda qkv: jnp.square(run(qkv)[fields.valid]).sum()

    ours = jax.value_and_grad(loss(lambda qkv: local(*qkv)))(qkv)
    theirs = jax.value_and_grad(loss(lambda qkv: whole(fields, qkv, turns)))(qkv)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), ours, theirs)


@pytest.mark.parametrize("kernels", [flash, flash_gpu], ids=["tpu", "gpu"])
def test_kernels_of_a_window(kernels, monkeypatch):
    fields, qkv, turns = given()
    platform, axis = ("tpu", 2) if kernels is flash else ("gpu", 1)
    monkeypatch.setattr(attention, "_platform", lambda mesh: platform)
    prepared = lambda mask, q, k, mesh: {  # noqa: E731
        "queries": flash.fields_of(q, 1),
        "keys": flash.fields_of(k, axis),
    }
    interpreted = lambda *given: attention._flash(*given, interpret=True)  # noqa: E731
    monkeypatch.setitem(attention._BACKENDS, "flash", (prepared, interpreted))
    local = bind(bidirectional & near(WINDOW), fields, fields, "flash", turns=turns)
    assert local.blocks == 4

    def loss(run):
        return lambda qkv: jnp.square(run(qkv)[fields.valid]).sum()

    ours = jax.value_and_grad(loss(lambda qkv: local(*qkv)))(qkv)
    theirs = jax.value_and_grad(loss(lambda qkv: whole(fields, qkv, turns)))(qkv)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), ours, theirs)


def test_a_row_is_cut_only_where_that_pays():
    cut = {length: blocks_of(length, 128) for length in (128, 384, 512, 1024, 8192, 8191)}
    assert cut == {128: 1, 384: 1, 512: 4, 1024: 8, 8192: 64, 8191: 1}
    assert blocks_of(8192, 0) == 1 and blocks_of(1152, 256) == 9


def test_operations_count_each_kind_of_layer_as_often_as_there_is_one():
    """Of 7 layers 3 or 1 are global: what a global one has more is told by any two counts."""

    def flops(**window):
        config = ModelConfig(
            name="m", layers=7, dim=64, heads=4, ffn=128, vocab_size=512, max_positions=2048,
            dropout=0.0, positions="rotary", norm_order="pre", first_norm=False,
            attention_dropout=0.0, attention_backend="chunked", unroll=1, **window,
        )  # fmt: skip
        model, batch = build_model(config), tiny.batch("mlm", rows=2, length=2048)
        loss = lambda params: MLM().loss(model, params, batch, None, 4).terms["mlm"]  # noqa: E731
        return dot_flops(jax.make_jaxpr(jax.grad(loss))(model.abstract()))

    whole, three, one = flops(), flops(window=128), flops(window=128, global_every=7)
    assert (whole - three) / 4 == pytest.approx((three - one) / 2, rel=1e-6)
    assert one < 0.4 * whole


@pytest.mark.parametrize("classifier", sorted({*CHOICES["classifier"]} - {"decoder"}))
def test_every_classifier_stands_on_a_modern_encoder(classifier):
    changes = {"cross_attention": True} if classifier.startswith("plug_in") else {}
    config = MODERNBERT.replace(
        classifier=classifier, num_labels=2, classifier_transform=True, **changes
    )
    names = {name for name in path_names(build_model(config).abstract()) if "classifier" in name}
    transformed = classifier in ("xlm", "mean", "tagging", "spans")
    assert ("classifier/norm/scale" in names) == transformed
    assert "classifier/out/kernel" in names
