"""The decoder sees its past, the source of its own example, and nothing else; what is shared is one
array."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import tiny
from xlingjax.model.config import preset
from xlingjax.model.masks import bidirectional
from xlingjax.model.seq2seq import Seq2Seq

SOURCE, TARGET, VOCAB = 6, 5, 30
KINDS = {
    "shared": {},
    "separate": {"decoder_embeddings": "separate", "head": "transform", "norm_order": "pre"},
    "tied": {"tied_self_attention": True, "head": "plain", "embedding_scale": True},
}


def config_of(kind):
    sizes = dict(
        layers=3, decoder_layers=2, dim=16, heads=2, ffn=24, vocab_size=VOCAB, vocab_multiple=1
    )
    return preset(
        "tiny", **sizes, max_positions=16, num_languages=2, dropout=0.0, init_std=0.3, **KINDS[kind]
    )


@functools.cache
def model_of(kind):
    model = Seq2Seq(config_of(kind))
    # Its own first values for one kind; to compile `init` takes longer than a test.
    return model, jax.jit(model.init)(jax.random.key(0)) if kind == "tied" else tiny.params(model)


def batch(rows=4, seed=0, full=False):
    """One example per row."""
    rng = np.random.default_rng(seed)
    made = {}
    for names, length in ((("input_ids", ""), SOURCE), (("decoder_ids", "decoder_"), TARGET)):
        ids, prefix = names
        used = (np.arange(length) < rng.integers(2, length + 1, (rows, 1))) | full
        made[ids] = np.where(used, rng.integers(4, VOCAB, (rows, length)), 1)
        made[f"{prefix}position_ids"] = np.arange(length) * used
        made[f"{prefix}language_ids"] = np.full((rows, length), int(bool(prefix))) * used
        made[f"{prefix}pack_ids"] = used
    return {name: jnp.asarray(value, jnp.int32) for name, value in made.items()}


@functools.partial(jax.jit, static_argnums=0)
def states(model, params, rows, **shifts):
    memory = model.encode(params, rows, bidirectional, shift_BLD=shifts.get("source"))
    return model.decode(params, rows, memory, shift_BTD=shifts.get("target"))


@pytest.mark.parametrize("kind", ["shared", pytest.param("separate", marks=pytest.mark.long)])
def test_a_state_depends_on_its_past_and_on_the_source(kind):
    model, params = model_of(kind)
    rows = batch()
    of_row, at = 1, 2
    zero = {"source": jnp.zeros((4, SOURCE, 16)), "target": jnp.zeros((4, TARGET, 16))}
    gradients = jax.jit(
        jax.grad(lambda shifts: states(model, params, rows, **shifts)[of_row, at, 3])
    )(zero)
    reached = {name: np.abs(np.asarray(g)).max(-1) > 0 for name, g in gradients.items()}
    own = np.arange(4)[:, None] == of_row
    np.testing.assert_array_equal(
        reached["target"], own & (np.arange(TARGET) <= at) & (rows["decoder_pack_ids"] > 0)
    )
    np.testing.assert_array_equal(reached["source"], own & (np.asarray(rows["pack_ids"]) > 0))


def test_packed_examples_are_as_if_alone():
    model, params = model_of("shared")
    alone = batch(rows=2, full=True)
    packed = {name: value.reshape(1, -1) for name, value in alone.items()}
    for name, length in (("pack_ids", SOURCE), ("decoder_pack_ids", TARGET)):
        packed[name] = jnp.repeat(jnp.array([[1, 2]], jnp.int32), length, axis=1)
    expected = states(model, params, alone).reshape(1, -1, 16)
    np.testing.assert_allclose(states(model, params, packed), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["separate", pytest.param("tied", marks=pytest.mark.long)])
def test_a_cache_gives_the_states_of_the_whole(kind):
    model, params = model_of(kind)
    rows = batch(full=True) | {
        name: batch()[name] for name in ("input_ids", "pack_ids", "position_ids")
    }
    whole = states(model, params, rows)
    step = jax.jit(model.step)
    start = jax.jit(lambda p: model.start(p, rows, model.encode(p, rows, bidirectional), TARGET))
    cache = start(params)
    for column in range(TARGET):
        state, cache = step(
            params, cache, rows["decoder_ids"][:, column], rows["decoder_language_ids"][:, column]
        )
        np.testing.assert_allclose(state, whole[:, column], atol=1e-5)


@pytest.mark.long
def test_what_is_tied_is_the_encoders_last_layers():
    model, params = model_of("tied")
    rows = batch()
    memory = jax.jit(lambda p: model.encode(p, rows, bidirectional))(params)
    decode = jax.jit(lambda p: model.decode(p, rows, memory))
    before = decode(params)
    for layer in range(3):
        other = jax.tree.map(lambda x: x, params)
        attention = other["encoder"]["layers"]["attention"]
        attention["query"]["kernel"] = attention["query"]["kernel"].at[layer].multiply(2.0)
        changed = np.abs(np.asarray(decode(other) - before)).max() > 1e-4
        assert changed == (layer > 0), layer


@pytest.mark.long
def test_heads_and_scale():
    model, params = model_of("tied")
    rows = batch()
    h = states(model, params, rows)
    g, table, bias = model.decoder_head(params, h)
    np.testing.assert_array_equal(g, h)
    assert not bias.any() and table is params["embeddings"]["tokens"]["embedding"]
    plain = Seq2Seq(model.config.replace(embedding_scale=False))
    scaled = {**params, "embeddings": {**params["embeddings"]}}
    scaled["embeddings"]["tokens"] = {
        "embedding": params["embeddings"]["tokens"]["embedding"] * 4.0
    }
    np.testing.assert_allclose(states(plain, scaled, rows), h, atol=1e-5)  # sqrt(16)
    model, params = model_of("separate")
    _, table, _ = model.decoder_head(params, h)
    np.testing.assert_array_equal(table, params["decoder_embeddings"]["tokens"]["embedding"])
