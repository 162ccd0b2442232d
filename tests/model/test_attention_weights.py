"""The weights that a pass computes with, beside NumPy's from the model's own projections."""

import math

import jax
import numpy as np
import pytest

from tests.helpers import numpy_transformer as transformer
from tests.helpers.reference import CONFIG, make_batch, random_model
from xlingjax.errors import UserError
from xlingjax.model.attention import Refused
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


@pytest.mark.parametrize("config", [CONFIG, PRE], ids=["post", "pre"])
def test_self_attention_equals_numpy_in_every_layer(config):
    model, params = random_model(config)
    batch = make_batch("veco")
    found = jax.jit(lambda b: model.attention_weights(params, b, bidirectional))(batch)
    assert {*found} == {"self-attention"}
    weights = np.asarray(found["self-attention"], np.float64)
    rows, length = batch["input_ids"].shape
    assert weights.shape == (config.layers, rows, config.heads, length, length)
    states = jax.jit(lambda b: model.encode(params, b, bidirectional, all_layers=True))(batch)
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


def test_cross_attention_sees_the_partner_alone():
    model, params = random_model()
    batch = make_batch("veco")
    own, across = own_side, partner

    def weights(batch):
        memory = (model.encode(params, batch, own), across)
        return model.attention_weights(params, batch, own, memory=memory)

    found = jax.tree.map(np.asarray, jax.jit(weights)(batch))
    assert {*found} == {"self-attention", "cross-attention"}
    pack, side = batch["pack_ids"], batch["sides"]
    same_pack = (pack[:, :, None] == pack[:, None]) & (pack > 0)[:, None]
    same_side = side[:, :, None] == side[:, None]
    for name, seen in (("self-attention", same_side), ("cross-attention", ~same_side)):
        # Of real queries; those of padding see themselves.
        shown = (found[name] > 0).transpose(1, 3, 0, 2, 4)[pack > 0]
        want = (same_pack & seen)[pack > 0]
        np.testing.assert_array_equal(shown, np.broadcast_to(want[:, None, None], shown.shape))
        np.testing.assert_allclose(found[name].sum(-1), 1, atol=1e-6)


def test_what_cannot_be_looked_at_is_refused():
    model, params = random_model()
    batch = make_batch("veco", packed=False)
    blocks = {name: np.tile(values, (1, 3))[:, :32] for name, values in batch.items()}
    chunked = Encoder(CONFIG.replace(attention_backend="chunked", max_positions=40))
    with pytest.raises(Refused, match="backend chunked keeps no weights; use xla"):
        jax.eval_shape(
            lambda b: chunked.attention_weights(chunked.abstract(), b, bidirectional), blocks
        )
    plain = Encoder(CONFIG.replace(cross_attention=False))
    with pytest.raises(UserError, match="has no cross_attention"):
        plain.attention_weights(params, batch, bidirectional, memory=(np.zeros(1), bidirectional))
