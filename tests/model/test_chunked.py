"""Attention in blocks of queries: what the backend xla computes, values and gradients, under every
mask of the papers, on a mesh too; dropout; less memory by XLA's own account."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.model.test_flash import MASKS, assert_is_xla, fields_of, gradients, qkv_of
from xlingjax.model import chunked, masks
from xlingjax.model.attention import Refused, bind
from xlingjax.model.masks import Fields
from xlingjax.model.partition import MeshConfig, batch_sharding, make_mesh


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(chunked, "BLOCK", 32)


def cut(fields, length):
    return jax.tree.map(lambda x: x[:, :length], fields)


@pytest.mark.parametrize("name", MASKS)
def test_values_and_gradients_are_those_of_xla(name):
    assert_is_xla("chunked", MASKS[name])


@pytest.mark.parametrize(
    ("lengths", "sizes"), [((128, 256), (2, 2, 2)), ((256, 128), (1, 8, 1)), ((96, 128), (2, 1, 4))]
)
def test_on_meshes_and_to_other_keys(lengths, sizes):
    mesh = make_mesh(MeshConfig(*sizes))
    fields = [cut(fields_of(256, seed), n) for seed, n in enumerate(lengths)]
    qkv, weights = qkv_of(*lengths)
    mask = masks.bidirectional
    placed = jax.device_put(qkv, batch_sharding(mesh))
    found = gradients("chunked", mask, fields, placed, weights, mesh)
    for one, other in zip(found, gradients("xla", mask, fields, qkv, weights), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    # Dropout is the same on every mesh.
    key = jax.random.key(3)
    here = gradients("chunked", mask, fields, qkv, weights, None, 0.2, key)
    there = gradients("chunked", mask, fields, placed, weights, mesh, 0.2, key)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_dropout_has_its_rate_and_is_another_in_each_block():
    """Seen through values that are a unit matrix: even weights, of which those that stay keep the
    mean."""
    length, rate = 128, 0.1
    ones = {name: jnp.ones((4, length), int) for name in ("input_ids", "pack_ids")}
    fields = Fields.from_batch(ones)
    q = jnp.zeros((4, length, 4, length))
    unit = jnp.broadcast_to(jnp.eye(length)[None, :, None], q.shape)
    bound = bind(masks.full, fields, fields, "chunked", rate)
    weights = np.asarray(bound(q, q, unit, jax.random.key(0))).transpose(0, 2, 1, 3) * length
    np.testing.assert_allclose(weights[weights > 0], 1 / (1 - rate), rtol=1e-4)
    dropped = weights == 0
    assert dropped.mean() == pytest.approx(rate, abs=4 * np.sqrt(rate / dropped.size))
    rows = {row.tobytes() for row in dropped.reshape(-1, length)}
    assert len(rows) > 0.999 * dropped.size / length
    # Both passes drop the same: the gradient of the values is what they were weighed by.
    _, pull = jax.vjp(lambda v: bound(q, q, v, jax.random.key(0)), unit)
    back = np.asarray(pull(unit)[0]).transpose(0, 2, 3, 1) * length
    np.testing.assert_allclose(back, weights, atol=1e-4)


def test_a_training_step_takes_less_memory(monkeypatch):
    """By XLA: scores of a block in place of all, forward and backward."""
    monkeypatch.undo()
    fields = [fields_of(512, 1)] * 2
    qkv, weights = qkv_of(512, 512)

    def taken(backend):
        def weighed(q, k, v):
            bound = bind(masks.camlm, *fields, backend, 0.1)
            return (bound(q, k, v, jax.random.key(0)) * weights).sum()

        step = jax.jit(jax.grad(weighed, (0, 1, 2))).lower(*qkv).compile()
        return step.memory_analysis().temp_size_in_bytes

    assert taken("chunked") < 0.5 * taken("xla")


def test_rows_that_no_block_divides_are_refused():
    assert [chunked.block_of(n) for n in (20, 32, 96, 512, 154)] == [20, 32, 32, 32, 0]
    fields = cut(fields_of(256, 1), 154)
    with pytest.raises(Refused, match="not of 154: change LENGTH"):
        bind(masks.full, fields, fields, "chunked")
