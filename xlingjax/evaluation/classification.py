"""Labels of a fine-tuned classifier, and what is told of a score in several languages."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from xlingjax.inference.forward import by_length, compiled
from xlingjax.objectives.base import Objective
from xlingjax.objectives.finetuning import Classification
from xlingjax.objectives.plug_in import PlugIn

GOLD = ("labels", "example_weights")  # fields that a prediction does not read


def _likeliest(model, objective: Objective, params, batch):
    """int[B], or int[B, 2] of "plug_in"."""
    logits = jnp.asarray(objective.logits(model, params, batch))
    # Rows first: those of plug-in fine-tuning come as [2, B].
    return logits.argmax(-1).T


def _objective(config, task: str | None) -> Objective:
    if config.classifier == "plug_in":
        return PlugIn(config.num_labels)
    difference = config.classifier == "difference"
    return Classification(config.labels_of(task), difference, task)


def predict(
    model,
    params,
    rows: Mapping[str, np.ndarray],
    *,
    batch_size: int = 64,
    mesh=None,
    task: str | None = None,
) -> np.ndarray:
    """int[N]: the most likely label of every row (see `classification_rows`), of the classifier
    "plug_in" int[2, N], those of both sides (see `beside_rows`). The last batch is filled up with
    empty rows. task: whose head, of a model with several."""
    # Without them a test set without labels has the same fields, and the same program.
    fields = {name: values for name, values in rows.items() if name not in GOLD}
    # Rows in and out on axis 0, as batches are cut and joined; sides come first again below.
    run = compiled(_likeliest, model, mesh, _objective(model.config, task))
    texts = 1 + (model.config.classifier == "plug_in")
    return by_length(run, params, fields, batch_size, mesh, texts=texts).T


def summarise(accuracy: Mapping[str, float], trained_on: Sequence[str] = ("en",)) -> dict[str, Any]:
    """`by_language`, `en` where tested, and `mean_other` of languages without training examples."""
    others = [value for language, value in accuracy.items() if language not in trained_on]
    out: dict[str, Any] = {"kind": "accuracy", "by_language": dict(accuracy)}
    if "en" in accuracy:
        out["en"] = accuracy["en"]
    if others:
        out["mean_other"] = float(np.mean(others))
    return out
