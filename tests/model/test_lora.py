"""Low-rank additions: nothing at first, alone trained, and part of the kernels when merged."""

import ast

import jax
import numpy as np
import pytest

from tests.helpers import tiny
from tests.training.test_step import OBJECTIVES, ONE, step_of
from xlingjax.config.recipe import bindings
from xlingjax.model.build import build_model
from xlingjax.model.encoder import Encoder
from xlingjax.model.lora import merged
from xlingjax.model.masks import bidirectional
from xlingjax.model.params import flattened, nested
from xlingjax.training.optimizer import OptimizerConfig


@pytest.fixture(scope="module")
def frozen():
    """The regular expressions of gin/optim/lora.gin."""
    bound = bindings(["gin/recipes/mmbert_tiny.gin", "gin/optim/lora.gin"], ["MONO=x"])
    return ast.literal_eval(bound["FROZEN"])


@pytest.mark.parametrize("parts", [{}, dict(norm_order="pre", gated=True, cross_attention=True)])
def test_alone_trained_and_merged(parts, tiny_config, frozen):
    encoder = Encoder(tiny_config.replace(**parts, lora=3, lora_scale=0.5))
    params = jax.jit(encoder.init)(jax.random.key(0))
    plain = Encoder(tiny_config.replace(**parts))
    batch = tiny.batch("tlm", rows=4)
    kept = flattened(params)
    without = {name: kept[name] for name in flattened(plain.abstract())}
    before = encoder.encode(params, batch, bidirectional)
    same = plain.encode(nested(without), batch, bidirectional)
    np.testing.assert_array_equal(before, same)

    optimizer = OptimizerConfig(learning_rate=0.1, warmup_steps=0, frozen=frozen)
    state, step = step_of(encoder, params, OBJECTIVES["tlm"], ONE, 1, optimizer)
    for _ in range(2):
        state, _ = step(state, batch)
    trained = flattened(jax.tree.map(np.asarray, state.params))
    moved = {name for name, value in trained.items() if (value != np.asarray(kept[name])).any()}
    # Without a memory the slot has no gradient.
    assert moved == {n for n in kept if "lora_" in n and "cross_attention" not in n}

    config, alone = merged(encoder.config, state.params)
    assert config == plain.config and {*flattened(alone)} == {*without}
    after = encoder.encode(state.params, batch, bidirectional)
    assert np.abs(after - before).max() > 0.1
    np.testing.assert_allclose(
        build_model(config).encode(alone, batch, bidirectional), after, rtol=1e-4, atol=1e-4
    )
