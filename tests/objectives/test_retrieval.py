"""Fine-tuning of sentence vectors on translations, against NumPy."""

import functools

import jax
import numpy as np
import pytest

from tests.helpers import made, tiny
from tests.helpers import numpy_transformer as transformer
from tests.helpers.leaks import visibility
from tests.helpers.reference import CONFIG, LANGUAGES, loss_of, random_model
from xlingjax.inference.encode import pooling_weights
from xlingjax.objectives.retrieval import HardestNegative
from xlingjax.preprocessors.retrieval import SentencePairFeatures


@functools.cache
def model():
    return random_model()


def pairs(rows=6, seed=0, name="clwr"):
    """Row 3 only fills the batch; row 4's second text is row 1's."""
    batch = tiny.batch(name, seed, rows=rows, length=12, vocab=90)
    batch["pack_ids"][3] = 0
    for field in ("input_ids", "position_ids", "language_ids", "sides", "pack_ids"):
        batch[field][4] = batch[field][1]
    # The first text alone differs.
    batch["input_ids"][4, 1] += 1
    return {field: batch[field] for field in HardestNegative().reads}


def vectors(batch):
    """Each text on its own, in a row of its own, without padding: mean of the last states."""
    config, params = CONFIG, model()[1]
    found = np.zeros((2, len(batch["input_ids"]), config.dim))
    for side, row in np.ndindex(found.shape[:2]):
        there = (batch["pack_ids"][row] > 0) & (batch["sides"][row] == side)
        if there.any():
            alone = {name: values[row : row + 1, there] for name, values in batch.items()}
            alone = {**alone, "sides": np.zeros_like(alone["sides"])}
            h_LD = transformer.encode(config, params, alone)[0]
            ids = alone["input_ids"]
            weights = pooling_weights(ids, np.ones_like(ids) > 0, (), "mean")
            found[side, row] = weights[0] @ h_LD
    return found


def test_the_loss_is_that_of_the_definition():
    batch = pairs()
    u, v = vectors(batch)
    real = [0, 1, 2, 4, 5]
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    cosine = lambda a, b: a @ b / np.linalg.norm(a) / np.linalg.norm(b)  # noqa: E731
    total, hits = 0.0, 0
    scale, bias = 5.0, -2.0
    for row in real:
        same_y = {1, 4} if row in (1, 4) else {row}
        to_y = max(scale * cosine(u[row], v[j]) + bias for j in real if j not in same_y)
        to_x = max(scale * cosine(u[j], v[row]) + bias for j in real if j != row)
        positive = scale * cosine(u[row], v[row]) + bias
        for negative in (to_y, to_x):
            total -= 0.5 * (np.log(sigmoid(positive)) + np.log(1 - sigmoid(negative)))
        hits += positive > max(to_y, to_x)
    objective = HardestNegative(scale=scale, bias=bias)
    loss = loss_of(objective, *model(), batch)
    np.testing.assert_allclose(loss.terms["hardest_negative"], total, rtol=1e-4)
    np.testing.assert_allclose(loss.metrics["hardest_negative/accuracy"], (hits, 5))
    assert float(objective.weights(batch)["hardest_negative"]) == 5
    counts = np.bincount(batch["language_ids"][real, 0], minlength=LANGUAGES)
    found = loss.metrics["hardest_negative/loss_by_language"][1]
    np.testing.assert_array_equal(found, counts)


def test_each_text_is_read_alone():
    batch = pairs()
    seen = visibility(*model(), batch, HardestNegative().attention())
    assert not len(seen.leaks) and not len(seen.blocked)
    sides = batch["sides"]
    beside = seen.moved & (sides[:, :, None] != sides[:, None, :])
    assert not beside[[0, 1, 2]].any()


def test_a_lower_layer_is_that_of_a_shorter_model_and_the_ones_above_stay_as_they_are():
    encoder, params = model()
    batch = pairs()

    def loss(params):
        return (
            HardestNegative(layer=1)
            .loss(encoder, params, batch, None, LANGUAGES)
            .terms["hardest_negative"]
        )

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    layers = jax.tree.map(np.asarray, gradient["encoder"]["layers"])
    for leaf in jax.tree.leaves(layers):
        # Layers are the first axis: the first learns, those above do not.
        assert np.isfinite(leaf).all() and not leaf[1:].any()
    assert any(leaf[0].any() for leaf in jax.tree.leaves(layers))
    last = loss_of(HardestNegative(), encoder, params, batch).terms["hardest_negative"]
    assert float(value) != pytest.approx(float(last), rel=1e-3)


def test_rows_are_each_text_as_sentence_retrieval_reads_it():
    before, after = made.batch(SentencePairFeatures())
    np.testing.assert_array_equal(after["input_ids"], before["input_ids"])
    for row in range(len(after["input_ids"])):
        assert {*after["pack_ids"][row].tolist()} <= {0, 1}  # one pair
        for side in (0, 1):
            there = (after["pack_ids"][row] > 0) & (after["sides"][row] == side)
            if there.any():
                ids = after["input_ids"][row, there]
                assert (ids[0], ids[-1]) == (made.Xlmr.bos_id, made.Xlmr.eos_id)
                assert after["position_ids"][row, there].tolist() == list(range(len(ids)))


def test_any_layer_from_the_embeddings_on():
    assert HardestNegative(layer=0).layer == 0
