"""Who moves when a token changes: exactly those whom the mask lets see it, on two layers and more."""

import jax
import numpy as np
import pytest

from xlingjax.model.attention import AttentionSpec
from xlingjax.model.config import preset
from xlingjax.model.encoder import Encoder
from xlingjax.model.leak import reachable, visibility
from xlingjax.model.masks import Mask, bidirectional, causal, full, valid_keys

PACKED = [[1, 1, 1, 2, 2, 3, 0, 0], [1, 2, 2, 2, 2, 2, 2, 2], [0, 0, 0, 0, 0, 0, 0, 0]]
UNPACKED = [[1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]]
SPECS = {"bidirectional": AttentionSpec(bidirectional), "causal": AttentionSpec(causal & bidirectional, causal=True)}


@pytest.fixture(scope="module")
def model():
    return Encoder(
        preset("tiny", layers=2, dim=16, heads=2, ffn=32, vocab_size=40, max_positions=8, dropout=0.0, unroll=1)
    )


@pytest.fixture(scope="module")
def params(model):
    return jax.jit(model.init)(jax.random.key(0))


def batch_of(packs):
    packs = np.array(packs, np.int32)
    ids = np.random.default_rng(0).integers(0, 40, packs.shape).astype(np.int32)
    positions = np.broadcast_to(np.arange(packs.shape[1], dtype=np.int32), packs.shape)
    return {"input_ids": ids, "position_ids": positions, "pack_ids": packs}


@pytest.mark.parametrize("packs", [PACKED, UNPACKED], ids=["packed", "unpacked"])
@pytest.mark.parametrize("name", SPECS)
def test_states_move_with_the_tokens_they_see_and_no_other(model, params, name, packs):
    seen = visibility(model, params, batch_of(packs), SPECS[name])
    assert seen.leaks.tolist() == []
    assert seen.blocked.tolist() == []
    real = np.array(packs) > 0
    want = (np.array(packs)[:, :, None] == np.array(packs)[:, None, :]) & real[:, :, None]
    if name == "causal":
        want &= np.tri(8, dtype=bool)
    want |= np.eye(8, dtype=bool)
    np.testing.assert_array_equal(seen.moved, want)


def test_a_mask_that_forgets_packs_is_caught(model, params):
    """The instrument itself: an attention that ignores packs moves states that the declared mask forbids."""
    batch = batch_of(PACKED)
    seen = visibility(model, params, batch, AttentionSpec(valid_keys))
    forbidden = ~reachable(SPECS["bidirectional"], batch, 2)
    assert (seen.moved & forbidden)[0].any()
    assert [0, 0, 3] in np.argwhere(seen.moved & forbidden).tolist()


def test_layers_relay_what_one_mask_alone_hides(model, params):
    """Each token sees its left neighbour: after two layers the state depends on two to the left, not three."""
    neighbour = Mask("neighbour", lambda q, k: (q.position - k.position) * (q.position - k.position - 1) == 0)
    seen = visibility(model, params, batch_of([[1] * 8]), AttentionSpec(neighbour & full))
    np.testing.assert_array_equal(seen.moved[0], np.tri(8, dtype=bool) & ~np.tri(8, k=-3, dtype=bool))
    np.testing.assert_array_equal(seen.moved, seen.allowed)


def test_values_that_are_not_finite_stop_the_test(model, params):
    broken = jax.tree.map(lambda x: x * np.nan, params)
    with pytest.raises(FloatingPointError, match="same_pack & valid_keys"):
        visibility(model, broken, batch_of(UNPACKED), SPECS["bidirectional"])
