import jax
import numpy as np
import pytest

from tests.helpers import numpy_transformer as transformer
from tests.helpers.reference import CONFIG, LANGUAGES, loss_of, make_batch, masked_nll, random_model
from xlingjax.errors import UserError
from xlingjax.objectives.leak import prediction_visibility
from xlingjax.objectives.losses import cross_entropy
from xlingjax.objectives.veco import VECO

OBJECTIVE = VECO(tlm=True)


@pytest.fixture(scope="module")
def model_and_params():
    return random_model()


def own(fields, q, k):
    return fields["sides"][q] == fields["sides"][k]


def other(fields, q, k):
    return not own(fields, q, k)


def side_of(batch, row, column):
    """Columns of the same example and side as this one."""
    return (batch["pack_ids"][row] == batch["pack_ids"][row, column]) & (
        batch["sides"][row] == batch["sides"][row, column]
    )


@pytest.mark.parametrize("query", ["self_attention", pytest.param("input", marks=pytest.mark.long)])
def test_the_terms_equal_numpy(query):
    config, objective = CONFIG.replace(cross_attention_query=query), VECO(tlm=True, query=query)
    model, params = random_model(config)
    batch = make_batch("veco")
    loss = loss_of(objective, model, params, batch)
    one = dict(batch, position_ids=batch["position_ids"].copy())
    two = dict(batch, input_ids=batch["input_ids"].copy())
    for row in range(len(batch["pack_ids"])):
        for number in (1, 2):
            columns = np.flatnonzero(batch["pack_ids"][row] == number)
            one["position_ids"][row, columns] = np.arange(len(columns))
            two["input_ids"][row, columns[batch["sides"][row, columns] == 1][:1]] = batch[
                "input_ids"
            ][row, columns[:1]]
    h = transformer.encode(config, params, two, sees=own)
    s = transformer.encode(config, params, two, sees=own, memory=(h, other))
    t = transformer.encode(config, params, one)
    half = batch["masked_weights"].shape[1] // 2
    x, y = slice(0, half), slice(half, None)
    want = {
        "veco_plug_out_x": masked_nll(params, h, batch, x),
        "veco_plug_out_y": masked_nll(params, h, batch, y),
        "veco_plug_in_x": masked_nll(params, s, batch, x),
        "veco_plug_in_y": masked_nll(params, s, batch, y),
        "veco_tlm": masked_nll(params, t, one),
    }
    assert (
        set(loss.terms) == set(objective.weights(batch)) == set(objective.coefficients) == set(want)
    )
    for name, (total, count) in want.items():
        np.testing.assert_allclose(loss.terms[name], total, rtol=2e-5, err_msg=name)
        assert float(OBJECTIVE.weights(batch)[name]) == count > 1
        np.testing.assert_allclose(loss.metrics[f"{name}/loss"], (total, count), rtol=2e-5)
    assert len({round(float(term), 3) for term in loss.terms.values()}) == 5


def test_positions_of_tlm_restart_where_asked(model_and_params):
    model, params = model_and_params
    batch = make_batch("veco")
    objective = VECO(tlm=True, reset_positions=True)
    running, restarting = (
        loss_of(one, model, params, batch).terms for one in (OBJECTIVE, objective)
    )
    states = transformer.encode(CONFIG, params, batch)
    total, _ = masked_nll(params, states, batch)
    np.testing.assert_allclose(restarting.pop("veco_tlm"), total, rtol=2e-5)
    assert abs(running.pop("veco_tlm") - total) > 1e-3
    for term, value in restarting.items():
        np.testing.assert_array_equal(value, running[term])


def test_plugged_out_states_do_not_know_the_cross_attention(model_and_params):
    model, params = model_and_params
    batch = make_batch("veco")
    states = jax.jit(lambda p, b: OBJECTIVE.states(model, p, b))
    h, s = states(params, batch)
    moved = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf + 1.0 if "cross_attention" in jax.tree_util.keystr(path) else leaf,
        params,
    )
    h_moved, s_moved = states(moved, batch)
    np.testing.assert_array_equal(h_moved, h)
    assert np.abs(s_moved - s).max() > 1e-2


def gradient_at_inputs(model, params, batch, objective, term):
    """d(the term) / d(word embeddings), [B, L, D]: activations, not the table that the head
    shares."""

    def total(shift):
        found = objective.predictions(model, params, batch, None, shift)[term]
        head = model.vocab_head(params, found.states.reshape(-1, CONFIG.dim))
        targets, weights = found.targets.reshape(-1), found.weights.reshape(-1)
        return cross_entropy(*head, targets, weights, vocab_size=CONFIG.vocab_size).loss

    return np.asarray(
        jax.jit(jax.grad(total))(np.zeros((*batch["input_ids"].shape, CONFIG.dim), np.float32))
    )


@pytest.mark.parametrize("stop", [True, False])
def test_no_gradient_reaches_the_other_side(model_and_params, stop):
    model, params = model_and_params
    batch = make_batch("veco", packed=False)
    objective = VECO(stop_gradient=stop)
    gradient = gradient_at_inputs(model, params, batch, objective, "veco_plug_in_x")
    y = (batch["sides"] == 1) & (batch["pack_ids"] > 0)
    x = (batch["sides"] == 0) & (batch["pack_ids"] > 0)
    assert np.abs(gradient[x]).max() > 1e-3
    assert (np.abs(gradient[y]).max() == 0) == stop


def test_a_query_without_self_attention_is_the_models_and_the_objectives(model_and_params):
    """A state of S then knows its own word and the other side, and says so."""
    config, objective = CONFIG.replace(cross_attention_query="input"), VECO(query="input")
    model, params = random_model(config)
    assert jax.tree.structure(params) == jax.tree.structure(model_and_params[1])
    batch = make_batch("veco")
    seen = prediction_visibility(objective, model, params, batch)["veco_plug_in_x"]
    assert seen.leaks.tolist() == [] and seen.blocked.tolist() == []
    for row, slot in np.argwhere(seen.columns >= 0).tolist():
        q = seen.columns[row, slot]
        own = side_of(batch, row, q)
        assert seen.allowed[row, slot, q] and seen.allowed[row, slot, own].sum() == 1
    with pytest.raises(UserError, match="set CROSS_ATTENTION_QUERY, which sets both"):
        OBJECTIVE.loss(model, params, batch, None, LANGUAGES)


def test_factors_are_those_of_the_terms_and_0_leaves_them_out(model_and_params):
    model, params = model_and_params
    batch = make_batch("veco")
    factors = (("plug_out", 2.0), ("plug_in", 0), ("tlm", "0:4,10:1"))
    objective = VECO(tlm=True, factors=factors)
    coefficients = objective.coefficients
    assert [*coefficients] == ["veco_plug_out_x", "veco_plug_out_y", "veco_tlm"]
    assert [*coefficients.values()][:2] == [2.0, 2.0]
    assert float(coefficients["veco_tlm"].at(5)) == 2.5
    # Pages show the masks of what is trained.
    assert [*objective.masks()] == ["self-attention of H and S", "TLM"]
    whole, some = (loss_of(one, model, params, batch).terms for one in (OBJECTIVE, objective))
    assert [*some] == [*coefficients] == [*objective.evidence()] == [*objective.weights(batch)]
    for term, value in some.items():
        np.testing.assert_allclose(value, whole[term], rtol=1e-6)
