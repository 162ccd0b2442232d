"""What `seqio.Evaluator` needs: converters of examples, and predictions in its form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from xlingjax.data.labelled.task import KINDS
from xlingjax.data.seqio.task_text import feature_reader, open_task, without_end
from xlingjax.data.seqio.vocabulary import SeqioVocabulary
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.tasks.registry import FEATURES


class ColumnConverter(seqio.FeatureConverter):
    """Some columns of the examples as they are: our models cut texts by their own vocabularies."""

    TASK_FEATURES = {
        name: seqio.FeatureConverter.FeatureSpec(dtype=tf.int32) for name in ("inputs", "targets")
    }
    PACKING_FEATURE_DTYPES: Mapping[str, Any] = {}

    def __init__(self, columns: Mapping[str, Any]):
        """columns: {name: tf.TensorSpec} of those that are read."""
        spec = seqio.FeatureConverter.FeatureSpec
        self.MODEL_FEATURES = {
            name: spec(dtype=of_column.dtype, rank=of_column.shape.rank)
            for name, of_column in columns.items()
        }
        super().__init__(pack=False, apply_length_check=False)

    def _convert_features(
        self, ds: tf.data.Dataset, task_feature_lengths: Mapping[str, int]
    ) -> tf.data.Dataset:
        return ds.map(lambda example: {name: example[name] for name in self.MODEL_FEATURES})

    def get_model_feature_lengths(
        self, task_feature_lengths: Mapping[str, int]
    ) -> Mapping[str, int]:
        return dict.fromkeys(self.MODEL_FEATURES, 1)


class RecordConverter(ColumnConverter):
    """The records of a kind of task (`Task.kind`), with their language."""

    def __init__(self, kind: str):
        super().__init__({"language": tf.TensorSpec((), tf.string), **FEATURES[KINDS[kind]]})


class TextExamples:
    """The examples of a task of text to text, as an encoder-decoder reads and writes them.

    task: one with the features `inputs` and `targets`; of their ids the run's `vocabulary` makes
    its own, as training does (`xlingjax.data.seqio.task_text`). Raises UserError: other features,
    ids of another vocabulary without their text.
    """

    def __init__(self, task: seqio.Task, split: str, vocabulary: Vocabulary):
        spec = open_task(task, split).element_spec
        if not {"inputs", "targets"} <= {*task.output_features} & {*spec}:
            raise UserError(f"task {task.name} lacks `inputs` or `targets`, which are scored")
        self._eos_id = vocabulary.eos_id
        self._readers = {}
        columns = {}
        for name in ("inputs", "targets"):
            column, read = feature_reader(task, name, spec, vocabulary)
            self._readers[name] = column, read
            columns[column] = spec[column]
        self.converter = ColumnConverter(columns)
        self._theirs = task.output_features["targets"].vocabulary
        # Its ids need no spelling, which another vocabulary might not have.
        self._writes_ids = isinstance(self._theirs, (SeqioVocabulary, seqio.PassThroughVocabulary))

    def read(self, name: str, dataset: tf.data.Dataset) -> tuple[list[int], list[list[int]]]:
        """(numbers, ids of the run's vocabulary) of a feature of all examples, without `</s>`."""
        column, read = self._readers[name]
        numbers: list[int] = []
        texts: list[list[int]] = []
        of_column = dataset.map(lambda number, example: (number, example[column]))
        for number, batch in of_column.ragged_batch(1024):
            numbers += number.numpy().tolist()
            ids, lengths = without_end(*read(batch), self._eos_id)
            ends = np.cumsum(lengths)[:-1]
            texts += [one.tolist() for one in np.split(ids, ends)]
        return numbers, texts

    def written(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> tuple[np.ndarray, int]:
        """([texts, longest] of the task's vocabulary, texts it cannot spell). ids: of the run's."""
        if self._writes_ids:
            end = self._eos_id
            return _padded([[*(i for i in one if i != end), end] for one in ids]), 0
        changed = sum(self._theirs.decode(self._theirs.encode(text)) != text for text in texts)
        return encoded(texts, self._theirs), changed


def encoded(texts: Sequence[str], vocabulary: seqio.Vocabulary | None = None) -> np.ndarray:
    """[texts, longest]: ids of the vocabulary that the tasks were registered with (default: bytes),
    padded with 0. SeqIO makes one array of all predictions, so they have one length."""
    vocabulary = vocabulary or seqio.ByteVocabulary()
    end = []
    # What stands behind it is not read; not in every vocabulary 0 is padding.
    if vocabulary.eos_id is not None:
        end = [vocabulary.eos_id]
    return _padded([[*vocabulary.encode(text), *end] for text in texts])


def _padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    longest = max(map(len, rows), default=0)
    ids = np.zeros((len(rows), max(longest, 1)), np.int32)
    for row, of_text in enumerate(rows):
        ids[row, : len(of_text)] = of_text
    return ids
