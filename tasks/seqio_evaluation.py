"""What `seqio.Evaluator` needs of a benchmark's registered tasks: the converter of their examples,
and predictions in its form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from xlingjax.data.labelled.task import KINDS
from xlingjax.tasks.registry import FEATURES


class RecordConverter(seqio.FeatureConverter):
    """The records of a kind of task as they are, with their language: our models cut texts by their
    own vocabularies."""

    TASK_FEATURES = {
        name: seqio.FeatureConverter.FeatureSpec(dtype=tf.int32)
        for name in ("inputs", "targets")
    }
    PACKING_FEATURE_DTYPES: Mapping[str, Any] = {}

    def __init__(self, kind: str):
        """kind: `Task.kind`."""
        self._names = ("language", *FEATURES[KINDS[kind]])
        spec = seqio.FeatureConverter.FeatureSpec
        self.MODEL_FEATURES = {"language": spec(dtype=tf.string, rank=0)}
        for name, of_record in FEATURES[KINDS[kind]].items():
            self.MODEL_FEATURES[name] = spec(
                dtype=of_record.dtype,
                rank=of_record.shape.rank,
            )
        # Texts are as long as they are.
        super().__init__(pack=False, apply_length_check=False)

    def _convert_features(
        self,
        ds: tf.data.Dataset,
        task_feature_lengths: Mapping[str, int],
    ) -> tf.data.Dataset:
        return ds.map(
            lambda example: {name: example[name] for name in self._names},
        )

    def get_model_feature_lengths(
        self,
        task_feature_lengths: Mapping[str, int],
    ) -> Mapping[str, int]:
        return dict.fromkeys(self._names, 1)


def encoded(
    texts: Sequence[str],
    vocabulary: seqio.Vocabulary | None = None,
) -> np.ndarray:
    """[texts, longest]: ids of the vocabulary that the tasks were registered with (default: bytes),
    padded with 0. SeqIO makes one array of all predictions, so they have one length."""
    vocabulary = vocabulary or seqio.ByteVocabulary()
    written = [vocabulary.encode(text) for text in texts]
    longest = max(map(len, written), default=0)
    ids = np.zeros((len(texts), max(longest, 1)), np.int32)
    for row, of_text in enumerate(written):
        ids[row, : len(of_text)] = of_text
    return ids
