import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlingjax.model.attention import bind
from xlingjax.model.layers import dropout
from xlingjax.model.masks import Fields, bidirectional, causal

PACKS = np.array([[1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 1, 1]], np.int32)
MLM = bidirectional
CLM = causal & bidirectional


def fields_of(packs):
    return Fields.from_batch({"input_ids": jnp.zeros_like(packs), "pack_ids": jnp.asarray(packs)})


def random_qkv(shape=(2, 6, 3, 4), dtype=jnp.float32, seed=0):
    return [
        jax.random.normal(key, shape, dtype) for key in jax.random.split(jax.random.key(seed), 3)
    ]


def attend(mask, q, k, v, fields, backend="xla", *, dropout=0.0, key=None):
    """Self-attention over one batch."""
    return bind(mask, fields, fields, backend, dropout)(q, k, v, key)


@pytest.mark.parametrize("mask", [MLM, CLM], ids=["bidirectional", "causal"])
def test_xla_is_softmax_over_the_visible_keys(mask):
    q, k, v = (np.asarray(x, np.float64) for x in random_qkv())
    out = np.asarray(attend(mask, *random_qkv(), fields_of(PACKS)))
    for row, pack in enumerate(PACKS):
        for i in np.flatnonzero(pack):
            keys = [s for s in range(6) if pack[s] == pack[i] and (mask is MLM or s <= i)]
            for head in range(3):
                score = np.exp([q[row, i, head] @ k[row, s, head] / 2 for s in keys])
                want = score / score.sum() @ v[row, keys, head]
                np.testing.assert_allclose(out[row, i, head], want, atol=1e-6)
    assert np.isfinite(out).all()


def test_softmax_is_float32_in_bfloat16():
    q, k, v = random_qkv(dtype=jnp.bfloat16)
    out = attend(MLM, q, k, v, fields_of(PACKS))
    want = attend(MLM, *(x.astype(jnp.float32) for x in (q, k, v)), fields_of(PACKS))
    assert out.dtype == jnp.bfloat16
    assert np.abs(np.asarray(out, np.float32) - want).max() < 0.03
    text = jax.jit(lambda *x: attend(MLM, *x, fields_of(PACKS))).lower(q, k, v).as_text()
    assert any("exponential" in line and "f32" in line for line in text.splitlines())
    assert not any("exponential" in line and "bf16" in line for line in text.splitlines())


def test_attention_dropout_keeps_the_mean_and_needs_a_key():
    q, k, v = random_qkv((2, 6, 3, 4))
    plain = attend(MLM, q, k, v, fields_of(PACKS))
    np.testing.assert_array_equal(attend(MLM, q, k, v, fields_of(PACKS), dropout=0.5), plain)
    draws = jax.vmap(lambda key: attend(MLM, q, k, v, fields_of(PACKS), dropout=0.5, key=key))(
        jax.random.split(jax.random.key(1), 4000)
    )
    assert np.abs(draws[0] - plain).max() > 0.1
    np.testing.assert_allclose(draws.mean(0), plain, atol=0.12)


@pytest.mark.parametrize("size", [64, 63])
def test_dropout_rate_scale_and_independence(size):
    x = jnp.full((500, 2, size), 3.0)
    y = np.asarray(dropout(x, 0.1, jax.random.key(0)))
    kept = y != 0
    assert abs(kept.mean() - 0.9) < 4 * np.sqrt(0.09 / y.size)
    np.testing.assert_allclose(y[kept], 3 / 0.9, rtol=1e-4)
    first, second = kept[..., 0], kept[..., (size + 1) // 2]  # the two halves of one random word
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.12
    assert dropout(x, 0.0, jax.random.key(0)) is x
    assert dropout(x, 0.1, None) is x
