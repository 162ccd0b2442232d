import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import numpy_transformer as reference
from tests.helpers import tiny
from xlingjax.errors import UserError
from xlingjax.model.config import preset
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import bidirectional, causal

MLM = bidirectional
SMALL = dict(
    layers=2,
    dim=16,
    heads=2,
    ffn=32,
    vocab_size=tiny.VOCAB,
    max_positions=20,
    num_languages=3,
    dropout=0.0,
    attention_dropout=0.0,
    unroll=1,
)
XLM = preset("xlm_15", **SMALL)
XLMR = preset("xlmr_base", **{**SMALL, "num_languages": 0})


def random_params(config, seed=0):
    """No parameter at 0 or 1, so that each one counts."""
    return tiny.params(Encoder(config), seed, noise=0.2)


@functools.partial(jax.jit, static_argnums=(0, 3), static_argnames="all_layers")
def encode(config, params, batch, mask=MLM, all_layers=False):
    """One compilation instead of one per operation, and for all tests of a config."""
    return Encoder(config).encode(params, batch, mask, all_layers=all_layers)


def init(config):
    return jax.jit(Encoder(config).init)(jax.random.key(0))


@pytest.mark.parametrize(
    ("config", "is_causal"),
    [
        (XLM, False),
        (XLM, True),
        (XLMR, False),
        (XLMR.replace(norm_order="pre", activation="gelu_tanh"), True),
    ],
    ids=["xlm", "xlm-causal", "xlmr", "pre-tanh-causal"],
)
def test_states_equal_a_numpy_transformer(config, is_causal):
    params, batch = random_params(config), tiny.batch("tlm", rows=3, length=12)
    batch["pack_ids"][0, 7:] = 2
    mask = (causal & bidirectional) if is_causal else MLM
    h_BLD = np.asarray(encode(config, params, batch, mask))
    want = reference.encode(config, params, batch, causal=is_causal)
    real = batch["pack_ids"] > 0
    np.testing.assert_allclose(h_BLD[real], want[real], atol=2e-5)
    assert np.isfinite(h_BLD).all()


def test_positions_begin_at_the_offset_and_padding_takes_the_row_below():
    params, batch = random_params(XLMR), tiny.batch("mlm", rows=2, length=12)
    first = lambda p: Encoder(XLMR).encode(p, batch, MLM, all_layers=True)[0, :, :, 0].sum()  # noqa: E731
    grads = jax.jit(jax.grad(first))(params)
    rows = np.abs(np.asarray(grads["embeddings"]["positions"]["embedding"])).sum(-1) > 0
    assert np.flatnonzero(rows).tolist() == [1, *range(2, 14)]
    batch["position_ids"] = batch["position_ids"].copy()
    batch["position_ids"][batch["pack_ids"] == 0] = 7  # what stands under padding is not read
    np.testing.assert_array_equal(
        encode(XLMR, params, batch),
        encode(
            XLMR, params, {**batch, "position_ids": batch["position_ids"] * (batch["pack_ids"] > 0)}
        ),
    )


def test_all_layers_begin_with_the_embeddings_and_end_with_the_states():
    for config in (XLM, XLM.replace(norm_order="pre")):
        params, batch = random_params(config), tiny.batch("mlm", rows=2, length=12)
        h_NBLD = encode(config, params, batch, all_layers=True)
        assert h_NBLD.shape == (3, 2, 12, 16)
        np.testing.assert_allclose(h_NBLD[-1], encode(config, params, batch), atol=1e-6)
        token = params["embeddings"]["tokens"]["embedding"][batch["input_ids"][0, 3]]
        x = token + params["embeddings"]["positions"]["embedding"][batch["position_ids"][0, 3]]
        x = np.asarray(
            x + params["embeddings"]["languages"]["embedding"][batch["language_ids"][0, 3]]
        )
        want = reference.layer_norm(x, params["embeddings"]["norm"], config.norm_eps)
        np.testing.assert_allclose(h_NBLD[0, 0, 3], want, atol=1e-5)


def test_initial_values_are_those_of_the_papers():
    big = dict(dim=64, heads=2, ffn=256, vocab_size=4000)
    xlm, xlmr = init(XLM.replace(**big)), init(XLMR.replace(**big))
    np.testing.assert_allclose(xlm["embeddings"]["tokens"]["embedding"].std(), 64**-0.5, rtol=0.02)
    np.testing.assert_allclose(xlmr["embeddings"]["tokens"]["embedding"].std(), 0.02, rtol=0.02)
    np.testing.assert_allclose(
        xlmr["encoder"]["layers"]["ffn"]["in"]["kernel"].std(), 0.02, rtol=0.03
    )
    for path, fan_in in ((("ffn", "in"), 64), (("ffn", "out"), 256), (("attention", "out"), 64)):
        kernel = xlm["encoder"]["layers"][path[0]][path[1]]["kernel"]
        assert 0.98 * fan_in**-0.5 < np.abs(kernel).max() <= fan_in**-0.5
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(xlm)} == {"float32"}
    assert np.abs(xlm["head"]["bias"]).max() == 0


def test_bfloat16_computes_in_it_and_keeps_float32_parameters():
    config = XLM.replace(dtype="bfloat16")
    params, batch = random_params(XLM), tiny.batch("mlm", rows=2, length=12)
    h_BLD = encode(config, params, batch)
    assert h_BLD.dtype == jnp.bfloat16
    exact = np.asarray(encode(XLM, params, batch))
    real = batch["pack_ids"] > 0
    assert 1e-4 < np.abs(np.asarray(h_BLD, np.float32) - exact)[real].max() < 0.3
    grads = jax.eval_shape(
        jax.grad(lambda p: encode(config, p, batch).astype(jnp.float32).sum()), params
    )
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(grads)} == {"float32"}


def test_rows_over_the_position_table_are_refused():
    batch = tiny.batch("mlm", rows=2, length=19)
    params = Encoder(XLM).abstract()
    assert jax.eval_shape(lambda p: Encoder(XLM).encode(p, batch, MLM), params).shape == (2, 19, 16)
    with pytest.raises(
        UserError, match="rows of 19 tokens do not fit model xlmr_base: its position table takes 18"
    ):
        Encoder(XLMR).encode(params, batch, MLM)


def test_ids_outside_the_tables_give_nan_not_a_neighbour():
    params, batch = random_params(XLM), tiny.batch("mlm", rows=2, length=12)
    batch["language_ids"] = batch["language_ids"] + 3
    assert np.isnan(np.asarray(encode(XLM, params, batch))).any()
