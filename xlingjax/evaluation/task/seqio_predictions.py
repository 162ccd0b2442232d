"""Predictions as `seqio.Evaluator` asks for them: of benchmarks' tasks, and text to text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xlingjax.data.labelled.task import Task
from xlingjax.evaluation.task.predictions import predict
from xlingjax.inference.generate import Generator
from xlingjax.inference.run import TrainedRun
from xlingjax.preprocessors.task_rows import Reading


def seqio_predict_fn(
    run: TrainedRun, task: Task, reading: Reading, output_vocabulary=None
) -> Callable[..., list[tuple[int, np.ndarray]]]:
    """`predict_fn` of `seqio.Evaluator(mixture of the task, RecordConverter(task.kind), ...)`.

    Each prediction is the ids of its text (`tasks.text_to_text`). output_vocabulary: that the task
    was registered with, default: bytes, which spell every text. Raises UserError as `predict` does.
    """
    # Here, since they import TensorFlow.
    from xlingjax.tasks.registry import record_of
    from xlingjax.tasks.seqio_evaluation import encoded
    from xlingjax.tasks.text_to_text import text_of

    def predict_fn(dataset: Any, model_feature_shapes: Any = None) -> list[tuple[int, np.ndarray]]:
        numbers = []
        records = []
        codes = set()
        for number, example in dataset.as_numpy_iterator():
            numbers.append(int(number))
            records.append(record_of(example, task.kind))
            codes.add(example["language"].decode())
        # SeqIO asks task by task, and each is of one language.
        (language,) = codes
        predicted = predict(run, task, records, language, reading)
        # Answers are by the questions' ids, as official files have them.
        if task.kind == "span_qa":
            predicted = [predicted[question.id] for question in records]
        texts = [text_of(one, task.kind) for one in predicted]
        return list(zip(numbers, encoded(texts, output_vocabulary), strict=True))

    return predict_fn


@dataclass
class TextToText:
    """`predict_fn` and `score_fn` of an encoder-decoder for a task of text to text.

    examples: `xlingjax.tasks.seqio_evaluation.TextExamples` of the task. source, target: the
    languages of its inputs and targets.
    """

    generator: Generator
    examples: Any
    source: str
    target: str
    texts: list[str] = field(default_factory=list)
    """What was written for each example, in their order."""
    cut: int = 0  # inputs that are longer than the model reads
    unspelled: int = 0  # texts that the task's own vocabulary cannot spell: its metrics see others

    def predict_fn(
        self, dataset: Any, model_feature_shapes: Any = None
    ) -> list[tuple[int, np.ndarray]]:
        numbers, sources = self._sources(dataset)
        made = self.generator.generate(sources, self.source, self.target)
        best = [texts[0] for texts in made]
        self.texts = [one.text for one in best]
        ids, self.unspelled = self.examples.written(self.texts, [one.ids for one in best])
        return list(zip(numbers, ids, strict=True))

    def score_fn(self, dataset: Any, model_feature_shapes: Any = None) -> list[tuple[int, float]]:
        """The log-probability of each target, its end included."""
        numbers, sources = self._sources(dataset)
        _, targets = self.examples.read("targets", dataset)
        end = self.generator.vocabulary.eos_id
        found = self.generator.score(
            sources, [[*ids, end] for ids in targets], self.source, self.target
        )
        scores = [one.log_probability for one in found]
        return list(zip(numbers, scores, strict=True))

    def _sources(self, dataset: Any) -> tuple[list[int], list[list[int]]]:
        numbers, sources = self.examples.read("inputs", dataset)
        longest = self.generator.longest_source
        # With the tokens that open and close it.
        self.cut = sum(len(ids) + 2 > longest for ids in sources)
        return numbers, sources
