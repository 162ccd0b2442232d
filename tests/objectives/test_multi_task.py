"""Several tasks on one encoder, each with a head of its own."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from tests.helpers import toy
from xlingjax.evaluation.classification import predict
from xlingjax.model.params import flattened
from xlingjax.objectives.finetuning import Classification
from xlingjax.preprocessors.finetuning import Example, classification_rows

TASKS = {"xnli": ("contradiction", "entailment", "neutral"), "pawsx": ("0", "1")}
COUNTS = (("pawsx", 2), ("xnli", 3))
CORPUS = SimpleNamespace(vocabulary=toy.ToyVocabulary(), languages=toy.LANGUAGES)


@pytest.fixture(scope="module", params=["xlm", pytest.param("pooler", marks=pytest.mark.long)])
def model(request):
    return toy.model(task_labels=COUNTS, classifier=request.param)


def batch(task: str, count: int = 6):
    texts, labels = toy.sentences(2 * count, seed=len(task)), TASKS[task]
    examples = [
        Example(texts[2 * i], texts[2 * i + 1], labels[i % len(labels)]) for i in range(count)
    ]
    rows = classification_rows(examples, CORPUS.vocabulary, 24, labels, 1)
    rows["example_weights"][-1] = 0
    return rows


@pytest.mark.long
def test_loss_against_numpy_and_zero_gradient_to_the_other_head(model):
    encoder, params = model
    for task, labels in COUNTS:
        objective, rows = Classification(labels, task=task), batch(task)

        def total(params, objective=objective, rows=rows):
            loss = objective.loss(encoder, params, rows, None, 3)
            return loss.terms[objective.name], loss

        grads, loss = jax.jit(jax.grad(total, has_aux=True))(params)
        x = np.asarray(encoder.encode(params, rows, objective.attention()), np.float64)[:, 0]
        head = params["classifiers"][task]
        if encoder.config.classifier == "pooler":
            x = np.tanh(x @ np.asarray(head["dense"]["kernel"]) + np.asarray(head["dense"]["bias"]))
        logits = x @ np.asarray(head["out"]["kernel"]) + np.asarray(head["out"]["bias"])
        nll = np.log(np.exp(logits).sum(1)) - logits[np.arange(6), rows["labels"]]
        assert {*loss.terms} == {*objective.coefficients} == {f"classification_{task}"}
        np.testing.assert_allclose(loss.terms[objective.name], nll[:5].sum(), rtol=1e-5)
        assert float(objective.weights(rows)[objective.name]) == 5
        assert (
            predict(encoder, params, rows, batch_size=4, task=task).tolist()
            == logits.argmax(1).tolist()
        )
        for name, gradient in flattened(grads).items():
            other = name.startswith("classifiers/") and not name.startswith(f"classifiers/{task}/")
            assert bool(np.any(gradient)) != (other or name.startswith("head/")), name
