"""A table without layers lets its rows through, lengths included."""

import jax
import numpy as np

from xlingjax.model.build import build_model
from xlingjax.model.config import preset
from xlingjax.model.masks import bidirectional
from xlingjax.training.initialisation import _with_tokens


def test_states_are_the_rows_of_the_table():
    config = preset("static", vocab_size=20)
    encoder = build_model(config)
    lengths = np.linspace(0.2, 3, 20)[:, None]
    rows = np.random.default_rng(0).normal(size=(20, 384)).astype(np.float32)
    rows *= lengths / np.linalg.norm(rows, axis=1, keepdims=True)
    rows[0] = 0
    params, said = _with_tokens(encoder.init(jax.random.key(0)), lambda *_: (rows, "told"), ())
    assert said == "told"
    ids = np.arange(20)[None]
    batch = {
        "input_ids": ids,
        "pack_ids": ids * 0 + 1,
        "position_ids": ids,
        "language_ids": ids * 0,
    }
    states = np.asarray(encoder.encode(params, batch, bidirectional))[0]
    # Random rows are 1 long on average. The last column is the constant's.
    random = encoder.init(jax.random.key(0))["embeddings"]["tokens"]["embedding"]
    wanted = rows * np.linalg.norm(random, axis=1).mean()
    wanted[:, -1] = 0
    # But for the mean over columns, which a LayerNorm takes off.
    wanted[:, :-1] -= wanted.sum(axis=1, keepdims=True) / 384
    np.testing.assert_allclose(states, wanted, rtol=0.01, atol=0.002)
    assert np.abs(states[0]).max() < 1e-5
    norms = np.linalg.norm(states[1:], axis=1)
    assert norms[-1] / norms[0] > 8
