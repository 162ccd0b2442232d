"""Span question answering: the loss in NumPy, its columns, its mask, microbatches and meshes."""

import jax
import numpy as np
import pytest

from tests.helpers import numpy_transformer as transformer
from tests.helpers.reference import CONFIG, LANGUAGES, loss_of, random_model
from xlingjax.objectives.finetuning import SpanQA

SPANS = CONFIG.replace(
    num_labels=2, classifier="spans", cross_attention=False, word_recovery=False, paraphrase=False
)
OBJECTIVE = SpanQA()


def make(rows, length=12, vocab=90, seed=0):
    """Rows `</s> question </s> context </s>` of unequal width, the last one empty; the first answer
    is not in its window."""
    rng = np.random.default_rng(seed)
    fields = {
        name: np.zeros((rows, length), np.int32)
        for name in (
            "input_ids",
            "position_ids",
            "language_ids",
            "pack_ids",
            "sides",
            "answer_columns",
        )
    }
    fields["input_ids"][:] = 2
    fields |= {name: np.zeros(rows, np.int32) for name in ("start_positions", "end_positions")}
    fields["example_weights"] = (np.arange(rows) < rows - 1).astype(np.float32)
    for row in range(rows - 1):
        used = int(rng.integers(8, length + 1)) if row else length
        asked = int(rng.integers(1, 4))
        fields["input_ids"][row, :used] = rng.integers(14, vocab, used)
        fields["input_ids"][row, [0, asked + 1, used - 1]] = 1
        fields["position_ids"][row, :used] = np.arange(used)
        fields["language_ids"][row, :used] = rng.integers(LANGUAGES)
        fields["pack_ids"][row, :used] = 1
        fields["sides"][row, asked + 2 : used] = 1
        fields["answer_columns"][row, [0, *range(asked + 2, used - 1)]] = 1
        if row:
            start, end = np.sort(rng.integers(asked + 2, used - 1, 2))
            fields["start_positions"][row], fields["end_positions"][row] = start, end
    return fields


@pytest.fixture(scope="module")
def model_and_params():
    return random_model(SPANS)


@pytest.fixture(scope="module")
def batch():
    return make(5)


def test_loss_and_metrics_equal_numpy(model_and_params, batch):
    model, params = model_and_params
    loss = loss_of(OBJECTIVE, model, params, batch)
    h_BLD = transformer.encode(SPANS, params, batch)
    head = jax.tree.map(np.float64, params["classifier"]["out"])
    nll, right = [], []
    for row in range(4):  # the fifth has weight 0
        columns = np.flatnonzero(batch["answer_columns"][row])
        scores = h_BLD[row, columns] @ head["kernel"] + head["bias"]
        wanted = batch["start_positions"][row], batch["end_positions"][row]
        at = [columns.tolist().index(column) for column in wanted]
        nll.append(sum(np.log(np.exp(scores[:, i]).sum()) - scores[at[i], i] for i in (0, 1)) / 2)
        right.append(all(scores[:, i].argmax() == at[i] for i in (0, 1)))
    assert (
        set(loss.terms)
        == set(OBJECTIVE.coefficients)
        == set(OBJECTIVE.weights(batch))
        == {"span_qa"}
    )
    np.testing.assert_allclose(loss.terms["span_qa"], sum(nll), rtol=2e-5)
    assert float(OBJECTIVE.weights(batch)["span_qa"]) == 4
    assert len({round(value, 3) for value in nll}) == 4
    np.testing.assert_allclose(loss.metrics["span_qa/accuracy"], (sum(right), 4))
    total, count = loss.metrics["span_qa/loss_by_language"]
    languages = batch["language_ids"][:4, 0]
    np.testing.assert_allclose(total, np.bincount(languages, nll, LANGUAGES), rtol=2e-5)
    np.testing.assert_array_equal(count, np.bincount(languages, minlength=LANGUAGES))
