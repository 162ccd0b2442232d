"""Sentence retrieval: does a sentence find its translation by the cosine of their vectors?

Conventions are XTREME's (`evaluate_retrieval.py`): mean over all tokens but padding, separators
included; English is the query and the foreign side the index. Two things differ and are named:
every layer is scored, not one fixed layer, and beside the `raw` cosine stands `centred`, after each
side's mean vector has been removed. A multilingual encoder sets languages apart by a nearly
constant offset; raw scores measure that offset too, centred ones do not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax.sharding import Mesh

from xlingjax.data.held_out_pairs import PIVOT, Pairs
from xlingjax.errors import UserError
from xlingjax.inference.encode import BUCKETS, embed, language_index, token_ids
from xlingjax.inference.search import CHUNK, neighbours, unit_rows
from xlingjax.training.evaluator import Evaluator

DIRECTIONS = ("en_to_xx", "xx_to_en")
SCORES = tuple(
    f"{kind}_{direction}" for kind in ("raw", "centred") for direction in DIRECTIONS
)


def nearest(
    queries_QD: np.ndarray,
    index_SD: np.ndarray,
    chunk: int = CHUNK,
    mesh: Mesh | None = None,
) -> np.ndarray:
    """int[Q]: the row of `index_SD` with the highest cosine to each query; exact; among equals the
    first row wins. chunk, mesh: see `search.neighbours`."""
    return neighbours(unit_rows(queries_QD), unit_rows(index_SD), 1, chunk, mesh)[1][
        :, 0
    ]


def accuracy(
    queries_SD: np.ndarray, index_SD: np.ndarray, mesh: Mesh | None = None
) -> float:
    """Share of rows whose nearest row of the other side is their own; states that have all
    collapsed score 1/S, not
    1.
    """
    return float(
        np.mean(nearest(queries_SD, index_SD, mesh=mesh) == np.arange(len(queries_SD)))
    )


def score_layer(
    english_SD: np.ndarray, foreign_SD: np.ndarray, mesh: Mesh | None = None
) -> dict[str, float]:
    """The four figures of one layer: {raw, centred} x {en_to_xx (XTREME's), xx_to_en}, each in
    0..1."""
    centred = english_SD - english_SD.mean(axis=0), foreign_SD - foreign_SD.mean(axis=0)
    out = {}
    for kind, (english, foreign) in (
        ("raw", (english_SD, foreign_SD)),
        ("centred", centred),
    ):
        out[f"{kind}_en_to_xx"] = accuracy(english, foreign, mesh)
        out[f"{kind}_xx_to_en"] = accuracy(foreign, english, mesh)
    return out


def mean_by_layer(
    by_language: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> dict[str, dict[str, float]]:
    """{language: {layer: scores}} -> {layer: scores}, the plain mean over languages."""
    tables = list(by_language.values())
    return {
        layer: {
            score: float(np.mean([table[layer][score] for table in tables]))
            for score in SCORES
        }
        for layer in tables[0]
    }


def best_layer(by_layer: Mapping[str, Mapping[str, float]], score: str) -> str:
    """The layer where the mean over languages is highest; the lower layer on a tie.

    Chosen on the very pairs it is reported on: a ceiling for the model, as the report says beside
    it.
    """
    return max(by_layer, key=lambda layer: (by_layer[layer][score], -int(layer)))


def language_similarity(centroids: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Cosine of the languages' mean vectors: {"languages": [...], "cosine": [[...]]}."""
    names = sorted(centroids)
    table = unit_rows(np.stack([centroids[name] for name in names]).astype(np.float64))
    return {"languages": names, "cosine": np.round(table @ table.T, 4).tolist()}


def evaluate_retrieval(
    model,
    params,
    pairs: Mapping[str, Pairs],
    vocabulary,
    languages: Sequence[str],
    *,
    poolings: Sequence[str] = ("mean",),
    max_length: int = 0,
    tokens_per_batch: int = 4096,
    mesh=None,
    prefix: str = "",
) -> dict[str, Any]:
    """Every language, layer and pooling. Accuracies in 0..1; layer "0" is the embedding output.
    prefix: text before every sentence.

    Returns
        prefix         where there is one
        pairs          {language: number of pairs searched among}
        by_language    {pooling: {language: {layer: {raw_en_to_xx, raw_xx_to_en, centred_en_to_xx,
        centred_xx_to_en}}}} by_layer       {pooling: {layer: the same four, mean over languages}}
        best           {pooling: {score: {"layer": n, "value": x}}}, each score at the layer best
        for it
        similarity     cosine of language centroids under the first pooling, at the layer best for
        raw_en_to_xx
        and, as plain numbers under the first pooling, retrieval_mean and retrieval_mean_centred
        (en_to_xx, mean over languages, best layer), retrieval_mean_xx_to_en and
        retrieval_mean_centred_xx_to_en, retrieval_best_layer.
    """
    if not pairs:
        raise UserError("retrieval: no pairs to search")
    buckets = (
        [b for b in BUCKETS if b < max_length] + [max_length]
        if max_length
        else list(BUCKETS)
    )
    limit = model.config.max_positions - model.config.position_offset
    buckets = (
        [b for b in buckets if b < limit] + [limit] if buckets[-1] > limit else buckets
    )
    tables: dict[str, dict] = {pooling: {} for pooling in poolings}
    sums: dict[str, np.ndarray] = {}
    counts: dict[str, int] = {}
    for language, aligned in pairs.items():
        sides = []
        for name, texts in ((PIVOT, aligned.english), (language, aligned.foreign)):
            states_PNSD = embed(
                model,
                params,
                token_ids([prefix + text for text in texts], vocabulary, buckets[-1]),
                language_index(name, languages, model),
                vocabulary,
                poolings=poolings,
                buckets=buckets,
                tokens_per_batch=tokens_per_batch,
                mesh=mesh,
            )
            sums[name] = sums.get(name, 0) + states_PNSD[0].sum(axis=1)
            counts[name] = counts.get(name, 0) + len(texts)
            sides.append(states_PNSD)
        for p, pooling in enumerate(poolings):
            tables[pooling][language] = {
                str(layer): score_layer(sides[0][p, layer], sides[1][p, layer], mesh)
                for layer in range(sides[0].shape[1])
            }
    by_layer = {pooling: mean_by_layer(table) for pooling, table in tables.items()}
    best = {}
    for pooling, layers in by_layer.items():
        chosen = {score: best_layer(layers, score) for score in SCORES}
        best[pooling] = {
            score: {"layer": int(at), "value": layers[at][score]}
            for score, at in chosen.items()
        }
    head = best[poolings[0]]
    layer = head["raw_en_to_xx"]["layer"]
    return {
        "kind": "retrieval",
        **({"prefix": prefix} if prefix else {}),
        "retrieval_mean": head["raw_en_to_xx"]["value"],
        "retrieval_mean_centred": head["centred_en_to_xx"]["value"],
        "retrieval_mean_xx_to_en": head["raw_xx_to_en"]["value"],
        "retrieval_mean_centred_xx_to_en": head["centred_xx_to_en"]["value"],
        "retrieval_best_layer": layer,
        "retrieval_best_layer_centred": head["centred_en_to_xx"]["layer"],
        "pairs": {language: len(aligned) for language, aligned in pairs.items()},
        "by_language": tables,
        "by_layer": by_layer,
        "best": best,
        "similarity": (
            {"layer": layer}
            | language_similarity({n: sums[n][layer] / counts[n] for n in sums})
        ),
    }


@dataclass
class RetrievalProbe(Evaluator):
    """Retrieval as an evaluator of the training loop.

    pairs: as `read_pairs` gives them, cut to a budget there (`limit`): a few hundred pairs a
    language cost a few seconds. Fewer pairs are an easier search, so figures compare only at equal
    `pairs`, which the result states.
    """

    pairs: Mapping[str, Pairs]
    vocabulary: Any
    languages: Sequence[str]
    poolings: Sequence[str] = ("mean",)
    max_length: int = 128
    tokens_per_batch: int = 4096
    name: str = field(default="retrieval")
    prefix: str = ""
    """Text before every sentence."""

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        return evaluate_retrieval(
            model,
            params,
            self.pairs,
            self.vocabulary,
            self.languages,
            poolings=self.poolings,
            max_length=self.max_length,
            tokens_per_batch=self.tokens_per_batch,
            mesh=mesh,
            prefix=self.prefix,
        )
