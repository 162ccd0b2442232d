"""The n-stream decoder in blocks of queries: what the backend xla computes, values and gradients,
on a mesh too; who sees whom; dropout; no scores of more than a block."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from tests.model.test_ngram_decoder import CONFIG, PACKED, make_batch, random_memory, random_params
from xlingjax.model import chunked, ngram_decoder
from xlingjax.model.attention import Refused
from xlingjax.model.layers import dropout_keeps, kept_of
from xlingjax.model.masks import bidirectional
from xlingjax.model.ngram_decoder import NgramSeq2Seq, StreamAttention
from xlingjax.model.partition import MeshConfig, make_mesh

CHUNKED = CONFIG.replace(attention_backend="chunked")
close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)


@pytest.fixture
def small_blocks(monkeypatch):
    """Most blocks have queries of two streams."""
    monkeypatch.setattr(chunked, "BLOCK", 8)
    monkeypatch.setattr(chunked, "LEAST", 1)


def test_blocks_mix_streams(small_blocks):
    assert [chunked.block_of(n) for n in (2 * 10, 3 * 10, 4 * 10, 3 * 7)] == [5, 6, 8, 7]


# --- The whole decoder ---


def test_the_model_equals_that_of_xla(small_blocks):
    """Encoder, streams and attention to the source; of a row some columns are padding."""
    params = random_params(CONFIG)

    def both_passes_of(config):
        model = NgramSeq2Seq(config)

        def loss(params):
            memory_BSD = model.encode(params, PACKED, bidirectional)
            h_NBTD = model.decode_streams(params, PACKED, memory_BSD)
            return jnp.square(h_NBTD[..., :3]).mean(), h_NBTD

        return jax.jit(jax.value_and_grad(loss, has_aux=True))(params)

    found, wanted = both_passes_of(CHUNKED), both_passes_of(CONFIG)
    assert wanted[1]["decoder"]["layers"]["attention"]["relative"]["kernel"].any()
    jax.tree.map(close, found, wanted)


def test_later_and_hidden_words_change_no_bit(small_blocks):
    """Stream i, column t: the words 0 to max(t-i, 0) of its example, and no other row."""
    n, params, memory_BSD = 2, random_params(CONFIG), random_memory(PACKED)
    model = NgramSeq2Seq(CHUNKED)
    decode = jax.jit(lambda batch: model.decode_streams(params, batch, memory_BSD))
    pack_T, before_NTD = PACKED["decoder_pack_ids"][0], decode(PACKED)
    columns = np.flatnonzero(pack_T)
    for changed in columns:
        ids = PACKED["decoder_ids"].copy()
        ids[0, changed] = 3 + (ids[0, changed] + 1) % 30
        differs = np.asarray(decode({**PACKED, "decoder_ids": ids}) != before_NTD).any(-1)
        assert not differs[:, 1].any()
        for t in columns:
            first = np.flatnonzero(pack_T == pack_T[t])[0]
            for i in range(n):
                sees = first <= changed <= max(t - i, first)
                assert differs[i, 0, t] == sees, (i, t, changed)


def test_lengths_that_no_block_divides_are_refused():
    """137 is prime."""
    config = CHUNKED.replace(max_positions=400)
    model, batch = NgramSeq2Seq(config), make_batch([[137]], [[5]], 137, 5)
    memory_BSD = random_memory(batch)
    decode = lambda p, b: model.decode_streams(p, b, memory_BSD)  # noqa: E731
    with pytest.raises(Refused, match="chunked takes rows of columns .* not of 411"):
        jax.eval_shape(decode, model.abstract(), batch)
    longer = make_batch([[256]], [[5]], 256, 5)
    assert jax.eval_shape(decode, model.abstract(), longer).shape == (2, 1, 256, 16)


# --- Its self-attention alone ---


def attention_of(backend, rows, columns, n=2, rate=0.0):
    """Beside it (queries, keys and values of the main stream, keys and values of all, relative
    scores), random, of 2 heads of 4; 8 buckets."""
    rng, length = np.random.default_rng(columns), (1 + n) * columns
    allowed = rng.random((rows, length, columns)) < 0.5
    allowed[..., 0] = True
    buckets = rng.integers(0, 8, allowed.shape).astype(np.uint8)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    q, k, v = (draw(rows, length, 2, 4) for _ in "qkv")
    main = draw(rows, 2, columns, 4), draw(rows, 2, columns, 4)
    attention = StreamAttention(allowed, buckets, 1 + n, backend, rate)
    return attention, (q, main, (k, v), draw(rows, length, 8, 2))


def both_passes(attention, arrays, key=None):
    """(values, gradients of all arrays)"""

    def weighed(attention, arrays):
        o_BLHK = attention(*arrays, key)
        return (o_BLHK * jnp.cos(jnp.arange(o_BLHK.size)).reshape(o_BLHK.shape)).sum(), o_BLHK

    grads, o_BLHK = jax.jit(jax.grad(weighed, 1, has_aux=True))(attention, arrays)
    return o_BLHK, grads


@pytest.mark.parametrize(("n", "columns"), [(1, 10), (2, 10), (3, 10), (2, 7), (2, 2)])
def test_values_and_gradients_are_those_of_xla(n, columns, small_blocks):
    (whole, arrays), (blocks, _) = (
        attention_of(backend, 2, columns, n) for backend in ("xla", "chunked")
    )
    jax.tree.map(close, both_passes(blocks, arrays), both_passes(whole, arrays))


def test_on_a_mesh(small_blocks):
    mesh = make_mesh(MeshConfig(2, 2, 2))
    attention, arrays = attention_of("chunked", 4, 10, rate=0.2)
    of_rows = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
    q, main, own, relative = jax.device_put(arrays, of_rows)
    by_head = NamedSharding(mesh, PartitionSpec(("data", "fsdp"), "tensor"))
    placed = q, jax.device_put(main, by_head), own, relative
    for key in (None, jax.random.key(1)):
        found = both_passes(jax.device_put(attention, of_rows), placed, key)
        jax.tree.map(close, found, both_passes(attention, arrays, key))
    whole, _ = attention_of("xla", 4, 10)
    jax.tree.map(close, both_passes(attention, placed), both_passes(whole, arrays))


def test_both_passes_drop_the_same(small_blocks, monkeypatch):
    """As a whole computation that keeps what the blocks keep."""
    rows, columns, rate, key = 2, 10, 0.3, jax.random.key(5)
    attention, arrays = attention_of("chunked", rows, columns, rate=rate)
    found = both_passes(attention, arrays, key)
    blocks, block = 3 * columns // 6, 6
    keeps = [
        dropout_keeps((rows, 2, block, columns + 1), rate, jax.random.fold_in(key, number))
        for number in range(blocks)
    ]
    assert len({np.asarray(one).tobytes() for one in keeps}) == blocks
    keeps_BHLS = jnp.concatenate(keeps, axis=2)
    monkeypatch.setattr(ngram_decoder, "dropout", lambda p, rate, _: kept_of(p, keeps_BHLS, rate))
    whole, _ = attention_of("xla", rows, columns, rate=rate)
    jax.tree.map(close, found, both_passes(whole, arrays, key))
