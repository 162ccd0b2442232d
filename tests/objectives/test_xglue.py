"""xFNP's loss in NumPy, what each stream's predictions depend on, and fine-tuning (XGLUE §4.2)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import numpy_transformer as transformer
from tests.helpers.reference import GENERATOR, LANGUAGES, NGRAM, make_batch, random_model
from xlingjax.objectives.leak import prediction_visibility
from xlingjax.objectives.translation import Translation
from xlingjax.objectives.xglue import XFNP

OBJECTIVE = XFNP(alphas=(1.0, 0.5), smoothing=0.1, skip="runs")
PAPERS = dataclasses.replace(OBJECTIVE, skip="target")
FINE_TUNING = XFNP(skip="none")


@pytest.fixture(scope="module")
def ngram():
    return random_model(NGRAM)


def words_before(batch, row, t):
    """How many words of the target of its example the decoder has before column t."""
    pack = batch["decoder_pack_ids"][row]
    return int((pack[:t] == pack[t]).sum())


def loss_of(objective, model, params, batch):
    return jax.jit(lambda p, b: objective.loss(model, p, b, None, LANGUAGES))(params, batch)


@pytest.mark.parametrize(
    ("objective", "data"),
    [(OBJECTIVE, "xfnp"), (PAPERS, "xfnp"), (FINE_TUNING, "translation")],
    ids=["runs", "target", "fine-tuning"],
)
def test_the_loss_equals_numpy(ngram, objective, data):
    model, params = ngram
    batch = make_batch(data)
    loss = loss_of(objective, model, params, {name: batch[name] for name in objective.reads})
    memory = transformer.encode(NGRAM, params, batch)
    h = transformer.decode_streams(NGRAM, params, batch, memory)
    total, predictions = 0.0, 0
    for i, alpha in enumerate(objective.alphas):
        smoothed, nll, count = np.zeros(LANGUAGES), np.zeros(LANGUAGES), np.zeros(LANGUAGES)
        for row, t in zip(*np.nonzero(batch["decoder_weights"]), strict=True):
            if objective.skip == "runs" and batch["run_offsets"][row, t] < i:
                continue
            if objective.skip == "target" and words_before(batch, row, t) < i:
                continue
            log_p = transformer.log_probabilities(NGRAM, params, h[i, row, t])
            language, target = (
                batch["decoder_language_ids"][row, t],
                batch["decoder_targets"][row, t],
            )
            e = objective.smoothing
            smoothed[language] += -(1 - e) * log_p[target] - e * log_p.mean()
            nll[language] -= log_p[target]
            count[language] += 1
        term = f"xfnp_{i}"
        np.testing.assert_allclose(loss.terms[term], smoothed.sum(), rtol=2e-5)
        np.testing.assert_allclose(
            loss.metrics[f"{term}/loss"], (nll.sum(), count.sum()), rtol=2e-5
        )
        np.testing.assert_allclose(
            loss.metrics[f"{term}/loss_by_language"], (nll, count), rtol=2e-5
        )
        total, predictions = total + alpha * smoothed.sum(), predictions + count.sum()
    assert (
        set(loss.terms)
        == set(objective.coefficients)
        == set(objective.weights(batch))
        == {"xfnp_0", "xfnp_1"}
    )
    weights, factors = objective.weights(batch), objective.coefficients
    assert predictions > 10
    np.testing.assert_allclose(
        sum(factors[term] * value / weights[term] for term, value in loss.terms.items()),
        total / predictions,
        rtol=2e-5,
    )


def test_streams_skip_the_first_words_of_each_run():
    batch = make_batch("xfnp")
    runs = int((batch["decoder_weights"] * (batch["run_offsets"] == 0)).sum())
    words = int(batch["decoder_weights"].sum())
    assert words == 3 * runs > 6
    counts = [
        float(XFNP(alphas=(1.0,) * n, skip="runs").weights(batch)["xfnp_0"]) for n in (1, 2, 3)
    ]
    assert counts == [words, 2 * words - runs, 3 * words - 3 * runs]
    assert float(XFNP(alphas=(1.0,) * 3, skip="none").weights(batch)["xfnp_2"]) == 3 * words
    assert "run_offsets" in XFNP().reads and "run_offsets" not in FINE_TUNING.reads


def test_the_papers_sums_go_over_the_whole_target():
    """The words y_1 .. y_|Y| by stream 0, y_2 .. y_|Y| by stream 1, y_3 .. y_|Y| by stream 2
    (XGLUE §4.2), of each example, however many runs it has."""
    batch = make_batch("xfnp", rows=5, length=23)
    want, several = np.zeros(3), 0
    for packs in batch["decoder_pack_ids"]:
        sizes = [int((packs == pack).sum()) for pack in set(packs.tolist()) - {0}]
        several += len(sizes) > 1
        for size in sizes:
            want += [size, size - 1, size - 2]
    examples = want[0] - want[1]
    runs = int((batch["decoder_weights"] * (batch["run_offsets"] == 0)).sum())
    assert several and runs > examples + 2
    for n in (1, 2, 3):
        papers = XFNP(alphas=(1.0,) * n, skip="target")
        assert float(papers.weights(batch)[f"xfnp_{n - 1}"]) == want[:n].sum()
    # The pages of both readings show how the source hides the runs.
    assert PAPERS.reads == OBJECTIVE.reads


def support(objective, model, params, batch):
    """{term: bool [B, T, words]}: is the gradient of a prediction's state for a word's embedding
    not 0?"""
    rows, length = objective.words(batch)["input_ids"].shape
    toward_D = np.random.default_rng(3).normal(size=model.config.dim)

    def states(shift_BLD):
        found = objective.predictions(model, params, batch, None, shift_BLD)
        return {
            term: (of.states @ toward_D).sum(0) for term, of in found.items()
        }  # rows see nothing of each other

    gradients = jax.jit(jax.jacrev(states))(jnp.zeros((rows, length, model.config.dim)))
    return {
        term: np.asarray(g_TBLD != 0).any(-1).swapaxes(0, 1) for term, g_TBLD in gradients.items()
    }


@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.long), 3])
def test_a_stream_depends_on_the_words_before_its_own_last_ones(n):
    """The gradient is exactly 0 for y_{t-i} and all words behind it, and for nothing else of the
    example."""
    model, params = random_model(NGRAM.replace(streams=n))
    batch = make_batch("xfnp")
    found = support(XFNP(alphas=(1.0,) * n, skip="none"), model, params, batch)
    width, pack = batch["input_ids"].shape[1], batch["decoder_pack_ids"]
    for row, t in np.argwhere(pack > 0).tolist():
        first = int(np.flatnonzero(pack[row] == pack[row, t])[0])
        for i in range(n):
            seen = found[f"xfnp_{i}"][row, t]
            np.testing.assert_array_equal(seen[:width], batch["pack_ids"][row] == pack[row, t])
            # Column c holds the word before y_c.
            assert np.flatnonzero(seen[width:]).tolist() == list(
                range(first, max(t - i, first) + 1)
            )


@pytest.mark.long
def test_one_stream_depends_on_what_an_ordinary_decoder_does():
    batch = make_batch("translation")
    one = support(XFNP(alphas=(1.0,), skip="none"), *random_model(NGRAM.replace(streams=1)), batch)
    ordinary = support(Translation(), *random_model(GENERATOR), batch)
    used = batch["decoder_pack_ids"] > 0
    np.testing.assert_array_equal(one["xfnp_0"][used], ordinary["translation"][used])


@pytest.mark.parametrize("packed", [True, pytest.param(False, marks=pytest.mark.long)])
def test_fine_tuning_predicts_the_first_word_too(ngram, packed):
    """Of which stream 1 knows no more than stream 0: the start of the target."""
    batch = make_batch("translation", packed)
    width, pack = batch["input_ids"].shape[1], batch["decoder_pack_ids"]
    for term, seen in prediction_visibility(FINE_TUNING, *ngram, batch).items():
        i = int(term[-1])
        assert seen.leaks.tolist() == [] and seen.blocked.tolist() == []
        np.testing.assert_array_equal(seen.columns >= 0, pack > 0)
        for row, t in np.argwhere(pack > 0).tolist():
            first = int(np.flatnonzero(pack[row] == pack[row, t])[0])
            want = list(range(first, max(t - i, first) + 1))
            assert np.flatnonzero(seen.allowed[row, t, width:]).tolist() == want


def test_stream_0_is_what_translation_trains(ngram):
    batch = make_batch("xfnp")
    both = loss_of(XFNP(smoothing=0.1), *ngram, batch)
    alone = loss_of(Translation(smoothing=0.1), *ngram, batch)
    np.testing.assert_allclose(alone.terms["translation"], both.terms["xfnp_0"], rtol=1e-6)


def test_factor_and_alphas_multiply():
    assert XFNP(factor=2).coefficients == {"xfnp_0": 2.0, "xfnp_1": 2.0}
    ramps = XFNP(factor="0:1,100:0", alphas=(1.0, 0.5)).coefficients
    assert [float(ramp.at(50)) for ramp in ramps.values()] == [0.5, 0.25]
