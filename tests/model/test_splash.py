"""The TPU's kernel on meshes of 8 devices, interpreted on CPU: what the backend xla computes,
values and gradients, on packed rows. That a TPU's compiler takes it is held by `test_tpu.py`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlingjax.model import attention
from xlingjax.model.attention import AttentionSpec, Refused, bind
from xlingjax.model.build import build_model
from xlingjax.model.config import preset
from xlingjax.model.masks import Fields, bidirectional, causal
from xlingjax.model.partition import MeshConfig, batch_sharding, make_mesh

SPECS = {
    "bidirectional": AttentionSpec(bidirectional),
    "causal": AttentionSpec(causal & bidirectional, causal=True),
}
MESHES = {
    "data": MeshConfig(8, 1, 1),
    "fsdp": MeshConfig(1, 8, 1),
    "tensor": MeshConfig(2, 1, 4),
    "all": MeshConfig(2, 2, 2),
}


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    monkeypatch.setattr(attention, "_platform", lambda mesh: "tpu")
    interpreted = partial(attention._splash, interpret=True)
    monkeypatch.setitem(attention._BACKENDS, "splash", (attention._prepare_splash, interpreted))


def fields_of(packs):
    return Fields.from_batch({"input_ids": jnp.zeros_like(packs), "pack_ids": jnp.asarray(packs)})


def packs_of(length, rows=8):
    """Rows of one to three examples and padding of unequal width."""
    rng = np.random.default_rng(length)
    packs = np.zeros((rows, length), np.int32)
    for row in range(rows):
        begin = 0
        for number in range(1, 2 + row % 3):
            end = min(begin + int(rng.integers(length // 5, length // 3)), length)
            packs[row, begin:end], begin = number, end
    return packs


def gradients(spec, backend, mesh, qkv, packs, weights):
    """(values, gradients of q, k and v) of the real queries' outputs."""
    q_fields, k_fields = map(fields_of, packs)
    real = (packs[0] > 0)[..., None, None]

    def weighed(q, k, v):
        out = bind(spec, q_fields, k_fields, backend, 0.0, mesh)(q, k, v) * real
        return (out * weights).sum(), out

    (_, out), grads = jax.jit(jax.value_and_grad(weighed, (0, 1, 2), has_aux=True))(*qkv)
    return [np.asarray(x) for x in (out, *grads)]


@pytest.mark.parametrize(
    "spec, lengths, mesh, heads",
    [
        pytest.param("bidirectional", (128, 128), "data", 4, marks=pytest.mark.long),
        pytest.param("causal", (128, 128), "fsdp", 4, marks=pytest.mark.long),
        pytest.param("bidirectional", (128, 256), "tensor", 4, marks=pytest.mark.long),
        (
            "causal",
            (128, 128),
            "tensor",
            3,
        ),  # heads that do not divide by the devices of "tensor": each has them all
        ("bidirectional", (128, 256), "all", 4),
    ],
)
def test_values_and_gradients_are_those_of_xla(spec, lengths, mesh, heads):
    mesh = make_mesh(MESHES[mesh])
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = [(8, length, heads, 8) for length in (lengths[0], lengths[1], lengths[1], lengths[0])]
    *qkv, weights = (jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True))
    packs = [packs_of(length) for length in lengths]
    placed = jax.device_put(qkv, batch_sharding(mesh))
    found = gradients(SPECS[spec], "splash", mesh, placed, packs, weights)
    wanted = gradients(SPECS[spec], "xla", None, qkv, packs, weights)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=3e-5)
        assert np.abs(other).max() > 0.5


def test_a_model_with_a_decoder_has_the_parameters_that_it_has_on_xla():
    """They are made on rows of one token, which the kernel does not take."""
    config = preset("tiny", layers=1, dim=16, heads=2, ffn=32, vocab_size=40, decoder_layers=1)
    fast = config.replace(attention_backend="splash")
    made = [
        jax.eval_shape(build_model(c, make_mesh()).init, jax.random.key(0)) for c in (config, fast)
    ]
    assert made[0] == made[1] == build_model(fast).abstract()


# --- what it refuses ------------------------------------------------------------------------------


def test_rows_that_the_kernel_cannot_take_are_refused():
    fields = {shape: fields_of(np.ones(shape, np.int32)) for shape in ((8, 96), (12, 128))}
    for shape, mesh, message in (
        ((8, 96), None, "takes rows of 128 n tokens, .* not of 96: change LENGTH; use xla"),
        ((12, 128), "data", "cannot spread 12 rows over 8 devices"),
    ):
        with pytest.raises(Refused, match=f"attention backend splash {message}"):
            both = fields[shape], fields[shape]
            bind(SPECS["bidirectional"], *both, "splash", 0.0, mesh and make_mesh(MESHES[mesh]))


@pytest.mark.parametrize("backend", ["cudnn", "splash"])
def test_the_devices_of_the_mesh_count_not_those_of_the_process(backend, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(jax, "default_backend", lambda: {"cudnn": "gpu", "splash": "tpu"}[backend])
    spec = AttentionSpec(bidirectional, packed=False)
    fields = fields_of(np.ones((8, 128), np.int32))
    assert bind(spec, fields, fields, backend).mesh is None
    with pytest.raises(Refused, match=f"{backend} needs .* this is cpu; use xla"):
        bind(spec, fields, fields, backend, 0.0, make_mesh())
