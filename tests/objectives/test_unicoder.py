import jax
import numpy as np
import pytest

from tests.helpers import numpy_transformer as transformer
from tests.helpers import tiny
from tests.helpers.reference import CONFIG, LANGUAGES, loss_of, make_batch, masked_nll, random_model
from xlingjax.errors import UserError
from xlingjax.model.encoder import Encoder
from xlingjax.objectives.unicoder import CLMLM, CLPC, CLWR, DAN


@pytest.fixture(scope="module")
def model_and_params():
    return random_model()


mixtures = jax.jit(CLWR().mixtures, static_argnums=0)


def own(fields, q, k):
    return fields["sides"][q] == fields["sides"][k]


def recovered(params, batch):
    """x [B, L, D] by the definition: A_ij = w [e_i; e_j; e_i * e_j], x_i = sum over j of
    softmax(A_i)_j e_j."""
    table = np.asarray(params["embeddings"]["tokens"]["embedding"], np.float64)
    w = np.asarray(params["word_recovery"]["kernel"], np.float64)
    e = table[batch["input_ids"]]
    x = np.zeros_like(e)
    packs, sides = batch["pack_ids"], batch["sides"]
    for row, i in zip(*np.nonzero(packs), strict=True):
        js = np.flatnonzero((packs[row] == packs[row, i]) & (sides[row] != sides[row, i]))
        scores = np.array(
            [w @ np.concatenate([e[row, i], e[row, j], e[row, i] * e[row, j]]) for j in js]
        )
        weights = np.exp(scores - scores.max())
        x[row, i] = weights @ e[row, js] / weights.sum()
    return x


def test_clwr_equals_numpy(model_and_params):
    model, params = model_and_params
    batch = make_batch("clwr")
    x, attention = mixtures(model, params, batch)
    real = batch["pack_ids"] > 0
    np.testing.assert_allclose(np.asarray(x)[real], recovered(params, batch)[real], atol=1e-5)
    np.testing.assert_allclose(np.asarray(attention).sum(-1), 1, rtol=1e-5)
    h = transformer.encode(CONFIG, params, batch, sees=own, words=recovered(params, batch))
    total, count = 0.0, 0
    for row, column in zip(*np.nonzero(batch["target_weights"]), strict=True):
        total -= transformer.log_probabilities(CONFIG, params, h[row, column])[
            batch["input_ids"][row, column]
        ]
        count += 1
    loss = loss_of(CLWR(), model, params, batch)
    np.testing.assert_allclose(loss.terms["clwr"], total, rtol=2e-5)
    ordinary = (batch["input_ids"] >= 14) & real
    # All words, not 15 % of them.
    assert float(CLWR().weights(batch)["clwr"]) == count == ordinary.sum()


def test_raw_mixtures_go_in_without_position_or_norm(model_and_params):
    model, params = model_and_params
    batch = make_batch("clwr", packed=False)
    moved = dict(batch, position_ids=batch["position_ids"] + 1)
    raw = [loss_of(CLWR(raw=True), model, params, b).terms["clwr"] for b in (batch, moved)]
    embedded = [loss_of(CLWR(), model, params, b).terms["clwr"] for b in (batch, moved)]
    assert (
        raw[0] == raw[1]
        and abs(embedded[0] - embedded[1]) > 1e-3
        and abs(raw[0] - embedded[0]) > 1e-3
    )


def test_clpc_equals_numpy(model_and_params):
    model, params = model_and_params
    batch = make_batch("clpc")
    h = transformer.encode(CONFIG, params, batch)[:, 0]
    out = jax.tree.map(np.float64, params["paraphrase"]["out"])
    p = 1 / (1 + np.exp(-(h @ out["kernel"] + out["bias"])[:, 0]))
    nll = -np.log(np.where(batch["labels"] == 1, p, 1 - p))
    used = batch["example_weights"] > 0
    loss = loss_of(CLPC(), model, params, batch)
    np.testing.assert_allclose(loss.terms["clpc"], nll[used].sum(), rtol=1e-5)
    assert float(CLPC().weights(batch)["clpc"]) == used.sum() == 2
    hits = ((p > 0.5) == (batch["labels"] == 1))[used].sum()
    np.testing.assert_allclose(loss.metrics["clpc/accuracy"], (hits, 2))
    second = [
        batch["language_ids"][row][batch["sides"][row] == 1][0]
        for row in range(len(batch["pack_ids"]))
    ]
    counts = np.bincount(np.array(second)[used], minlength=LANGUAGES)
    np.testing.assert_array_equal(loss.metrics["clpc/loss_by_language"][1], counts)


def test_cl_mlm_equals_numpy(model_and_params):
    model, params = model_and_params
    batch = make_batch("cl_mlm")
    total, count = masked_nll(params, transformer.encode(CONFIG, params, batch), batch)
    loss = loss_of(CLMLM(), model, params, batch)
    np.testing.assert_allclose(loss.terms["cl_mlm"], total, rtol=2e-5)
    assert float(CLMLM().weights(batch)["cl_mlm"]) == count


def test_dan_equals_numpy():
    """Each text's true partner among all of the batch; what fills the batch up is nobody's partner
    and asks nothing."""
    config = CONFIG.replace(layers=0, dan=7)
    model, params = random_model(config)
    batch = tiny.batch("clwr", rows=5, length=12, vocab=90)
    batch["pack_ids"][3] = 0
    p = jax.tree.map(np.float64, params)
    vectors = np.zeros((2, 5, 7))
    for side, row in np.ndindex(2, 5):
        words = (batch["sides"][row] == side) & (batch["pack_ids"][row] > 0)
        x = p["embeddings"]["tokens"]["embedding"][batch["input_ids"][row, words]].sum(0) / max(
            words.sum(), 1
        )
        for layer in ("in", "out"):
            x = np.tanh(x @ p["dan"][layer]["kernel"] + p["dan"][layer]["bias"])
        vectors[side, row] = x
    for found, want in zip(model.averages(params, batch), vectors, strict=True):
        np.testing.assert_allclose(found, want, atol=1e-5)
    u, v = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    real, total, hits = [0, 1, 2, 4], 0.0, 0
    for row in real:
        scores = np.array([20 * u[row] @ v[other] for other in real])
        total -= 20 * u[row] @ v[row] - np.log(np.exp(scores).sum())
        hits += real[scores.argmax()] == row
    loss = loss_of(DAN(), model, params, batch)
    np.testing.assert_allclose(loss.terms["dan"], total, rtol=1e-5)
    np.testing.assert_allclose(loss.metrics["dan/accuracy"], (hits, 4))
    assert float(DAN().weights(batch)["dan"]) == 4
    counts = np.bincount(batch["language_ids"][real, 0], minlength=LANGUAGES)
    np.testing.assert_array_equal(loss.metrics["dan/loss_by_language"][1], counts)
    with pytest.raises(UserError, match="set dan=WIDTH"):
        Encoder(CONFIG).averages(params, batch)
