"""The metrics of a user's own files, as an evaluator of the training loop."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.labelled.task import find, read
from xlingjax.errors import UserError
from xlingjax.evaluation.classification import summarise
from xlingjax.evaluation.metrics.answers import MLQA_LANGUAGES
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.evaluation.metrics.tags import entity_f1, require_entities, token_accuracy
from xlingjax.evaluation.task.predictions import predict, predict_beside
from xlingjax.evaluation.task.scores import TaskScore

_KINDS = {"classification": "accuracy", "tagging": "tagging", "span_qa": "span_qa"}
_SHARES = {"token_accuracy": token_accuracy, "conll_f1": entity_f1}


def _share(name: str, records: Sequence[Any], predicted: Any, language: str) -> float:
    """A metric in 0..1. A share is not the hundredth of its percentage, in the last bit."""
    if name == "accuracy":
        right = 0
        for one, made in zip(records, predicted, strict=True):
            right += one.label == made
        return right / len(records)
    if name in _SHARES:
        return _SHARES[name](predicted, [one.tags for one in records])
    return METRICS[name].compute(records, predicted, language) / 100


@dataclass
class OwnScore(TaskScore):
    """Metrics of a user's files, `own_task`'s of split "test", as such runs have always told them.

    Values: {"kind", "by_language": {language: x}, "en": x, "mean_other": x}, x the task's first
    metric in 0..1; of tags and answers also "metric". Of answers, whose second metric is exact
    match, the same of it in "exact_match_by_language", "en_exact_match", "mean_other_exact_match".
    Of labels also "examples": {language: how many} and "commonest": {language: share of the label
    that most of them have}, which guessing can reach.
    mean_other leaves out `trained_on`. Of plug-in fine-tuning a language's value is that of its own
    side, beside its translation into the pivot; the pivot's, which mean_other leaves out too, is
    the mean over the languages that it stands beside.

    Tags are of words: a word has the tag of its first piece, also where all its pieces have learnt
    it (ERNIE-M's own script scores entities of pieces), and one that shares its piece with the word
    before has none (not `apart`).
    """

    metric: str = ""
    """What "metric" tells."""
    head: str | None = None
    """Whose head, of a model with several."""

    def __post_init__(self):
        if self.task.kind == "span_qa":
            self._require_rules()
        if "conll_f1" in self.task.metrics:
            require_entities(self.task.labels)

        # Before training: a fault of a test file is told at the start.
        self._records = {code: self._read(code) for code in self.task.languages}
        self._pivot = None
        if self.task.trained_on:
            self._pivot = self._read(self.task.trained_on)

    def _read(self, language: str) -> Sequence[Any]:
        records = read(self.task, self.data, self.split, language)
        return records[: self.limit or None]

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        self._require_labels(model)
        run = self.run(model, params, mesh)
        found: dict[str, list[list[float]]] = {}
        for language, records in self._records.items():
            how = (run, self.task, records, language, self.reading)
            if self._pivot is None:
                made = {language: predict(*how, batch_size=self.batch_size)}
            else:
                own, beside = predict_beside(*how, self._pivot, self.batch_size)
                made = {language: own, self.task.trained_on: beside}
            for code, predicted in made.items():
                values = [_share(name, records, predicted, code) for name in self.task.metrics]
                found.setdefault(code, []).append(values)
        values = self._over_languages(found, 0) | {"kind": _KINDS[self.task.kind]}
        if self.metric:
            values["metric"] = self.metric
        if self.task.kind == "classification":
            values |= self._floors()
        if self.task.kind == "span_qa":
            exact = self._over_languages(found, 1)
            values["exact_match_by_language"] = exact["by_language"]
            for name in ("en", "mean_other"):
                if name in exact:
                    values[f"{name}_exact_match"] = exact[name]
        return values

    def _floors(self) -> dict[str, dict[str, Any]]:
        examples = {}
        commonest = {}
        for code, records in self._records.items():
            examples[code] = len(records)
            counts = Counter(one.label for one in records)
            commonest[code] = max(counts.values()) / len(records)
        return {"examples": examples, "commonest": commonest}

    def _over_languages(
        self, found: Mapping[str, list[list[float]]], metric: int
    ) -> dict[str, Any]:
        """`summarise` of the metric of this number. found: {language: one list of metrics for each
        set that it was measured on}."""
        by_language = {}
        for code in sorted(found):
            # The pivot of plug-in fine-tuning stands beside every language.
            by_language[code] = float(np.mean([values[metric] for values in found[code]]))
        # The pivot stood beside the examples in training,
        # so it is no language that was transferred to.
        return summarise(by_language, {*self.trained_on, self.task.trained_on})

    def _require_rules(self) -> None:
        if self.metric not in ("squad", "mlqa"):
            raise UserError(f"METRIC {self.metric!r}: answers are scored by squad or mlqa")
        # Before training: the metric would refuse them at the first evaluation.
        strange = sorted({*self.task.languages} - {*MLQA_LANGUAGES})
        if self.metric == "mlqa" and strange:
            path = find(self.task, self.data, self.split, strange[0]).paths[0]
            raise UserError(
                f"{path}: METRIC mlqa has rules for {', '.join(MLQA_LANGUAGES)} and none for"
                f" {', '.join(strange)}: set METRIC to squad or leave these languages out"
            )

    def _require_labels(self, model) -> None:
        config = model.config
        labels = self.task.labels
        plugged_in = config.plugged_in
        if self._pivot is not None:
            if not plugged_in or config.num_labels != len(labels):
                raise UserError(
                    f"{self.name}: the model has classifier={config.classifier!r} for"
                    f" {config.num_labels} labels; "
                    f'it takes "plug_in" for the {len(labels)} of the files'
                )
        elif plugged_in:
            raise UserError(
                f"{self.name}: the model has classifier='plug_in', which reads every example in two"
                " languages: measure it by plug_in_accuracy"
            )
        ours = config.labels_of(self.head)
        if self.task.kind == "classification" and ours != len(labels):
            whose = f" for {self.head!r}" if self.head else ""
            raise UserError(
                f"the model tells {ours} labels apart{whose}"
                f" and the files have {len(labels)}: {', '.join(labels)}"
            )
