"""What is written out in place of the backward pass that JAX derives, beside its own functions: the
same numbers, and less of the forward pass kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlingjax.model import layers
from xlingjax.model.weighted_sum import weighted_sum

# Of half precision: a few of its last digits.
CLOSE = {"float32": 1e-6, "bfloat16": 1e-2, "float16": 2e-3}
dtypes = pytest.mark.parametrize("dtype", CLOSE)


def normal(seed, shape, dtype="float32", scale=1.0):
    return (scale * jax.random.normal(jax.random.key(seed), shape)).astype(dtype)


def same(ours, theirs, arguments, dtype):
    """Values and all gradients, beside those that JAX derives in float32."""
    wide = jax.tree.map(lambda x: x.astype(jnp.float32), arguments)
    found, backward = jax.vjp(ours, *arguments)
    wanted, their_backward = jax.vjp(theirs, *wide)
    cotangent = normal(9, found.shape, dtype)
    pairs = [(found, wanted)]
    pairs += zip(backward(cotangent), their_backward(cotangent.astype(jnp.float32)), strict=True)
    for one, other in pairs:
        error = np.abs(np.asarray(one, np.float32) - np.asarray(other)).max()
        assert error < CLOSE[dtype] * max(1.0, np.abs(np.asarray(other)).max())


def kept(function, *arguments):
    """Shapes and types of what the forward pass hands to the backward pass."""
    leaves = jax.tree.leaves(jax.eval_shape(lambda *a: jax.vjp(function, *a)[1], *arguments))
    return sorted((leaf.shape, leaf.dtype.name) for leaf in leaves if leaf.size > 1)


@dtypes
def test_layer_norm(dtype):
    eps = 1e-5

    def ours(x, scale, bias):
        return layers._normalised(x, scale, bias, eps, dtype)

    def theirs(x, scale, bias):
        return jax.nn.standardize(x, axis=-1, epsilon=eps) * scale + bias

    x, scale = normal(0, (2, 5, 64), dtype, 3.0) + 1, normal(1, (64,))
    same(ours, theirs, (x, scale, normal(2, (64,))), dtype)
    found = kept(ours, x, scale, scale)
    assert found == [((2, 5, 64), dtype), ((64,), "float32")]


@dtypes
def test_gelu(dtype):
    x = normal(0, (1000,), dtype, 3.0)
    same(layers._exact_gelu, lambda x: jax.nn.gelu(x, approximate=False), (x,), dtype)
    assert kept(layers._exact_gelu, x) == [((1000,), dtype)]


@dtypes
@pytest.mark.parametrize("rate", [0.0, 0.25])
@pytest.mark.parametrize("axes", ["BSHK", "BHSK"])
def test_what_scores_make_of_values(dtype, rate, axes):
    sizes = {"B": 2, "S": 12, "H": 3, "K": 4}
    s_BHLS = normal(0, (2, 3, 8, 12), scale=2.0)
    v = normal(1, tuple(sizes[axis] for axis in axes), dtype)
    keeps = None
    if rate:
        keeps = layers.dropout_keeps(s_BHLS.shape, rate, jax.random.key(2))
        assert 0.6 < keeps.mean() < 0.9

    def theirs(s_BHLS, v):
        p_BHLS = jax.nn.softmax(s_BHLS)
        if rate:
            p_BHLS = p_BHLS * keeps / (1 - rate)
        return jnp.einsum(f"BHLS,{axes}->BLHK", p_BHLS, v)

    same(lambda s, v: weighted_sum(s, v, keeps, rate, axes), theirs, (s_BHLS, v), dtype)
    found = kept(lambda s, v: weighted_sum(s, v, keeps, rate, axes), s_BHLS, v)
    wanted = [(s_BHLS.shape, dtype), (v.shape, dtype)]
    if rate:
        wanted.append((s_BHLS.shape, "bool"))
    assert found == sorted(wanted)


@dtypes
def test_scores_of_a_row_gain_nothing_together(dtype):
    """More of all of them changes no weight. Even weights of 12 keys are rounded in 16 bits, all to
    one side."""
    s_BHLS, v = jnp.zeros((1, 2, 3, 12)), jnp.ones((1, 12, 2, 4), dtype)
    _, backward = jax.vjp(lambda s: weighted_sum(s, v, None, 0.0, "BSHK"), s_BHLS)
    (ds_BHLS,) = backward(jnp.ones((1, 3, 2, 4), dtype))
    assert np.abs(ds_BHLS).max() < 1e-6
