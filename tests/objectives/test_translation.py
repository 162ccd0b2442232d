"""Teacher forcing against NumPy; back-translation trains the way back from what the model itself
has written."""

import jax
import numpy as np
import pytest

from tests.helpers import numpy_transformer as transformer
from tests.helpers import tiny
from tests.helpers.reference import GENERATOR, LANGUAGES, make_batch, random_model
from xlingjax.errors import UserError
from xlingjax.model.decoding import Decoding, Ids
from xlingjax.model.generation import generate
from xlingjax.objectives.back_translation import BackTranslation
from xlingjax.objectives.ramp import Ramp
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
    for wrong in ("5:1", "0:1,10:x", "0:1,10:2,10:3", "half", ""):
        with pytest.raises(UserError, match="write a number, or STEP:VALUE"):
            Ramp.parse(wrong)


# --- Back-translation -----------------------------------------------------------------------------


def written(model, params, batch):
    """[(row, ids)]: the model's greedy translations, each from a call of its own on a batch of one
    row."""
    ids = Ids(tiny.EOS, tiny.PAD, tuple(range(1, tiny.FIRST_PIECE)))
    for row in np.flatnonzero(batch["pack_ids"][:, 0]):
        one = {name: values[row : row + 1] for name, values in batch.items()}
        start, language = np.array([tiny.EOS], np.int32), one["pivot_languages"]
        columns = one["input_ids"].shape[1] - 1
        found = generate(
            model, params, one, start, language, ids, Decoding(max_length=(0.5, 2)), columns
        )
        yield row, np.asarray(found.ids)[0, 0, : int(found.lengths[0, 0])]


@pytest.mark.long
def test_the_source_of_the_second_pass_is_what_the_model_writes(model_and_params):
    model, params = model_and_params
    languages = {
        "languages": jax.tree.map(lambda x: 4 * x, params["embeddings"]["languages"])
    }  # which one shows
    params = {**params, "head": {"bias": params["head"]["bias"].at[tiny.EOS].add(1.8)}}
    params["embeddings"] = {**params["embeddings"], **languages}
    batch = tiny.batch("back_translation", rows=6, length=12, vocab=90)
    found = jax.jit(BackTranslation(max_length=(0.5, 2)).translated, static_argnums=0)(
        model, params, batch
    )
    found, texts = (
        {name: np.asarray(x) for name, x in found.items()},
        dict(written(model, params, batch)),
    )
    ends = {row: text[-1] == tiny.EOS for row, text in texts.items()}
    assert (
        len(texts) == 5
        and len({*map(len, texts.values())}) > 1
        and {*ends.values()} == {True, False}
    )
    for row in range(6):
        ids = [tiny.BOS, *texts[row]] if row in texts else []
        if ids:
            ids[-1] = tiny.EOS  # also where it was cut
        padding = [0] * (12 - len(ids))
        np.testing.assert_array_equal(found["input_ids"][row], ids + [tiny.PAD] * len(padding))
        np.testing.assert_array_equal(found["position_ids"][row], [*range(len(ids)), *padding])
        np.testing.assert_array_equal(found["pack_ids"][row], [1] * len(ids) + padding)
        language = [batch["pivot_languages"][row]] * len(ids)
        np.testing.assert_array_equal(found["language_ids"][row], language + padding)
    ordinary = found["input_ids"][found["input_ids"] != tiny.PAD]
    assert ((ordinary >= tiny.FIRST_PIECE) | (ordinary == tiny.EOS)).all() and (ordinary < 90).all()


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
    with_rng = BackTranslation().translated(noisy, params, batch, jax.random.key(3))
    for name, value in with_rng.items():
        np.testing.assert_array_equal(value, fed[name], err_msg=name)


def test_with_a_translator_that_copies_it_is_auto_encoding(model_and_params, monkeypatch):
    """XLM §4.2: the second pass then reads the text itself, in the pivot's language."""
    model, params = model_and_params
    batch = tiny.batch("back_translation", rows=4, length=12, vocab=90)
    same = {name: batch[name] for name in ("input_ids", "position_ids", "language_ids", "pack_ids")}
    monkeypatch.setattr(BackTranslation, "translated", lambda *_: same)
    loss = loss_of(BackTranslation(), model, params, batch)
    np.testing.assert_allclose(
        loss.terms["back_translation"], reference(params, batch)[0], rtol=2e-5
    )
