import jax
import numpy as np
import pytest

from tests.helpers import numpy_transformer as reference
from tests.helpers import tiny
from tests.helpers.reference import loss_of
from xlingjax.model.config import preset
from xlingjax.model.encoder import Encoder
from xlingjax.objectives.xlm import CLM, MLM, TLM

LANGUAGES = len(tiny.LANGUAGES)
CONFIG = preset(
    "tiny",
    layers=2,
    dim=16,
    heads=2,
    ffn=32,
    vocab_size=90,
    max_positions=24,
    num_languages=LANGUAGES,
    dropout=0.0,
    unroll=1,
)


def make_batch(name, **options):
    """The tiny batch of an objective, with one packed row."""
    batch = tiny.batch(name, rows=3, length=12, vocab=90, **options)
    batch["pack_ids"][0, 7:] = 2
    batch["position_ids"][0, 7:] = np.arange(5)
    return batch


@pytest.fixture(scope="module")
def model():
    return Encoder(CONFIG)


@pytest.fixture(scope="module")
def params(model):
    return tiny.params(model, noise=0.2)


def predictions(objective, batch):
    """(row, column of the state, target, language) of every prediction, by the definition."""
    if objective.name != "clm":
        for row, column in zip(*np.nonzero(batch["masked_weights"]), strict=True):
            position = batch["masked_positions"][row, column]
            yield (
                row,
                position,
                batch["masked_targets"][row, column],
                batch["language_ids"][row, position],
            )
        return
    for row, pack in enumerate(batch["pack_ids"]):
        for t in range(len(pack) - 1):
            if (
                pack[t] > 0
                and pack[t + 1] == pack[t]
                and batch["position_ids"][row, t] >= objective.context_size
            ):
                yield row, t, batch["input_ids"][row, t + 1], batch["language_ids"][row, t + 1]


@pytest.mark.parametrize(
    "objective", [MLM(), TLM(), CLM(), CLM(context_size=3), MLM(chunk=4)], ids=str
)
def test_loss_equals_numpy(model, params, objective):
    batch = make_batch(objective.name)
    loss = loss_of(objective, model, params, batch)
    h = reference.encode(CONFIG, params, batch, causal=objective.name == "clm")
    nll, hits, count = (np.zeros(LANGUAGES) for _ in range(3))
    for row, column, target, language in predictions(objective, batch):
        log_p = reference.log_probabilities(CONFIG, params, h[row, column])
        nll[language] -= log_p[target]
        hits[language] += log_p.argmax() == target
        count[language] += 1
    assert count.sum() > 3
    name = objective.name
    np.testing.assert_allclose(loss.terms[name], nll.sum(), rtol=1e-5)
    np.testing.assert_allclose(loss.metrics[f"{name}/loss"], [nll.sum(), count.sum()], rtol=1e-5)
    np.testing.assert_allclose(loss.metrics[f"{name}/accuracy"], [hits.sum(), count.sum()])
    np.testing.assert_allclose(loss.metrics[f"{name}/loss_by_language"], [nll, count], rtol=1e-5)
    np.testing.assert_allclose(loss.metrics[f"{name}/accuracy_by_language"], [hits, count])
    assert set(loss.terms) == set(objective.weights(batch)) == set(objective.coefficients) == {name}
    np.testing.assert_array_equal(objective.weights(batch)[name], count.sum())


@pytest.mark.parametrize("objective", [MLM(), TLM(), CLM()], ids=lambda o: o.name)
def test_appended_padding_leaves_the_loss_unchanged(model, params, objective):
    batch = make_batch(objective.name)
    longer = {
        k: np.pad(v, ((0, 0), (0, 4)), constant_values=tiny.PAD if k == "input_ids" else 0)
        for k, v in batch.items()
    }
    short, long = (
        loss_of(objective, model, params, b).terms[objective.name] for b in (batch, longer)
    )
    np.testing.assert_allclose(long, short, rtol=1e-6)


def test_unused_slots_pay_nothing(model, params):
    batch = make_batch("mlm", slots=4)
    unused = batch["masked_weights"] == 0
    assert unused.any()
    other = {
        **batch,
        "masked_targets": np.where(unused, 33, batch["masked_targets"]).astype(np.int32),
    }
    other["masked_positions"] = np.where(unused, 5, batch["masked_positions"]).astype(np.int32)
    grad = jax.jit(
        jax.value_and_grad(lambda p, b: MLM().loss(model, p, b, None, LANGUAGES).terms["mlm"])
    )
    for a, b in zip(*(jax.tree.leaves(grad(params, x)) for x in (batch, other)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
