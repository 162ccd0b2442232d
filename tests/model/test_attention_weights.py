"""The weights that a pass computes with, beside NumPy's from the model's own projections."""

import math

import jax
import numpy as np
import pytest

from tests.helpers import numpy_transformer as transformer
from tests.helpers.reference import CONFIG, make_batch, random_model
from xlingjax.errors import UserError
from xlingjax.model.attention import AttentionSpec, Refused
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import bidirectional, own_side, partner

PRE = CONFIG.replace(norm_order="pre", cross_attention=False, word_recovery=False)


def layer_of(params, layer):
    stacked = params["encoder"]["layers"]
    return jax.tree.map(lambda x: np.float64(x[layer]), stacked)


def shares(x, memory, p, allowed):
    """float64 [H, L, S]: softmax of q.k / sqrt(K) over the keys that are allowed [L, S]."""
    q, k = (
        np.einsum("LD,DHK->HLK", y, p[name]["kernel"]) + p[name]["bias"][:, None]
        for name, y in (("query", x), ("key", memory))
    )
    scores = np.einsum("HLK,HSK->HLS", q, k) / math.sqrt(q.shape[-1])
    scores = np.where(allowed, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def of_side(batch, row, own):
    """[L, L]: the key is of the query's example, and of its own or of the other side."""
    pack, side = batch["pack_ids"][row], batch["sides"][row]
    alike = side[:, None] == side
    if not own:
        alike = ~alike
    return (pack[:, None] == pack) & (pack > 0) & alike


@pytest.mark.parametrize("config", [CONFIG, PRE], ids=["post", "pre"])
def test_self_attention_equals_numpy_in_every_layer(config):
    model, params = random_model(config)
    batch = make_batch("veco")
    spec = AttentionSpec(bidirectional)
    found = jax.jit(lambda b: model.attention_weights(params, b, spec))(batch)
    assert {*found} == {"self-attention"}
    weights = np.asarray(found["self-attention"], np.float64)
    rows, length = batch["input_ids"].shape
    assert weights.shape == (config.layers, rows, config.heads, length, length)
    states = jax.jit(lambda b: model.encode(params, b, spec, all_layers=True))(batch)
    for layer in range(config.layers):
        p = layer_of(params, layer)
        for row in range(rows):
            x = np.asarray(states[layer, row], np.float64)
            if config.norm_order == "pre":
                x = transformer.layer_norm(x, p["attention_norm"], config.norm_eps)
            real = batch["pack_ids"][row] > 0
            allowed = batch["pack_ids"][row][:, None] == batch["pack_ids"][row]
            want = shares(x, x, p["attention"], allowed)[:, real]
            got = weights[layer, row][:, real]
            np.testing.assert_allclose(got, want, atol=2e-6)
            np.testing.assert_allclose(got.sum(-1), 1, atol=1e-6)
            # Padding, and the other example of the row: nothing at all.
            assert not got[np.broadcast_to(~allowed[real], got.shape)].any()
    assert np.abs(weights[0] - weights[1]).max() > 0.05
    assert np.abs(weights[:, :, 0] - weights[:, :, 1]).max() > 0.05


def test_cross_attention_equals_numpy_and_sees_the_partner_alone():
    model, params = random_model()
    batch = make_batch("veco")
    own, across = AttentionSpec(own_side), AttentionSpec(partner)

    def both(batch):
        h_BLD = model.encode(params, batch, own)
        memory = (h_BLD, across)
        return (
            h_BLD,
            model.encode(params, batch, own, all_layers=True, memory=memory),
            model.attention_weights(params, batch, own, memory=memory),
        )

    h_BLD, states, found = jax.tree.map(np.asarray, jax.jit(both)(batch))
    assert {*found} == {"self-attention", "cross-attention"}
    for layer in range(CONFIG.layers):
        p = layer_of(params, layer)
        for row in range(len(h_BLD)):
            real = batch["pack_ids"][row] > 0
            seen = of_side(batch, row, own=True)
            x = np.float64(states[layer, row])
            want = shares(x, x, p["attention"], seen | np.eye(len(x), dtype=bool))
            got = found["self-attention"][layer, row]
            np.testing.assert_allclose(got[:, real], want[:, real], atol=2e-6)
            # The queries come from the layer's own self-attention (VECO §2.2).
            x = x + transformer.attention(x, p["attention"], lambda i, s, seen=seen: seen[i, s])
            x = transformer.layer_norm(x, p["attention_norm"], CONFIG.norm_eps)
            allowed = of_side(batch, row, own=False)
            assert allowed[real].any(1).all()
            slot = p["cross_attention"]["attention"]
            want = shares(x, np.float64(h_BLD[row]), slot, allowed | np.diag(~real))
            got = found["cross-attention"][layer, row]
            np.testing.assert_allclose(got[:, real], want[:, real], atol=3e-6)
            np.testing.assert_allclose(got[:, real].sum(-1), 1, atol=1e-6)
            assert not got[:, real][np.broadcast_to(~allowed[real], got[:, real].shape)].any()


def test_a_query_without_self_attention_has_none():
    model, params = random_model(CONFIG.replace(cross_attention_query="input"))
    batch = make_batch("veco")
    own, across = AttentionSpec(own_side), AttentionSpec(partner)
    memory = (np.ones((*batch["input_ids"].shape, CONFIG.dim), np.float32), across)
    found = jax.eval_shape(lambda b: model.attention_weights(params, b, own, memory=memory), batch)
    assert {*found} == {"cross-attention"}


def test_what_cannot_be_looked_at_is_refused():
    model, params = random_model()
    batch = make_batch("veco", packed=False)
    spec = AttentionSpec(bidirectional)
    blocks = {name: np.tile(values, (1, 3))[:, :32] for name, values in batch.items()}
    chunked = Encoder(CONFIG.replace(attention_backend="chunked", max_positions=40))
    with pytest.raises(Refused, match="backend chunked keeps no weights; use xla"):
        jax.eval_shape(lambda b: chunked.attention_weights(chunked.abstract(), b, spec), blocks)
    plain = Encoder(CONFIG.replace(cross_attention=False))
    with pytest.raises(UserError, match="has no cross_attention"):
        plain.attention_weights(params, batch, spec, memory=(np.zeros(1), spec))
