"""Accuracy of a classifier that reads every example in two languages (VECO §3.1, plug-in
fine-tuning)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.errors import UserError
from xlingjax.evaluation.classification import predict, summarise
from xlingjax.inference.encode import language_index
from xlingjax.preprocessors.plug_in import paired_rows, read_paired_tsv
from xlingjax.training.evaluator import Evaluator


@dataclass
class PlugInAccuracy(Evaluator):
    """An evaluator of the training loop: `files` are one split's, {(language, pivot): (its TSV, the
    pivot's)}.

    A language's accuracy is that of the predictions from its own side, [H; S], beside the
    translation into the pivot; the pivot's is the mean over the languages that it stands beside.
    Each prediction has seen both texts. Values as of `ZeroShotAccuracy`; mean_other leaves out
    `trained_on` and the pivot.
    """

    files: Mapping[tuple[str, str], Sequence[str | Path]]
    vocabulary: Any
    languages: Sequence[str]
    labels: Sequence[str]
    length: int = 128
    batch_size: int = 64
    limit: int = 0
    reset_positions: bool = False
    trained_on: Sequence[str] = ("en",)
    name: str = "plug_in_test"

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        config = model.config
        if (config.classifier, config.num_labels) != ("plug_in", len(self.labels)):
            raise UserError(
                f"{self.name}: the model has classifier={config.classifier!r} for"
                f" {config.num_labels} labels; "
                f'it takes "plug_in" for the {len(self.labels)} of the files'
            )
        found: dict[str, list[float]] = {}
        for pair, paths in sorted(self.files.items()):
            examples = (side[: self.limit or None] for side in read_paired_tsv(paths, self.labels))
            ids = [language_index(language, self.languages, model) for language in pair]
            rows = paired_rows(
                *examples, self.vocabulary, self.length, self.labels, ids, self.reset_positions
            )
            right = (
                predict(model, params, rows, batch_size=self.batch_size, mesh=mesh)
                == rows["labels"]
            )
            for language, side in zip(pair, right, strict=True):
                found.setdefault(language, []).append(float(side.mean()))
        pivots = {pivot for _, pivot in self.files}
        return summarise(
            {language: float(np.mean(values)) for language, values in sorted(found.items())},
            {*self.trained_on, *pivots},
        )
