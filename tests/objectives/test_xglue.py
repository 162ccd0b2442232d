"""xFNP's loss in NumPy, what each stream's predictions depend on, and fine-tuning (XGLUE §4.2)."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.helpers import numpy_transformer as transformer
from tests.helpers.reference import LANGUAGES, NGRAM, make_batch, random_model
from xlingjax.objectives.leak import prediction_visibility
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


def test_factor_and_alphas_multiply():
    assert XFNP(factor=2).coefficients == {"xfnp_0": 2.0, "xfnp_1": 2.0}
    ramps = XFNP(factor="0:1,100:0", alphas=(1.0, 0.5)).coefficients
    assert [float(ramp.at(50)) for ramp in ramps.values()] == [0.5, 0.25]


@pytest.mark.parametrize("skip", ["target", "runs"])
def test_streams_see_no_word_nearer_than_their_own(skip):
    """Stream i predicts a word from none of those that stand i or fewer before it in the text; at
    the start of a run from nothing of the run, nor from the word in front of it, and from the
    others of the runs before, each at its own distance."""
    model, params = random_model(NGRAM.replace(streams=3))
    batch = make_batch("xfnp", rows=5, length=23)
    width = batch["input_ids"].shape[1]
    objective = XFNP(alphas=(1.0,) * 3, skip=skip)
    starts = 0
    for i, seen in enumerate(prediction_visibility(objective, model, params, batch).values()):
        assert seen.leaks.tolist() == [] and seen.blocked.tolist() == []
        for row, t in np.argwhere(seen.columns >= 0).tolist():
            offset, pack = batch["run_offsets"][row, t], batch["decoder_pack_ids"][row]
            positions = batch["decoder_position_ids"][row]
            at = np.flatnonzero(seen.moved[row, t, width:])
            first = int(np.flatnonzero(pack == pack[t])[0])
            assert at.tolist() == list(range(first, t - i + 1))
            # What is predicted stands one behind what is read in its column.
            away = positions[t] + 1 - positions[at]
            assert at.size and (away > i).all()
            if offset < i:
                assert skip == "target" and (positions[at] < positions[t - offset]).all()
                starts += 1
    assert (starts > 10) == (skip == "target")
