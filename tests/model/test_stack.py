"""The stack compiled in every way is one function of one tree of parameters; the cross-attention
slot only adds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import tiny
from xlingjax.model.attention import bind
from xlingjax.model.block import Block
from xlingjax.model.config import preset
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import Fields, bidirectional
from xlingjax.model.partition import MeshConfig, batch_sharding, make_mesh, param_shardings

BATCH = tiny.batch("mlm", rows=2, length=8)
SPEC = bidirectional
CONFIG = preset(
    "tiny",
    layers=3,
    dim=16,
    heads=2,
    ffn=32,
    vocab_size=tiny.VOCAB,
    max_positions=16,
    dropout=0.1,
    unroll=1,
)


def shapes(config):
    leaves = jax.tree_util.tree_leaves_with_path(Encoder(config).abstract())
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf.shape for path, leaf in leaves
    }


@pytest.fixture(scope="module")
def params():
    return tiny.params(Encoder(CONFIG))


def value_and_grad(config, params):
    model = Encoder(config)

    def loss(params):
        h_BLD = model.encode(params, BATCH, SPEC, rng=jax.random.key(1))
        return jnp.square(h_BLD[..., :3]).sum() + h_BLD[:, 1].sum()

    return jax.jit(jax.value_and_grad(loss))(params)


@pytest.fixture(scope="module")
def scanned(params):
    return value_and_grad(CONFIG, params)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(dict(unroll=0), marks=pytest.mark.long),
        dict(remat="full"),
        pytest.param(dict(unroll=0, remat="dots"), marks=pytest.mark.long),
    ],
    ids=str,
)
def test_unrolled_and_rematerialised_stacks_equal_the_scanned_one(params, scanned, change):
    assert shapes(CONFIG.replace(**change)) == shapes(CONFIG)
    value, grads = value_and_grad(CONFIG.replace(**change), params)
    np.testing.assert_allclose(value, scanned[0], rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), grads, scanned[1])


def test_remat_recomputes():
    def products(remat):
        model = Encoder(CONFIG.replace(remat=remat, unroll=0, layers=1))
        loss = jax.grad(lambda params: model.encode(params, BATCH, SPEC).sum())
        return str(jax.make_jaxpr(loss)(model.abstract())).count("dot_general")

    assert products("full") > products("dots") > products("none")


def test_layers_are_stacked_and_start_differently():
    kernels = jax.jit(Encoder(CONFIG).init)(jax.random.key(0))["encoder"]["layers"]["attention"][
        "query"
    ]["kernel"]
    assert kernels.shape == (3, 16, 2, 8)
    assert np.abs(kernels[0] - kernels[1]).max() > 0.1
    assert shapes(CONFIG)["encoder/layers/ffn/out/kernel"] == (3, 32, 16)
    assert not any("final_norm" in path for path in shapes(CONFIG))
    assert shapes(CONFIG.replace(norm_order="pre"))["encoder/final_norm/scale"] == (16,)


def test_each_layer_draws_its_own_dropout():
    """Layers of identity but for dropout: were the masks equal, the second layer would drop nothing
    new."""
    config = CONFIG.replace(norm_order="pre", dropout=0.5, layers=2)
    model = Encoder(config)
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), model.abstract())
    params["encoder"]["layers"]["ffn"]["out"]["bias"] = jnp.ones((2, 16))
    params["embeddings"]["norm"]["scale"] = jnp.zeros(16)
    drawn = jax.jit(lambda p: model.encode(p, BATCH, SPEC, rng=jax.random.key(3), all_layers=True))
    h_NBLD = drawn(params)
    first = np.asarray(h_NBLD[1] - h_NBLD[0])
    params["encoder"]["final_norm"]["scale"] = jnp.ones(16)
    last = np.asarray(drawn(params)[-1])
    assert set(np.unique(first)) == {0.0, 2.0}
    assert len(np.unique(last.round(3))) > 2  # sums 0, 2 and 4 all occur in a row


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_cross_attention_slot_adds_its_own_leaves_only(norm_order):
    plain = CONFIG.replace(norm_order=norm_order)
    slotted = plain.replace(cross_attention=True)
    before, after = shapes(plain), shapes(slotted)
    added = {path: shape for path, shape in after.items() if path not in before}
    assert {path: after[path] for path in before} == before
    assert set(added) == {
        f"encoder/layers/cross_attention/{leaf}"
        for leaf in (
            *(
                f"attention/{name}/{part}"
                for name in ("query", "key", "value", "out")
                for part in ("kernel", "bias")
            ),
            "norm/scale",
            "norm/bias",
        )
    }
    assert all(shape[0] == plain.layers for shape in added.values())
    # Plugged out, with the same parameters, it is the plain block.
    params = tiny.params(Encoder(slotted))
    without = jax.tree.map(lambda x: x, params)
    del without["encoder"]["layers"]["cross_attention"]
    encode = lambda config, p: jax.jit(lambda p: Encoder(config).encode(p, BATCH, SPEC))(p)  # noqa: E731
    np.testing.assert_array_equal(encode(slotted, params), encode(plain, without))


@pytest.mark.parametrize("norm_order", ["post", pytest.param("pre", marks=pytest.mark.long)])
def test_cross_attention_reads_the_memory_it_may_see(norm_order):
    config = CONFIG.replace(cross_attention=True, norm_order=norm_order)
    block = Block(config)
    x_BLD, memory_BSD = jax.random.normal(jax.random.key(0), (2, 1, 4, 16))
    memory_BSD = jnp.concatenate([memory_BSD, memory_BSD[:, :1]], axis=1)  # 5 keys, 4 queries

    def fields(packs):
        packs = jnp.array([packs])
        return Fields.from_batch({"input_ids": packs * 0, "pack_ids": packs})

    queries, keys = fields([1, 1, 1, 1]), fields([1, 1, 1, 1, 0])
    own, cross = bind(SPEC, queries, queries), bind(SPEC, queries, keys)
    params = jax.jit(lambda: block.init(jax.random.key(1), x_BLD, None, own, (memory_BSD, cross)))()
    apply = jax.jit(lambda memory: block.apply(params, x_BLD, None, own, memory)[0])
    out = apply((memory_BSD, cross))
    hidden = apply((memory_BSD.at[:, 4].add(1.0), cross))
    seen = apply((memory_BSD.at[:, 2].add(1.0), cross))
    np.testing.assert_array_equal(out, hidden)
    assert (np.abs(out - seen).max(-1) > 1e-4).all()
    assert np.abs(out - apply(None)).max() > 1e-2


@pytest.mark.long
def test_rows_stay_on_their_devices_when_parameters_are_split():
    """fsdp=8: each device gathers kernels, not the states of others' rows; the result is one
    device's."""
    config = CONFIG.replace(layers=2, dim=32, heads=4, vocab_size=128, dropout=0.0)
    batch = tiny.batch("mlm", rows=32, length=16)
    states = 32 * 16 * 32
    mesh = make_mesh(MeshConfig(data=1, fsdp=8))
    rows = batch_sharding(mesh)

    def gradient(model):
        return jax.grad(
            lambda params, batch: jnp.square(model.encode(params, batch, SPEC)[..., :3]).sum()
        )

    model = Encoder(config, mesh)
    params = tiny.params(model)
    shardings = param_shardings(mesh, model.logical_axes(), model.abstract())
    step = jax.jit(gradient(model), in_shardings=(shardings, rows), out_shardings=shardings)
    text = step.lower(params, batch).compile().as_text()
    moved = [
        [int(n) for n in line.split("[")[1].split("]")[0].split(",") if n]
        for line in text.splitlines()
        if any(
            f" {name}(" in line
            for name in ("all-gather", "all-to-all", "all-reduce", "collective-permute")
        )
    ]
    assert [32, 64] in moved or [64, 32] in moved or [32, 32] in moved  # kernels are gathered
    assert max(np.prod(shape) for shape in moved) < states
    one = jax.jit(gradient(Encoder(config)))(params, batch)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
        step(params, batch),
        one,
    )
