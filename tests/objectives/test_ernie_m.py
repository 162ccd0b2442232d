import functools

import jax
import numpy as np
import pytest

from tests.helpers import numpy_transformer as transformer
from tests.helpers import tiny
from tests.helpers.reference import CONFIG, LANGUAGES, loss_of, make_batch, masked_nll, random_model
from xlingjax.model.encoder import Encoder
from xlingjax.objectives.ernie_m import BTMLM, CAMLM
from xlingjax.objectives.xlm import MLM

BANNED = tuple(range(tiny.FIRST_PIECE))


@pytest.fixture(scope="module")
def model_and_params():
    return random_model()


# --- CAMLM ----------------------------------------------------------------------------------------


def sees(own_masks):
    """ERNIE-M §3.1 in words, one query and one key at a time."""

    def one(fields, q, k):
        same = fields["sides"][q] == fields["sides"][k]
        if not fields["is_mask"][q]:
            return same and not fields["is_mask"][k]
        if fields["is_mask"][k]:
            return same and (own_masks == "all" or q == k)
        return not same

    return one


@pytest.mark.parametrize("layout", ["camlm", "camlm_slots"])
@pytest.mark.parametrize("own_masks", ["all", "self"])
def test_camlm_equals_numpy(model_and_params, own_masks, layout):
    model, params = model_and_params
    batch, objective = make_batch(layout), CAMLM(own_masks=own_masks)
    loss = loss_of(objective, model, params, batch)
    h = transformer.encode(CONFIG, params, batch, sees=sees(own_masks))
    half = batch["masked_weights"].shape[1] // 2
    for term, slots in zip(
        ("camlm_x", "camlm_y"), (slice(0, half), slice(half, None)), strict=True
    ):
        total, count = masked_nll(params, h, batch, slots)
        np.testing.assert_allclose(loss.terms[term], total, rtol=2e-5)
        assert float(objective.weights(batch)[term]) == count > 1
    assert (
        set(loss.terms)
        == {"camlm_x", "camlm_y"}
        == set(objective.weights(batch))
        == set(objective.coefficients)
    )


# --- BTMLM ----------------------------------------------------------------------------------------

OBJECTIVE = BTMLM()


@functools.partial(jax.jit, static_argnums=(0, 1))
def placeholders(objective, model, params, batch, key=None):
    return objective.placeholders(model, params, batch, key)


def pseudo_ids(*arguments):
    return np.asarray(placeholders(*arguments).targets)


def generated(params, batch):
    """[B, P] by the definition: X sees X, a placeholder sees X and itself, the likeliest piece that
    is not banned."""

    def sees(fields, q, k):
        return not fields["is_mask"][k] or q == k

    h = transformer.encode(CONFIG, params, {**batch, "input_ids": batch["original_ids"]}, sees=sees)
    ids = np.zeros(batch["pseudo_positions"].shape, np.int32)
    for row, slot in zip(*np.nonzero(batch["pseudo_weights"]), strict=True):
        log_p = transformer.log_probabilities(
            CONFIG, params, h[row, batch["pseudo_positions"][row, slot]]
        )
        log_p[list(BANNED)] = -np.inf
        ids[row, slot] = log_p.argmax()
    return ids


def test_btmlm_equals_numpy(model_and_params):
    model, params = model_and_params
    batch = make_batch("btmlm")
    ids = generated(params, batch)
    used = batch["pseudo_weights"] > 0
    found = np.asarray(pseudo_ids(OBJECTIVE, model, params, batch))
    np.testing.assert_array_equal(found[used], ids[used])
    filled = dict(batch, input_ids=batch["input_ids"].copy())
    for row, slot in zip(*np.nonzero(used), strict=True):
        filled["input_ids"][row, batch["pseudo_positions"][row, slot]] = ids[row, slot]
    np.testing.assert_array_equal(OBJECTIVE.filled(batch, found)["input_ids"], filled["input_ids"])
    total, count = masked_nll(params, transformer.encode(CONFIG, params, filled), batch)
    loss = loss_of(OBJECTIVE, model, params, batch)
    np.testing.assert_allclose(loss.terms["btmlm"], total, rtol=2e-5)
    assert float(OBJECTIVE.weights(batch)["btmlm"]) == count
    rows, slots = np.nonzero(batch["masked_weights"])  # nothing is predicted at a placeholder
    assert (
        set(loss.terms) == {"btmlm"}
        and not batch["is_mask"][rows, batch["masked_positions"][rows, slots]].any()
    )


def test_pseudo_tokens_are_generated_without_dropout(model_and_params):
    params, batch = model_and_params[1], make_batch("btmlm")
    model = Encoder(CONFIG.replace(dropout=0.5, attention_dropout=0.5))
    still, training = (
        placeholders(OBJECTIVE, model, params, batch, key) for key in (None, jax.random.key(0))
    )
    np.testing.assert_array_equal(still.states, training.states)


@pytest.mark.long
def test_no_gradient_through_the_pseudo_tokens(model_and_params):
    """The gradient is that of MLM on a text with pseudo tokens in it and costs one forward pass
    more; even from the states that the pseudo tokens are read from there is none."""
    model, params = model_and_params
    batch = make_batch("btmlm")
    filled = OBJECTIVE.filled(batch, pseudo_ids(OBJECTIVE, model, params, batch))

    def gradient(objective, batch):
        return jax.grad(
            lambda p: objective.loss(model, p, batch, None, LANGUAGES).terms[objective.name]
        )

    found, want = (jax.jit(gradient(*of))(params) for of in ((OBJECTIVE, batch), (MLM(), filled)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5), found, want)

    def first_stage(p):
        return OBJECTIVE.placeholders(model, p, batch)

    def products(function):
        return str(jax.make_jaxpr(function)(params)).count("dot_general")

    assert products(gradient(OBJECTIVE, batch)) == products(first_stage) + products(
        gradient(MLM(), filled)
    )
    through = jax.jit(jax.grad(lambda p: (first_stage(p).states ** 3).sum()))(params)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(through))


def test_special_tokens_are_not_generated(model_and_params):
    model, params = model_and_params
    batch = make_batch("btmlm")
    likeliest = pseudo_ids(OBJECTIVE, model, params, batch)
    assert likeliest.min() >= tiny.FIRST_PIECE
    head = {**params["head"], "bias": params["head"]["bias"].at[3].set(1e4)}
    pulled = {**params, "head": head}
    np.testing.assert_array_equal(pseudo_ids(OBJECTIVE, model, pulled, batch), likeliest)
