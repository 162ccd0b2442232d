"""Plug-in fine-tuning: classes from [H; S] of an example in two languages, tags and spans from
those of every token of both sides."""

import jax
import numpy as np
import pytest

from tests.helpers import numpy_transformer as transformer
from tests.helpers.batches import check_batch
from tests.helpers.reference import CONFIG, LANGUAGES, loss_of, make_batch, random_model
from xlingjax.objectives.plug_in import PlugIn, PlugInSpans, PlugInTagging

CLASSES = CONFIG.replace(num_labels=3, classifier="plug_in")
CLASSIFYING = PlugIn(3)
TAGS = 3
CONFIGS = {
    "plug_in_tagging": CONFIG.replace(num_labels=TAGS, classifier="plug_in_tagging"),
    "plug_in_spans": CONFIG.replace(num_labels=2, classifier="plug_in_spans"),
}
OBJECTIVES = {"plug_in_tagging": PlugInTagging(TAGS), "plug_in_spans": PlugInSpans()}
BOTH = pytest.mark.parametrize("name", [*OBJECTIVES])


def make(name, rows=3, length=12):
    """Rows of two sides of unequal width, the last of which counts for nothing. Tags: y of the
    first row has none. Spans: x's answer of the first row, y's of the second is not in its window.
    """
    batch = make_batch("plug_in", packed=False, rows=rows, length=length)
    weights = batch.pop("example_weights")
    del batch["labels"]
    rng = np.random.default_rng(4)
    real = batch["pack_ids"] > 0
    if name == "plug_in_tagging":
        chosen = real & (rng.random(real.shape) < 0.6) & (weights[:, None] > 0)
        chosen[0] &= batch["sides"][0] == 0
        labels = rng.integers(0, TAGS, real.shape).astype(np.int32)
        return batch | {"tag_labels": labels * chosen, "tag_weights": chosen.astype(np.float32)}
    columns = np.zeros(real.shape, np.int32)
    batch["example_weights"] = weights
    for side, prefix, without in ((0, "", 0), (1, "beside_", 1)):
        for end in ("start_positions", "end_positions"):
            batch[prefix + end] = np.zeros(rows, np.int32)
        for row in range(rows):
            own = np.flatnonzero(real[row] & (batch["sides"][row] == side))
            context = own[2:]
            columns[row, [own[0], *context]] = 1
            ends = (own[0], own[0])
            if row % rows != without:
                ends = np.sort(rng.choice(context, 2))
            batch[f"{prefix}start_positions"][row], batch[f"{prefix}end_positions"][row] = ends
    return batch | {"answer_columns": columns}


def own(fields, q, k):
    return fields["sides"][q] == fields["sides"][k]


def other(fields, q, k):
    return not own(fields, q, k)


def logits_in_numpy(name, params, batch):
    h = transformer.encode(CONFIGS[name], params, batch, sees=own)
    s = transformer.encode(CONFIGS[name], params, batch, sees=own, memory=(h, other))
    head = jax.tree.map(np.float64, params["classifier"]["out"])
    return np.concatenate([h, s], -1) @ head["kernel"] + head["bias"]


def opened(batch):
    """y opens as x does."""
    ids = batch["input_ids"].copy()
    rows = np.arange(len(ids))
    ids[rows, batch["sides"].argmax(1)] = ids[:, 0]
    return batch | {"input_ids": ids}


def test_loss_of_classes_equals_numpy():
    model, params = random_model(CLASSES)
    # Three rows, the last of which counts for nothing.
    batch = make_batch("plug_in", packed=False)
    loss = loss_of(CLASSIFYING, model, params, batch)
    second = batch["sides"].argmax(1)
    two = opened(batch)
    h = transformer.encode(CLASSES, params, two, sees=own)
    s = transformer.encode(CLASSES, params, two, sees=own, memory=(h, other))
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
        == set(CLASSIFYING.coefficients)
        == set(CLASSIFYING.weights(batch))
        == {"plug_in"}
    )
    np.testing.assert_allclose(loss.terms["plug_in"], sum(nll), rtol=2e-5)
    assert float(CLASSIFYING.weights(batch)["plug_in"]) == 4
    assert len({round(value, 3) for value in nll}) == 4
    np.testing.assert_allclose(loss.metrics["plug_in/accuracy"], (sum(right), 4))
    total, count = loss.metrics["plug_in/loss_by_language"]
    np.testing.assert_allclose(total, np.bincount(languages, nll, LANGUAGES), rtol=2e-5)
    np.testing.assert_array_equal(count, np.bincount(languages, minlength=LANGUAGES))


