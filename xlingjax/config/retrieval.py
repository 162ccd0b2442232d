"""Sentence vectors from the pairs of a run: by hardest negatives (ERNIE-M, its fine-tuned Tatoeba),
by all negatives of the batch (LaBSE), and by a teacher's vectors (Reimers & Gurevych 2020)."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xlingjax.config.text import TextSource, of_text
from xlingjax.inference.sentences import dense_of, sentences_of
from xlingjax.objectives.retrieval import Distillation, HardestNegative, TranslationRanking
from xlingjax.preprocessors.retrieval import DistillationFeatures, SentencePairFeatures
from xlingjax.training.run_record import read_run_record


def _through(dense_of_run: str | None = None) -> dict[str, Any]:
    """dense_of_run: vectors go through the dense layers that this run keeps behind the pooling."""
    if dense_of_run is None:
        return {"dense": None}
    folder = Path(dense_of_run)
    return {"dense": dense_of(folder, sentences_of(read_run_record(folder)))}


def _with_teacher(
    text: TextSource, features: DistillationFeatures, _: Mapping[str, Any]
) -> DistillationFeatures:
    return dataclasses.replace(features, teacher=features.content())


OBJECTIVES = {
    "hardest_negative": of_text(
        HardestNegative,
        SentencePairFeatures,
        batch=64,
        length=128,
        change=_through,
        hidden=("dense",),
    ),
    "translation_ranking": of_text(
        TranslationRanking,
        SentencePairFeatures,
        batch=64,
        length=128,
        change=_through,
        hidden=("dense",),
    ),
    "distillation": of_text(
        Distillation,
        DistillationFeatures,
        batch=64,
        length=128,
        change=_through,
        complete=_with_teacher,
        hidden=("dense", "teacher"),
    ),
}
