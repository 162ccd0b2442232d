"""Span question answering: the loss in NumPy, its columns, its mask, microbatches and meshes."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.helpers import numpy_transformer as transformer
from tests.helpers.reference import CONFIG, LANGUAGES, loss_of, random_model
from tests.training.test_step import ONE, assert_close, step_of
from xlingjax.data.features import check_batch
from xlingjax.errors import UserError
from xlingjax.model.attention import AttentionSpec
from xlingjax.model.build import build_model
from xlingjax.model.encoder import Encoder
from xlingjax.model.masks import causal
from xlingjax.model.partition import MeshConfig
from xlingjax.objectives.finetuning import Classification
from xlingjax.objectives.leak import visibility
from xlingjax.objectives.span_qa import SpanQA

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


def test_the_batch_is_what_the_objective_reads(batch):
    check_batch(batch, OBJECTIVE.reads, {name: values.shape for name, values in batch.items()})
    assert set(batch) == set(OBJECTIVE.reads)


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


def test_accuracy_is_of_rows_with_both_columns_right(model_and_params, batch):
    model, params = model_and_params
    logits = np.asarray(jax.jit(lambda p, b: OBJECTIVE.logits(model, p, b))(params, batch))
    best = logits.argmax(1).astype(np.int32)
    assert (np.take_along_axis(batch["answer_columns"], best, axis=1)[:4] == 1).all()
    right = batch | {"start_positions": best[:, 0], "end_positions": best[:, 1]}
    assert float(loss_of(OBJECTIVE, model, params, right).metrics["span_qa/accuracy"][0]) == 4
    ends = right["end_positions"].copy()
    ends[1] = 0 if best[1, 1] else batch["end_positions"][1]
    found = loss_of(OBJECTIVE, model, params, right | {"end_positions": ends})
    assert float(found.metrics["span_qa/accuracy"][0]) == 3


def test_no_other_column_can_answer(model_and_params, batch):
    """Questions, separators and padding have no share of the probability."""
    model, params = model_and_params
    logits = np.asarray(jax.jit(lambda p, b: OBJECTIVE.logits(model, p, b))(params, batch))
    p = np.asarray(jax.nn.softmax(logits, axis=1))
    assert (p[batch["answer_columns"] == 0][:-12] == 0).all() and np.isfinite(p).all()
    assert (p[:4][batch["answer_columns"][:4] == 1] > 0).all()


def test_a_row_of_weight_0_counts_for_nothing(model_and_params, batch):
    model, params = model_and_params
    total = jax.jit(
        jax.value_and_grad(
            lambda p, b: OBJECTIVE.loss(model, p, b, None, LANGUAGES).terms["span_qa"]
        )
    )
    filled = {name: values.copy() for name, values in batch.items()}
    for name in filled.keys() - {"example_weights"}:
        filled[name][4] = filled[name][2]
    (a, grad_a), (b, grad_b) = total(params, batch), total(params, filled)
    np.testing.assert_allclose(a, b, rtol=1e-6)
    for x, y in zip(jax.tree.leaves(grad_a), jax.tree.leaves(grad_b), strict=True):
        assert np.isfinite(x).all()
        np.testing.assert_allclose(x, y, atol=1e-6)
    assert np.abs(grad_a["classifier"]["out"]["kernel"]).min() > 1e-6  # both columns are trained


class SeesTheLeftAlone(SpanQA):
    def attention(self):
        return AttentionSpec(causal, packed=False)


def test_every_token_of_a_row_sees_every_other_and_no_padding(model_and_params, batch):
    model, params = model_and_params
    seen = visibility(model, params, batch, OBJECTIVE.attention())
    assert seen.leaks.tolist() == [] and seen.blocked.tolist() == []
    real = batch["pack_ids"] > 0
    both = real[:, :, None] & real[:, None, :]
    np.testing.assert_array_equal(seen.moved[:4], (both | np.eye(12, dtype=bool))[:4])
    assert OBJECTIVE.masks()["attention"] == OBJECTIVE.attention().mask
    narrow = visibility(model, params, batch, SeesTheLeftAlone().attention())
    assert (narrow.moved != seen.moved).any()


def test_the_mask_stated_is_the_mask_used(model_and_params, batch, monkeypatch):
    model, params = model_and_params
    used, encode = [], Encoder.encode

    def watched(self, params, batch, spec, **options):
        used.append(spec)
        return encode(self, params, batch, spec, **options)

    monkeypatch.setattr(Encoder, "encode", watched)
    jax.eval_shape(lambda p: OBJECTIVE.loss(model, p, batch, None, LANGUAGES), params)
    assert used == [OBJECTIVE.attention()]


@pytest.mark.long
def test_four_microbatches_over_eight_devices_change_nothing(tiny_config):
    encoder = build_model(tiny_config.replace(layers=1, num_labels=2, classifier="spans"))
    params, rows, after = jax.jit(encoder.init)(jax.random.key(0)), make(16, vocab=96), []
    for mesh, microbatches in ((ONE, 1), (MeshConfig(2, 2, 2), 4)):
        state, step = step_of(encoder, params, OBJECTIVE, mesh, microbatches)
        after.append(step(state, rows))
    (one, sums), (eight, eight_sums) = after
    assert_close(eight.params, one.params)
    assert_close(eight_sums, sums)
    assert (
        np.abs(
            np.asarray(
                one.params["classifier"]["out"]["kernel"] - params["classifier"]["out"]["kernel"]
            )
        ).min()
        > 1e-3
    )
    loss, weight = sums["metrics"]["span_qa/loss"]
    np.testing.assert_allclose(sums["total"], loss / weight, rtol=1e-5)


def test_dropout_only_with_a_key(batch):
    model, params = random_model(SPANS.replace(classifier_dropout=0.5))
    drawn = jax.jit(lambda key=None: OBJECTIVE.logits(model, params, batch, key))
    assert (drawn() == drawn()).all()
    a, b = np.asarray(drawn(jax.random.key(0))), np.asarray(drawn(jax.random.key(1)))
    assert (
        np.abs(a - b)[batch["answer_columns"] > 0].max() > 1e-2
        and (a == np.asarray(drawn(jax.random.key(0)))).all()
    )


def test_models_that_do_not_fit_are_refused(batch):
    def refused(objective, part, **changes):
        model = Encoder(SPANS.replace(**changes))
        fields = batch | {"labels": batch["start_positions"], "sides": batch["pack_ids"]}
        with pytest.raises(UserError, match=part):
            jax.eval_shape(
                lambda p: objective.loss(model, p, fields, None, LANGUAGES), model.abstract()
            )

    refused(OBJECTIVE, "num_labels=3.*num_labels=2.*gin/runs/span_qa.gin", num_labels=3)
    refused(OBJECTIVE, "classifier='xlmr'", classifier="xlmr")
    refused(Classification(2), "'spans'.*gin/runs/span_qa.gin")


def test_it_is_a_value():
    assert SpanQA() == SpanQA() and hash(SpanQA()) == hash(SpanQA())
    assert dataclasses.asdict(SpanQA())["name"] == "span_qa"
