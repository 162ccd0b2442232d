"""Plug-in fine-tuning: classification from [H; S] of an example in two languages."""

import jax
import numpy as np
import pytest

from tests.helpers import numpy_transformer as transformer
from tests.helpers.reference import CONFIG, LANGUAGES, loss_of, make_batch, random_model
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


def own(fields, q, k):
    return fields["sides"][q] == fields["sides"][k]


def other(fields, q, k):
    return not own(fields, q, k)


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
