"""Tatoeba as XTREME has it: each English sentence finds the foreign sentence nearest to it, of
vectors that no training has fitted to the task (`evaluate_retrieval.py`, `utils_retrieve.py`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlingjax.data.held_out_pairs import PIVOT
from xlingjax.data.labelled.records import Bitext
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.registry import tatoeba_accuracy
from xlingjax.evaluation.retrieval import nearest
from xlingjax.inference.encode import POOLINGS, embed_texts, longest_row
from xlingjax.inference.run import TrainedRun
from xlingjax.inference.sentences import LONGEST
from xlingjax.runtime.machine import is_primary


def paper_layer(layers: int) -> int:
    """The layer whose states are read, of a model of so many: the 8th of 12 and the 14th of 24
    (indices 7 and 13 in XTREME's scripts, which count from 0), else two thirds up."""
    return 14 if layers == 24 else max(1, round(layers * 2 / 3))


def chosen_layer(layer: int | None, layers: int) -> int:
    """`layer`, None: `paper_layer`. Raises UserError where the model has no such layer."""
    if layer is None:
        return paper_layer(layers)
    if not 0 <= layer <= layers:
        raise UserError(f"layer {layer}: this model has layers 0 (the embeddings) to {layers}")
    return layer


def side_vectors(
    run: TrainedRun,
    bitext: Bitext,
    language: str,
    *,
    max_length: int = LONGEST,
    **options: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of the foreign and of the English side, float32 [P, N, S, D]: every pooling, every
    layer asked for. language: the foreign one; the rest: poolings, layers, prefix, see
    `embed_texts`. Raises UserError for an empty side."""
    sides = []
    for name, rows in ((language, bitext.source), (PIVOT, bitext.target)):
        if not rows:
            raise UserError(f"{language}-{PIVOT}: no sentences of {name!r} to search among")
        texts = [text for _, text in rows]
        cut: list[int] = []
        sides.append(embed_texts(run, texts, name, max_length=max_length, cut=cut, **options))
        if cut and is_primary():
            print(
                f"{language}-{PIVOT}: {len(cut)} of {len(texts)} sentences of {name!r} were cut to"
                f" {longest_row(run.model, max_length)} tokens"
            )
    return sides[0], sides[1]


def predict_layers(
    run: TrainedRun,
    bitext: Bitext,
    language: str,
    *,
    poolings: Sequence[str] = POOLINGS,
    layers: Sequence[int] | None = None,
    **options: Any,
) -> dict[str, dict[int, list[int]]]:
    """{pooling: {layer: what `predict_retrieval` gives}}, of one pass over each side. layers: None:
    every layer, 0 the embeddings; options: prefix, max_length, see `embed_texts`. Raises UserError:
    an empty side, no such layer or pooling, a language that the model lacks."""
    if layers is None:
        layers = range(run.model.config.layers + 1)
    chosen = tuple(chosen_layer(layer, run.model.config.layers) for layer in layers)
    options |= {"poolings": poolings, "layers": chosen}
    foreign, english = side_vectors(run, bitext, language, **options)
    # English is the query, as in XTREME's scripts.
    return {
        pooling: {
            layer: nearest(english[p, n], foreign[p, n], mesh=run.mesh).tolist()
            for n, layer in enumerate(chosen)
        }
        for p, pooling in enumerate(poolings)
    }


def predict_retrieval(
    run: TrainedRun,
    bitext: Bitext,
    language: str,
    *,
    layer: int | None = None,
    pooling: str = "mean",
    **options: Any,
) -> list[int]:
    """The foreign line, from 0, that each English line finds, as in XTREME's prediction file.

    layer: 0 is the embeddings; None: `paper_layer`. pooling: see `pooling_weights`; XTREME's is
    "mean", over all tokens with the separators. options, errors: see `predict_layers`.
    """
    layer = chosen_layer(layer, run.model.config.layers)
    options |= {"poolings": (pooling,), "layers": (layer,)}
    return predict_layers(run, bitext, language, **options)[pooling][layer]


def accuracy(predicted: Sequence[int], bitext: Bitext) -> float:
    """Share (0 to 1) of the English lines that find a translation of theirs by `bitext.gold`, which
    may be in any order. Raises UserError: no gold, another number of lines."""
    return tatoeba_accuracy([bitext], predicted) / 100
