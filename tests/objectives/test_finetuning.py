import math

import jax
import numpy as np
import pytest

from tests.helpers import numpy_transformer as transformer
from tests.helpers import toy
from tests.helpers.reference import GENERATOR, random_model
from xlingjax.data.labelled.records import Example
from xlingjax.errors import UserError
from xlingjax.objectives.finetuning import Classification, Tagging
from xlingjax.preprocessors.finetuning import classification_rows

LABELS = ("contradiction", "entailment", "neutral")
VOCABULARY = toy.ToyVocabulary()


@pytest.fixture(scope="module")
def model():
    return toy.model(num_labels=3)


@pytest.fixture(scope="module")
def batch():
    """Nine examples in three languages and three filler rows."""
    texts, labels = toy.sentences(18, seed=4), np.random.default_rng(0).integers(3, size=9)
    parts = [
        classification_rows(
            [Example(texts[i], texts[i + 9], LABELS[labels[i]]) for i in range(g, 9, 3)],
            VOCABULARY,
            24,
            LABELS,
            g,
        )
        for g in range(3)
    ]
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {
        name: np.pad(values, [(0, 3)] + [(0, 0)] * (values.ndim - 1))
        for name, values in rows.items()
    }


def test_loss_and_metrics_against_numpy(model, batch):
    encoder, params = model
    objective = Classification(3)
    loss = jax.jit(lambda p, b: objective.loss(encoder, p, b, None, 3))(params, batch)
    h_BLD = jax.jit(lambda p, b: encoder.encode(p, b, objective.attention()))(params, batch)
    head = jax.tree.map(np.asarray, params["classifier"]["out"])
    logits = np.asarray(h_BLD, np.float64)[:9, 0] @ head["kernel"] + head["bias"]
    nll = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(9), batch["labels"][:9]]
    correct = logits.argmax(axis=1) == batch["labels"][:9]
    assert set(loss.terms) == set(objective.coefficients) == {"classification"}
    # A sum, filler rows not in it.
    assert float(loss.terms["classification"]) == pytest.approx(nll.sum(), rel=1e-5)
    assert float(objective.weights(batch)["classification"]) == 9
    total, count = loss.metrics["classification/accuracy"]
    assert (float(total), float(count)) == (correct.sum(), 9)
    total, count = loss.metrics["classification/loss_by_language"]
    np.testing.assert_allclose(total, nll.reshape(3, 3).sum(axis=1), rtol=1e-5)
    assert count.tolist() == [3, 3, 3]
    total, _ = loss.metrics["classification/accuracy_by_language"]
    assert total.tolist() == correct.reshape(3, 3).sum(axis=1).tolist()


def test_the_loss_of_tags_against_numpy(batch):
    encoder, params = toy.model(num_labels=3, classifier="tagging")
    objective, rng = Tagging(3), np.random.default_rng(2)
    used = batch["pack_ids"] > 0
    rows = {name: batch[name] for name in objective.reads if name in batch}
    rows["tag_weights"] = (used & (rng.random(used.shape) < 0.6)).astype(np.float32)
    rows["tag_labels"] = rng.integers(3, size=used.shape).astype(np.int32)
    logits = np.asarray(jax.jit(lambda b: objective.logits(encoder, params, b))(rows), np.float64)
    nll = np.log(np.exp(logits).sum(-1))
    nll -= np.take_along_axis(logits, rows["tag_labels"][..., None], -1)[..., 0]
    right, weights = logits.argmax(-1) == rows["tag_labels"], rows["tag_weights"]
    loss = jax.jit(lambda b: objective.loss(encoder, params, b, None, 3))(rows)
    np.testing.assert_allclose(loss.terms["tagging"], (nll * weights).sum(), rtol=1e-5)
    assert float(objective.weights(rows)["tagging"]) == weights.sum()
    for name, values in (("loss", nll), ("accuracy", right)):
        total, count = loss.metrics[f"tagging/{name}"]
        np.testing.assert_allclose([total, count], [(values * weights).sum(), weights.sum()], 1e-5)
        total, count = loss.metrics[f"tagging/{name}_by_language"]
        of_language = [rows["language_ids"] == language for language in range(3)]
        want = [(values * weights)[one].sum() for one in of_language]
        np.testing.assert_allclose(total, want, rtol=1e-5)
        np.testing.assert_allclose(count, [weights[one].sum() for one in of_language])


def test_difference_against_numpy(batch):
    encoder, params = toy.model(num_labels=3, classifier="difference", classifier_dropout=0.5)
    objective = Classification(3, apart=True)
    logits = np.asarray(jax.jit(lambda b: objective.logits(encoder, params, b))(batch))[:9]
    h_BLD = np.asarray(
        jax.jit(lambda b: encoder.encode(params, b, objective.attention()))(batch), np.float64
    )[:9]
    dense, out = (jax.tree.map(np.asarray, params["classifier"][name]) for name in ("dense", "out"))
    for row in range(9):
        valid, second = batch["pack_ids"][row] > 0, batch["sides"][row] == 1
        u, v = (h_BLD[row][valid & side].mean(0) for side in (~second, second))
        d = u / np.sqrt(np.mean(u**2)) - v / np.sqrt(np.mean(v**2))
        x = np.concatenate([d, np.abs(d)]) @ dense["kernel"] + dense["bias"]
        x = x * 0.5 * (1 + np.vectorize(math.erf)(x / 2**0.5))
        np.testing.assert_allclose(logits[row], x @ out["kernel"] + out["bias"], atol=2e-4)
    drawn = jax.jit(lambda key: objective.logits(encoder, params, batch, key))
    # In the head, not in the encoder.
    assert np.abs(drawn(jax.random.key(0)) - drawn(jax.random.key(1))).max() > 1e-2