def test_loss_of_tags_equals_numpy():
    model, params = random_model(CONFIGS["plug_in_tagging"])
    batch, objective = make("plug_in_tagging"), OBJECTIVES["plug_in_tagging"]
    check_batch(batch, objective.reads)
    loss = loss_of(objective, model, params, batch)
    logits = logits_in_numpy("plug_in_tagging", params, opened(batch))
    nll = (
        np.log(np.exp(logits).sum(-1))
        - np.take_along_axis(logits, batch["tag_labels"][..., None], -1)[..., 0]
    )
    weights = batch["tag_weights"]
    per_side = [(weights * (batch["sides"] == side)).sum() for side in (0, 1)]
    assert min(per_side) > 0 and not (weights * batch["sides"])[0].any()
    np.testing.assert_allclose(loss.terms["plug_in_tagging"], (nll * weights).sum(), rtol=2e-5)
    assert float(objective.weights(batch)["plug_in_tagging"]) == weights.sum()
    right = (logits.argmax(-1) == batch["tag_labels"]) * weights
    np.testing.assert_allclose(
        loss.metrics["plug_in_tagging/accuracy"], (right.sum(), weights.sum())
    )


def test_loss_of_spans_equals_numpy():
    model, params = random_model(CONFIGS["plug_in_spans"])
    batch, objective = make("plug_in_spans"), OBJECTIVES["plug_in_spans"]
    check_batch(batch, objective.reads)
    loss = loss_of(objective, model, params, batch)
    logits = logits_in_numpy("plug_in_spans", params, opened(batch))
    losses, languages = [], []
    for side, prefix in ((0, ""), (1, "beside_")):
        for row in (0, 1):  # the third has weight 0
            columns = np.flatnonzero(batch["answer_columns"][row] * (batch["sides"][row] == side))
            nll = []
            for end, key in enumerate(("start_positions", "end_positions")):
                scores = logits[row, columns, end]
                (at,) = np.flatnonzero(columns == batch[prefix + key][row])
                nll.append(np.log(np.exp(scores).sum()) - scores[at])
            losses.append(np.mean(nll))
            first = np.flatnonzero(batch["sides"][row] == side)[0]
            languages.append(batch["language_ids"][row, first])
    np.testing.assert_allclose(loss.terms["plug_in_spans"], sum(losses), rtol=2e-5)
    assert float(objective.weights(batch)["plug_in_spans"]) == 4
    assert len({round(float(value), 3) for value in losses}) == 4
    total, count = loss.metrics["plug_in_spans/loss_by_language"]
    np.testing.assert_allclose(total, np.bincount(languages, losses, LANGUAGES), rtol=2e-5)
    np.testing.assert_array_equal(count, np.bincount(languages, minlength=LANGUAGES))


@BOTH
def test_an_empty_row_has_a_finite_loss(name):
    model, params = random_model(CONFIGS[name])
    batch, objective = make(name), OBJECTIVES[name]
    empty = {
        field: np.where(np.arange(3).reshape(3, *[1] * (value.ndim - 1)) == 2, 0, value).astype(
            value.dtype
        )
        for field, value in batch.items()
    }
    (value, gradient) = jax.jit(
        jax.value_and_grad(lambda p, b: objective.loss(model, p, b, None, LANGUAGES).terms[name])
    )(params, empty)
    want = loss_of(objective, model, params, batch).terms[name]
    np.testing.assert_allclose(value, want, rtol=1e-5)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
