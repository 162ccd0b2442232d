"""Accuracy of a fine-tuned classifier, language by language: the zero-shot table of XNLI."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from xlingjax.data.labelled.text import read_labelled_tsv
from xlingjax.errors import UserError
from xlingjax.inference.encode import language_index, on_xla, place, row_multiple
from xlingjax.objectives.finetuning import Classification, PlugIn
from xlingjax.preprocessors.finetuning import classification_rows
from xlingjax.training.evaluator import Evaluator


@functools.lru_cache(maxsize=16)
def _likeliest(model, mesh, task):
    """jit of (params, batch) -> int[B], or int[2, B] for "plug_in"."""
    config = model.config
    if config.classifier == "plug_in":
        objective = PlugIn(config.num_labels)
    else:
        objective = Classification(config.labels_of(task), config.classifier == "difference", task)
    model = on_xla(model, mesh)
    replicated = NamedSharding(mesh, PartitionSpec()) if mesh is not None else None
    return jax.jit(
        lambda params, batch: jnp.asarray(objective.logits(model, params, batch)).argmax(-1),
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
        name: values for name, values in rows.items() if name not in ("labels", "example_weights")
    }
    total = len(rows["input_ids"])
    multiple = row_multiple(mesh)
    size = -(-batch_size // multiple) * multiple
    parts = []
    for start in range(0, total, size):
        part = {name: values[start : start + size] for name, values in fields.items()}
        missing = size - len(part["input_ids"])
        part = {name: np.pad(values, [(0, missing), (0, 0)]) for name, values in part.items()}
        parts.append(np.asarray(run(params, place(part, mesh)))[..., : size - missing])
    return np.concatenate(parts, axis=-1)


def accuracy_by_language(
    model,
    params,
    files: Mapping[str, str | Path],
    vocabulary,
    languages: Sequence[str],
    *,
    labels: Sequence[str],
    length: int = 128,
    batch_size: int = 64,
    limit: int = 0,
    quoted: bool = False,
    reset_positions: bool = False,
    mesh=None,
    task: str | None = None,
) -> dict[str, float]:
    """{language: accuracy in 0..1} of labelled TSV files, {language: path}; `limit` > 0 keeps the
    first that many examples.

    labels: in the order the head was trained with. Raises UserError for a file's faults (see
    `read_labelled_tsv`).
    """
    if (ours := model.config.labels_of(task)) != len(labels):
        raise UserError(
            f"the model tells {ours} labels apart{f' for {task!r}' if task else ''} and the files"
            f" have {len(labels)}: {', '.join(labels)}"
        )
    out = {}
    for language, path in sorted(files.items()):
        examples = read_labelled_tsv(path, labels, quoted=quoted)[: limit or None]
        index = language_index(language, languages, model)
        rows = classification_rows(examples, vocabulary, length, labels, index, reset_positions)
        found = predict(model, params, rows, batch_size=batch_size, mesh=mesh, task=task)
        out[language] = float(np.mean(found == rows["labels"]))
    return out


def summarise(accuracy: Mapping[str, float], trained_on: Sequence[str] = ("en",)) -> dict[str, Any]:
    """`by_language`, the accuracy on English (`en`, where tested) and `mean_other`, over languages
    without training examples.
    """
    others = [value for language, value in accuracy.items() if language not in trained_on]
    out: dict[str, Any] = {"kind": "accuracy", "by_language": dict(accuracy)}
    if "en" in accuracy:
        out["en"] = accuracy["en"]
    if others:
        out["mean_other"] = float(np.mean(others))
    return out


@dataclass
class ZeroShotAccuracy(Evaluator):
    """Classification accuracy as an evaluator of the training loop: `files` are one split's,
    {language: TSV}.

    Values: {"by_language": {language: accuracy}, "en": x, "mean_other": x}; mean_other leaves out
    `trained_on`.
    """

    files: Mapping[str, str | Path]
    vocabulary: Any
    languages: Sequence[str]
    labels: Sequence[str]
    length: int = 128
    batch_size: int = 64
    limit: int = 0
    quoted: bool = False
    reset_positions: bool = False
    trained_on: Sequence[str] = ("en",)
    name: str = "nli_test"
    task: str | None = None
    """Whose head, of a model with several."""

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        accuracy = accuracy_by_language(
            model,
            params,
            self.files,
            self.vocabulary,
            self.languages,
            labels=self.labels,
            length=self.length,
            batch_size=self.batch_size,
            limit=self.limit,
            quoted=self.quoted,
            reset_positions=self.reset_positions,
            mesh=mesh,
            task=self.task,
        )
        return summarise(accuracy, self.trained_on)