@pytest.mark.parametrize("language_tokens", [0, 3])
def test_the_state_of_a_decoder_against_numpy(language_tokens, batch):
    """The decoder reads the text as a target: what it begins with in place of the first token, and
    the end is predicted and not read."""
    config = GENERATOR.replace(
        vocab_size=toy.model(num_labels=3)[0].config.vocab_size + language_tokens,
        num_languages=3,
        max_positions=24,
        num_labels=3,
        classifier="decoder",
        language_tokens=language_tokens,
    )
    model, params = random_model(config)
    objective = Classification(3)
    logits = jax.jit(lambda b: objective.logits(model, params, b))(batch)
    assert np.isfinite(logits).all()
    # Rows of one example each, its end not read by the decoder.
    rows = {name: values[:9] for name, values in batch.items()}
    used = rows["pack_ids"] > 0
    last = used.sum(1) - 1
    ids = rows["input_ids"].copy()
    ids[:, 0] = ids[np.arange(9), last]
    if language_tokens:
        ids[:, 0] = config.vocab_size - 3 + rows["language_ids"][:, 0]
    packs = rows["pack_ids"].copy()
    packs[np.arange(9), last] = 0
    rows |= {"decoder_ids": ids, "decoder_pack_ids": packs}
    for name in ("position_ids", "language_ids"):
        rows[f"decoder_{name}"] = rows[name]
    memory = transformer.encode(config, params, rows)
    states = transformer.decode(config, params, rows, memory)
    dense, out = (jax.tree.map(np.float64, params["classifier"][name]) for name in ("dense", "out"))
    x = np.tanh(states[np.arange(9), last - 1] @ dense["kernel"] + dense["bias"])
    np.testing.assert_allclose(logits[:9], x @ out["kernel"] + out["bias"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["xlmr", "pooler"])
def test_heads_against_numpy(kind, batch):
    encoder, params = toy.model(num_labels=3, classifier=kind, classifier_dropout=0.5)
    rows = {name: values[:9] for name, values in batch.items()}
    h_BLD, logits = jax.jit(
        lambda b: (
            encoder.encode(params, b, Classification(3).attention()),
            Classification(3).logits(encoder, params, b),
        )
    )(rows)
    h_BLD, valid = np.asarray(h_BLD, np.float64), rows["pack_ids"] > 0
    x = lambda h: h[0]  # noqa: E731
    x_BD = np.stack([x(h[own]) for h, own in zip(h_BLD, valid, strict=True)])
    head = jax.tree.map(np.asarray, params["classifier"])
    assert {*head} == ({"dense", "out"} if kind in ("xlmr", "pooler") else {"out"})
    if "dense" in head:
        x_BD = np.tanh(x_BD @ head["dense"]["kernel"] + head["dense"]["bias"])
    np.testing.assert_allclose(
        logits, x_BD @ head["out"]["kernel"] + head["out"]["bias"], atol=1e-5
    )


def test_apart_the_classifier_alone_sees_both_texts(batch):
    """No token of one text moves a state of the other in the encoder; every one moves the logits.
    Parts == whole."""
    encoder, params = toy.model(num_labels=3, classifier="difference")
    objective = Classification(3, apart=True)
    row = {name: values[:1] for name, values in batch.items()}
    sides, length = row["sides"][0], int(row["pack_ids"].sum())
    encode = jax.jit(lambda b: encoder.encode(params, b, objective.attention()))
    logits = jax.jit(lambda b: objective.logits(encoder, params, b))
    states, before = np.asarray(encode(row))[0], np.asarray(logits(row))
    for column in range(length):
        ids = row["input_ids"].copy()
        ids[0, column] = (ids[0, column] + 1) % VOCABULARY.size
        moved = (np.asarray(encode(row | {"input_ids": ids}))[0] != states).any(-1)
        assert moved[:length].tolist() == (sides == sides[column])[:length].tolist(), column
        assert np.abs(np.asarray(logits(row | {"input_ids": ids})) - before).max() > 1e-6, column
    loss_of = jax.jit(lambda b: objective.loss(encoder, params, b, None, 3))
    whole = loss_of(batch).terms["classification"]
    parts = [
        loss_of({name: values[i : i + 4] for name, values in batch.items()})
        for i in range(0, 12, 4)
    ]
    assert float(whole) == pytest.approx(
        sum(float(part.terms["classification"]) for part in parts), rel=1e-5
    )
    with pytest.raises(
        UserError, match="classifier='difference' and the objective apart=False: set CLASSIFIER"
    ):
        Classification(3).loss(encoder, params, batch, None, 3)
