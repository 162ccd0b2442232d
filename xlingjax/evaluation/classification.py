"""Labels of a fine-tuned classifier, and what is told of a score in several languages."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from xlingjax.inference.encode import on_xla, place, row_multiple
from xlingjax.objectives.finetuning import Classification, PlugIn


@functools.lru_cache(maxsize=16)
def _likeliest(model, mesh, task):
    """jit of (params, batch) -> int[B], or int[2, B] for "plug_in"."""
    config = model.config
    if config.classifier == "plug_in":
        objective = PlugIn(config.num_labels)
    else:
        objective = Classification(
            config.labels_of(task), config.classifier == "difference", task
        )
    model = on_xla(model, mesh)
    replicated = NamedSharding(mesh, PartitionSpec()) if mesh is not None else None
    return jax.jit(
        lambda params, batch: jnp.asarray(
            objective.logits(model, params, batch)
        ).argmax(-1),
        out_shardings=replicated,
    )


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
    "plug_in" int[2, N], those of both sides (see `paired_rows`). The last batch is filled up with
    empty rows. task: whose head, of a model with several.
    """
    run = _likeliest(model, mesh, task)
    fields = {
        name: values
        for name, values in rows.items()
        if name not in ("labels", "example_weights")
    }
    total = len(rows["input_ids"])
    multiple = row_multiple(mesh)
    size = -(-batch_size // multiple) * multiple
    parts = []
    for start in range(0, total, size):
        part = {name: values[start : start + size] for name, values in fields.items()}
        missing = size - len(part["input_ids"])
        part = {
            name: np.pad(values, [(0, missing), (0, 0)])
            for name, values in part.items()
        }
        parts.append(np.asarray(run(params, place(part, mesh)))[..., : size - missing])
    return np.concatenate(parts, axis=-1)


def summarise(
    accuracy: Mapping[str, float], trained_on: Sequence[str] = ("en",)
) -> dict[str, Any]:
    """`by_language`, the accuracy on English (`en`, where tested) and `mean_other`, over languages
    without training examples.
    """
    others = [
        value for language, value in accuracy.items() if language not in trained_on
    ]
    out: dict[str, Any] = {"kind": "accuracy", "by_language": dict(accuracy)}
    if "en" in accuracy:
        out["en"] = accuracy["en"]
    if others:
        out["mean_other"] = float(np.mean(others))
    return out
