from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlingjax.model import attention as attention_module
from xlingjax.model.attention import AttentionSpec, Refused, bind
from xlingjax.model.layers import dropout
from xlingjax.model.masks import Fields, bidirectional, camlm, causal, partner

PACKS = np.array([[1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 1, 1]], np.int32)
MLM = AttentionSpec(bidirectional)
CLM = AttentionSpec(causal & bidirectional, causal=True)


def fields_of(packs):
    return Fields.from_batch({"input_ids": jnp.zeros_like(packs), "pack_ids": jnp.asarray(packs)})


def random_qkv(shape=(2, 6, 3, 4), dtype=jnp.float32, seed=0):
    return [
        jax.random.normal(key, shape, dtype) for key in jax.random.split(jax.random.key(seed), 3)
    ]


def attend(spec, q, k, v, fields, backend="xla", *, dropout=0.0, key=None):
    """Self-attention over one batch."""
    return bind(spec, fields, fields, backend, dropout)(q, k, v, key)


@pytest.mark.parametrize("spec", [MLM, CLM], ids=["bidirectional", "causal"])
def test_xla_is_softmax_over_the_visible_keys(spec):
    q, k, v = (np.asarray(x, np.float64) for x in random_qkv())
    out = np.asarray(attend(spec, *random_qkv(), fields_of(PACKS)))
    for row, pack in enumerate(PACKS):
        for i in np.flatnonzero(pack):
            keys = [s for s in range(6) if pack[s] == pack[i] and (not spec.causal or s <= i)]
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


def test_cudnn_refuses_dropout_and_shapes_that_it_cannot_take(monkeypatch):
    bound = attention_module.Attention({}, MLM, "cudnn", 0.1)
    with pytest.raises(Refused, match="cudnn has no attention_dropout"):
        bound(*random_qkv(), jax.random.key(0))
    with pytest.raises(Refused, match="a multiple of 8 up to 128, not of 4"):
        bound(*random_qkv(dtype=jnp.bfloat16))
    monkeypatch.setattr(attention_module, "_platform", lambda mesh: "gpu")
    odd = fields_of(PACKS[:, 1:])
    with pytest.raises(Refused, match="cudnn takes rows of an even number of tokens, not of 5"):
        bind(MLM, odd, odd, "cudnn")
    bind(AttentionSpec(bidirectional, packed=False), odd, odd, "cudnn")  # lengths, no bias


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("mask", [bidirectional, causal & bidirectional, camlm, partner])
def test_cudnn_is_given_the_mask_that_xla_computes(monkeypatch, mask, packed):
    """Its arguments, computed by JAX's own reference in its place (cuDNN needs a GPU; see
    test_cudnn.py)."""
    spec = AttentionSpec(mask, causal=mask.name.startswith("(causal"), packed=packed)
    packs = PACKS if packed else np.array([[1, 1, 1, 1, 0, 0], [1] * 6], np.int32)
    batch = {"input_ids": jnp.zeros_like(packs), "pack_ids": jnp.asarray(packs)}
    batch["sides"] = jnp.array([[0, 1, 1, 0, 1, 0], [0, 0, 0, 1, 1, 1]])
    batch["is_mask"] = jnp.array([[0, 1, 0, 0, 1, 0], [0, 1, 0, 0, 1, 0]])
    fields = Fields.from_batch(batch)
    q, k, v = random_qkv((2, 6, 3, 8), jnp.bfloat16)
    monkeypatch.setattr(attention_module, "_platform", lambda mesh: "gpu")
    reference = partial(jax.nn.dot_product_attention, implementation="xla")
    monkeypatch.setattr(
        jax.nn, "dot_product_attention", lambda *x, implementation, **more: reference(*x, **more)
    )
    out = np.asarray(attend(spec, q, k, v, fields, "cudnn"), np.float32)
    want = np.asarray(attend(spec, q, k, v, fields), np.float32)
    real = packs > 0
    np.testing.assert_allclose(out[real], want[real], atol=0.03)
    by_lengths = not packed and mask.name in (bidirectional.name, (causal & bidirectional).name)
    assert ("bias_B1LS" in bind(spec, fields, fields, "cudnn").arrays) != by_lengths


@pytest.mark.parametrize(
    ("packs", "honest"),
    [
        ([1, 1, 1, 0], True),
        ([1, 1, 1, 1], True),
        ([0, 0, 0, 0], True),
        ([1, 1, 2, 2], False),
        ([0, 1, 1, 1], False),
    ],
)
def test_a_broken_promise_of_unpacked_rows_poisons_the_output(packs, honest):
    poison = attention_module._poison(fields_of(np.array([packs, [1, 1, 1, 1]])))
    assert bool(np.isfinite(poison)) is honest
