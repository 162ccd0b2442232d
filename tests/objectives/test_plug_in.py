"""Plug-in fine-tuning: classification from [H; S] of an example in two languages."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import numpy_transformer as transformer
from tests.helpers.reference import CONFIG, LANGUAGES, loss_of, make_batch, random_model
from xlingjax.model.encoder import Encoder
from xlingjax.objectives.plug_in import PlugIn

PLUGGED = CONFIG.replace(num_labels=3, classifier="plug_in")
OBJECTIVE = PlugIn(3)


@pytest.fixture(scope="module")
def model_and_params():
    return random_model(PLUGGED)


@pytest.fixture(scope="module")
def batch():
    """Three rows, the last of which counts for nothing."""
    return make_batch("plug_in", packed=False)


@pytest.fixture(scope="module")
def logits(model_and_params):
    """batch -> logits [side, B, C]."""
    model, params = model_and_params
    return jax.jit(lambda batch: jnp.stack(OBJECTIVE.logits(model, params, batch)))


def own(fields, q, k):
    return fields["sides"][q] == fields["sides"][k]


def other(fields, q, k):
    return not own(fields, q, k)


def changed(batch, row, side):
    """The batch with another word in the middle of one side of one row."""
    columns = np.flatnonzero((batch["sides"][row] == side) & (batch["pack_ids"][row] > 0))
    ids = batch["input_ids"].copy()
    ids[row, columns[1]] = 14 + (ids[row, columns[1]] - 13) % 70
    return batch | {"input_ids": ids}


def test_loss_and_metrics_equal_numpy(model_and_params, batch):
    model, params = model_and_params
    loss = loss_of(OBJECTIVE, model, params, batch)
    second = batch["sides"].argmax(1)
    two = batch | {"input_ids": batch["input_ids"].copy()}
    two["input_ids"][np.arange(3), second] = two["input_ids"][:, 0]  # y opens as x does
    h = transformer.encode(PLUGGED, params, two, sees=own)
    s = transformer.encode(PLUGGED, params, two, sees=own, memory=(h, other))
    head = jax.tree.map(np.float64, params["classifier"])
    nll, right, languages = [], [], []
    for columns in (np.zeros(3, int), second):
        for row in (0, 1):  # the third has weight 0
            state = np.concatenate([h[row, columns[row]], s[row, columns[row]]])
            scores = np.tanh(state @ head["dense"]["kernel"] + head["dense"]["bias"])
            scores = scores @ head["out"]["kernel"] + head["out"]["bias"]
            nll.append(np.log(np.exp(scores).sum()) - scores[batch["labels"][row]])
            right.append(scores.argmax() == batch["labels"][row])
            languages.append(batch["language_ids"][row, columns[row]])
    assert (
        set(loss.terms)
        == set(OBJECTIVE.coefficients)
        == set(OBJECTIVE.weights(batch))
        == {"plug_in"}
    )
    np.testing.assert_allclose(loss.terms["plug_in"], sum(nll), rtol=2e-5)
    assert float(OBJECTIVE.weights(batch)["plug_in"]) == 4
    assert len({round(value, 3) for value in nll}) == 4
    np.testing.assert_allclose(loss.metrics["plug_in/accuracy"], (sum(right), 4))
    total, count = loss.metrics["plug_in/loss_by_language"]
    np.testing.assert_allclose(total, np.bincount(languages, nll, LANGUAGES), rtol=2e-5)
    np.testing.assert_array_equal(count, np.bincount(languages, minlength=LANGUAGES))


@pytest.mark.long
def test_a_side_knows_the_other_through_its_final_states_alone(
    model_and_params, batch, monkeypatch
):
    """With H of the other side held constant no gradient of x's logits reaches y's words, and of
    y's none x's; without it does, and the logits are the same."""
    model, params = model_and_params
    encode, values = Encoder.encode, []

    def total(shift, side, objective):
        monkeypatch.setattr(
            Encoder,
            "encode",
            lambda *arguments, **options: encode(*arguments, **options | {"shift_BLD": shift}),
        )
        return jnp.stack(objective.logits(model, params, batch))[side].sum()

    shift = np.zeros((*batch["input_ids"].shape, PLUGGED.dim), np.float32)
    real = batch["pack_ids"] > 0
    for stop in (True, False):
        value_and_grad = jax.jit(
            jax.value_and_grad(partial(total, objective=PlugIn(3, stop_gradient=stop)))
        )
        for side in (0, 1):
            value, gradient = value_and_grad(shift, side)
            size = np.abs(gradient).max(-1)
            assert size[real & (batch["sides"] == side)].min() > 1e-6
            assert (size[real & (batch["sides"] != side)].max() == 0) == stop
            values.append(float(value))
    np.testing.assert_allclose(
        values[:2], values[2:], rtol=1e-6
    )  # two programs, which round in their own ways
