"""Teacher forcing against NumPy; back-translation trains the way back from what the model itself
has written."""

import jax
import numpy as np
import pytest

from tests.helpers import numpy_transformer as transformer
from tests.helpers import tiny
from tests.helpers.reference import GENERATOR, LANGUAGES, make_batch, random_model
from xlingjax.objectives.back_translation import BackTranslation
from xlingjax.objectives.translation import Translation


@pytest.fixture(scope="module")
def model_and_params():
    return random_model(GENERATOR)


def loss_of(objective, model, params, batch, rng=None):
    return jax.jit(lambda p, b: objective.loss(model, p, b, rng, LANGUAGES))(params, batch)


def reference(params, batch, smoothing=0.0):
    """(sum over the targets of the loss, of the negative log-likelihood, their number)."""
    memory = transformer.encode(GENERATOR, params, batch)
    h, used = transformer.decode(GENERATOR, params, batch, memory), batch["decoder_weights"] > 0
    log_p = transformer.log_probabilities(GENERATOR, params, h[used])
    nll = -log_p[np.arange(used.sum()), batch["decoder_targets"][used]]
    return ((1 - smoothing) * nll - smoothing * log_p.mean(-1)).sum(), nll.sum(), used.sum()


@pytest.mark.parametrize(
    "name, smoothing",
    [("translation", 0.0), ("translation", 0.2), ("span_corruption", 0.2), ("masked_words", 0.0)],
)
def test_teacher_forcing_equals_numpy(model_and_params, name, smoothing):
    model, params = model_and_params
    batch, objective = make_batch(name), Translation(name, smoothing=smoothing)
    loss = loss_of(objective, model, params, batch)
    total, nll, count = reference(params, batch, smoothing)
    np.testing.assert_allclose(loss.terms[name], total, rtol=2e-5)
    np.testing.assert_allclose(loss.metrics[f"{name}/loss"], (nll, count), rtol=2e-5)
    assert float(objective.weights(batch)[name]) == count > 10
    languages = np.bincount(
        batch["decoder_language_ids"][batch["decoder_weights"] > 0], minlength=LANGUAGES
    )
    np.testing.assert_array_equal(loss.metrics[f"{name}/loss_by_language"][1], languages)


def test_a_ramp_is_a_factor_by_the_step():
    objective = Translation("denoising", factor="0:1,100000:0.1,300000:0")
    (ramp,) = objective.coefficients.values()
    found = [float(ramp.at(step)) for step in (0, 50_000, 100_000, 200_000, 300_000, 900_000)]
    np.testing.assert_allclose(found, [1, 0.55, 0.1, 0.05, 0, 0], atol=1e-6)  # XLM's lambda
    np.testing.assert_allclose((3.0 * ramp).at(50_000), 1.65, rtol=1e-6)
    assert (
        Translation(factor=0.5).coefficients
        == {"translation": 0.5}
        == Translation(factor="0.5").coefficients
    )


# --- Back-translation -----------------------------------------------------------------------------


@pytest.mark.long
def test_no_gradient_reaches_the_generation_and_no_dropout_does(model_and_params):
    model, params = model_and_params
    batch = tiny.batch("back_translation", rows=4, length=12, vocab=90)
    fed = {**batch, **BackTranslation().translated(model, params, batch)}
    value_and_grad = lambda objective, batch: jax.jit(  # noqa: E731
        jax.value_and_grad(
            lambda p: objective.loss(model, p, batch, None, LANGUAGES).terms["back_translation"]
        )
    )(params)
    live, as_data = (
        value_and_grad(BackTranslation(), batch),
        value_and_grad(Translation("back_translation"), fed),
    )
    for a, b in zip(jax.tree.leaves(live), jax.tree.leaves(as_data), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    noisy = random_model(GENERATOR.replace(dropout=0.5, attention_dropout=0.5))[0]
    for name, value in BackTranslation().translated(noisy, params, batch).items():
        np.testing.assert_array_equal(value, fed[name], err_msg=name)
