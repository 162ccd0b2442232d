"""Disentangled attention beside plain NumPy, in packed rows, and in blocks as in one piece."""

import dataclasses
import math

import jax
import numpy as np
import pytest

from xlingjax.errors import UserError
from xlingjax.model.build import build_model
from xlingjax.model.config import ModelConfig
from xlingjax.model.distances import distances_of
from xlingjax.model.masks import bidirectional

CONFIG = ModelConfig(
    name="apart",
    layers=1,
    dim=12,
    heads=2,
    ffn=8,
    vocab_size=50,
    positions="disentangled",
    relative_buckets=8,
    relative_max_distance=40,
    max_positions=256,
    init_std=0.5,
)


def batch_of(length):
    """Two examples, the second from position 0 again, then padding."""
    column, first, last = np.arange(length), length // 3, length - 5
    pack = np.select([column < first, column < last], [1, 2], 0)
    positions = np.where(column < first, column, column - first)
    ids = np.random.default_rng(0).integers(5, 50, length)
    fields = dict(input_ids=ids, pack_ids=pack, position_ids=positions, language_ids=0 * pack)
    return {name: np.tile(values, (2, 1)).astype(np.int32) for name, values in fields.items()}


def bucket(distance):
    """As He et al. 2021 and their code have it: exact up to 4, then ever wider."""
    far = abs(distance)
    if far > 4:
        far = math.ceil(math.log(far / 4) / math.log(39 / 4) * 3) + 4
    return int(math.copysign(min(far, 7), distance))


def test_distances_share_buckets_from_half_of_them_on():
    positions = np.arange(60)[None]
    found = distances_of(CONFIG, positions, positions).index(positions)
    wanted = [[8 + bucket(q - k) for k in range(40)] for q in range(40)]
    np.testing.assert_array_equal(found[0, :40, :40], wanted)
    assert found.min() == 1 and found.max() == 15


def test_weights_are_those_of_the_three_products():
    batch, model = batch_of(24), build_model(CONFIG)
    params = model.init(jax.random.key(0))
    weights = model.attention_weights(params, batch, bidirectional)["self-attention"][0]
    h_BLD = np.asarray(model.encode(params, batch, bidirectional, all_layers=True)[0], float)
    p = jax.tree.map(lambda x: np.asarray(x, float), params["encoder"])
    table = p["distances"]["embedding"]
    states = (table - table.mean(-1, keepdims=True)) / np.sqrt(table.var(-1, keepdims=True) + 1e-12)
    of = jax.tree.map(lambda x: x[0], p["layers"]["attention"])

    def made(x, name):
        return np.einsum("nd,dhk->hnk", x, of[name]["kernel"])

    asks, keys, asked, found = (
        made(x, name) for x in (h_BLD[0], states) for name in ("query", "key")
    )
    pack, position = batch["pack_ids"][0], batch["position_ids"][0]
    for i in (0, 7, 12):
        seen = np.flatnonzero(pack == pack[i])
        rows = [8 + bucket(position[i] - position[j]) for j in seen]
        scores = asks[:, i, None] * (keys[:, seen] + found[:, rows])
        scores = (scores + keys[:, seen] * asked[:, rows]).sum(-1) / math.sqrt(3 * 6)
        wanted = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        np.testing.assert_allclose(weights[0, :, i, seen].T, wanted, rtol=1e-4, atol=1e-6)


def t5_bucket(distance, buckets, longest=40):
    """As Raffel et al. 2020's code has it, of a distance from 0 on."""
    exact = buckets // 2
    if distance < exact:
        return distance
    wide = math.log(distance / exact) / math.log(longest / exact) * (buckets - exact)
    return min(exact + int(wide), buckets - 1)


def test_t5_has_half_of_its_buckets_for_keys_behind_a_query():
    config, positions = CONFIG.replace(positions="relative"), np.arange(60)[None]
    found = distances_of(config, positions, positions).index(positions)[0]
    wanted = [[t5_bucket(abs(q - k), 4) + 4 * (k > q) for k in range(60)] for q in range(60)]
    np.testing.assert_array_equal(found, wanted)
    found = distances_of(config, positions, positions, causal=True).index(positions)[0]
    for q in range(60):
        assert found[q, : q + 1].tolist() == [t5_bucket(q - k, 8) for k in range(q + 1)]


UNSEEN = CONFIG.replace(unseen=3)


@pytest.mark.parametrize(
    "config",
    [CONFIG, UNSEEN.replace(positions="relative"), UNSEEN.replace(positions="relative_by_layer")],
    ids=lambda config: config.positions,
)
def test_blocks_of_queries_give_what_a_row_in_one_piece_gives(config):
    batch = batch_of(192)
    model = build_model(config)
    params = model.init(jax.random.key(0))
    other = build_model(dataclasses.replace(config, attention_backend="chunked"))

    def total(model):
        return lambda params: (model.encode(params, batch, bidirectional) ** 2).mean()

    real = batch["pack_ids"] > 0
    states = [np.asarray(m.encode(params, batch, bidirectional))[real] for m in (model, other)]
    np.testing.assert_allclose(*states, atol=1e-5)
    gradients = [jax.tree.leaves(jax.grad(total(m))(params)) for m in (model, other)]
    for ours, theirs in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_nobody_sees_what_opens_a_row_of_t5():
    config = UNSEEN.replace(positions="relative", layers=2)
    batch, model = batch_of(24), build_model(config)
    batch["input_ids"] = np.where(batch["position_ids"] == 0, 3, batch["input_ids"])
    params = model.init(jax.random.key(0))
    first = np.asarray(model.encode(params, batch, bidirectional))
    words = params["embeddings"]["tokens"]
    words["embedding"] = words["embedding"].at[3].multiply(-1)
    found = np.asarray(model.encode(params, batch, bidirectional))
    same = np.isclose(first, found, atol=1e-6).all(-1)
    np.testing.assert_array_equal(same, batch["input_ids"] != 3)


def test_flash_knows_no_distances():
    for positions in ("disentangled", "relative"):
        with pytest.raises(UserError, match="need attention_backend=xla or chunked"):
            CONFIG.replace(positions=positions, attention_backend="flash")
