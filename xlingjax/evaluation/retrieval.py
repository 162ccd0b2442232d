"""Sentence retrieval: does a sentence find its translation by the cosine of their vectors?

Conventions are XTREME's (`evaluate_retrieval.py`): mean over all tokens but padding, separators
included; English is the query and the foreign side the index. Two things differ and are named:
every layer is scored, not one fixed layer, and beside the `raw` cosine stands `centred`, after each
side's mean vector has been removed. A multilingual encoder sets languages apart by a nearly
constant offset; raw scores measure that offset too, centred ones do not. The plain figures are of
one layer, which is fixed beforehand: the last, or the one whose states the run trains as vectors.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.sharding import Mesh

from xlingjax.data.held_out_pairs import Pairs, held_out
from xlingjax.data.overlap import HeldOut
from xlingjax.errors import UserError
from xlingjax.inference.encode import embed_texts
from xlingjax.inference.run import TrainedRun
from xlingjax.inference.search import CHUNK, neighbours, unit_rows
from xlingjax.model.config import ModelConfig
from xlingjax.training.evaluator import Evaluator

SHOWN = 5  # sentences that find their translation, and as many that do not
SCORES = ("raw_en_to_xx", "raw_xx_to_en", "centred_en_to_xx", "centred_xx_to_en")


def nearest(
    queries_QD: np.ndarray, index_SD: np.ndarray, chunk: int = CHUNK, mesh: Mesh | None = None
) -> np.ndarray:
    """int[Q]: the row of `index_SD` with the highest cosine to each query; exact; among equals the
    first row wins. chunk, mesh: see `search.neighbours`."""
    _, rows_Q1 = neighbours(unit_rows(queries_QD), unit_rows(index_SD), 1, chunk, mesh)
    return rows_Q1[:, 0]


def searched(
    english_SD: np.ndarray, foreign_SD: np.ndarray, mesh: Mesh | None = None
) -> dict[str, np.ndarray]:
    """{score: int[S], the row of the other side that is nearest to each}, of `SCORES`."""
    centred = [side_SD - side_SD.mean(axis=0) for side_SD in (english_SD, foreign_SD)]
    found = {}
    for kind, (english, foreign) in {"raw": (english_SD, foreign_SD), "centred": centred}.items():
        found[f"{kind}_en_to_xx"] = nearest(english, foreign, mesh=mesh)
        found[f"{kind}_xx_to_en"] = nearest(foreign, english, mesh=mesh)
    return found


def shares(found: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The figures of a layer, of what `searched` gives: the share of rows that find their own, in
    0..1; states that have all collapsed score 1/S, not 1."""
    return {score: float(np.mean(rows == np.arange(len(rows)))) for score, rows in found.items()}


def mean_by_layer(
    by_language: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> dict[str, dict[str, float]]:
    """{language: {layer: scores}} -> {layer: scores}, the plain mean over languages."""
    tables = list(by_language.values())
    return {
        layer: {
            score: float(np.mean([table[layer][score] for table in tables]))
            for score in tables[0][layer]
        }
        for layer in tables[0]
    }


def examples(
    pairs: Mapping[str, Pairs], found: Mapping[str, np.ndarray]
) -> list[dict[str, str | bool]]:
    """The first `SHOWN` foreign sentences that find their translation and the first that do not, of
    all languages in turn: language, sentence, found, translation, right. found: {language: int[S],
    the row of the English side that is nearest to each}."""
    shown = []
    for right in (True, False):
        by_language = [
            [(language, row) for row in np.flatnonzero((rows == np.arange(len(rows))) == right)]
            for language, rows in found.items()
        ]
        in_turn = itertools.chain.from_iterable(itertools.zip_longest(*by_language))
        for language, row in itertools.islice(filter(None, in_turn), SHOWN):
            of = pairs[language]
            texts = of.foreign[row], of.english[found[language][row]], of.english[row]
            sentences = dict(zip(("sentence", "found", "translation"), texts, strict=True))
            shown.append({"language": language, **sentences, "right": right})
    return shown


@dataclass
class RetrievalEvaluator(Evaluator):
    """Retrieval as an evaluator of the training loop.

    pairs: as `read_pairs` gives them, cut to a budget there (`limit`): a few hundred pairs a
    language cost a few seconds. Fewer pairs are an easier search, so figures compare only at equal
    `pairs`, which the result states. prefix: text before every sentence. layer: of the
    plain figures (0: the embeddings; None: the last).

    Values by language, layer ("0": the embedding output) and pooling, accuracies in 0..1:

    - prefix: where there is one
    - cut: {language: sentences of its pairs, of both sides, that are longer than `max_length`},
      where there are any
    - pivot: the language that figures call en, where the pairs have no English
    - pairs: {language: number of pairs searched among}
    - by_language: {pooling: {language: {layer: `SCORES`}}}
    - by_layer: {pooling: {layer: the same four, mean over languages}}
    - examples: see `examples`; by raw cosine, at `layer`

    and, as plain numbers under the first pooling at `layer`, mean over languages, retrieval_mean
    and retrieval_mean_centred (en_to_xx), retrieval_mean_xx_to_en and
    retrieval_mean_centred_xx_to_en; retrieval_layer.
    """

    pairs: Mapping[str, Pairs]
    vocabulary: Any
    languages: Sequence[str]
    poolings: Sequence[str] = ("mean",)
    max_length: int = 128
    tokens_per_batch: int = 4096
    name: str = "retrieval"
    prefix: str = ""
    layer: int | None = None

    def require(self, model: ModelConfig) -> None:
        if self.layer is not None and self.layer > model.layers:
            raise UserError(
                f"{self.name}.layer={self.layer}: the model has {model.layers} layers; 0 to"
                f" {model.layers}, 0 being the embeddings"
            )

    def held_out(self) -> list[HeldOut]:
        return held_out(self.pairs)

    def __call__(self, model, params, step: int, mesh=None) -> dict:
        run = TrainedRun(model, params, self.vocabulary, self.languages, mesh)
        tables = {pooling: {} for pooling in self.poolings}
        cuts = {}
        found = {}  # by language at `layer`, under the first pooling
        layer = model.config.layers if self.layer is None else self.layer
        for language, aligned in self.pairs.items():
            sides = []
            cut = []
            for name, texts in ((aligned.pivot, aligned.english), (language, aligned.foreign)):
                states_PNSD = embed_texts(
                    run,
                    texts,
                    name,
                    self.poolings,
                    prefix=self.prefix,
                    max_length=self.max_length,
                    cut=cut,
                    tokens_per_batch=self.tokens_per_batch,
                )
                sides.append(states_PNSD)
            if cut:
                cuts[language] = len(cut)
            for pooling, *of_layers in zip(self.poolings, *sides, strict=True):
                layers = [searched(*states, mesh) for states in zip(*of_layers, strict=True)]
                tables[pooling][language] = {str(n): shares(one) for n, one in enumerate(layers)}
                found.setdefault(language, layers[layer]["raw_xx_to_en"])
        by_layer = {pooling: mean_by_layer(table) for pooling, table in tables.items()}
        # The first pooling is the one that plain figures, and so BEST_METRIC, are of.
        plain = by_layer[self.poolings[0]][str(layer)]
        values = {"kind": "retrieval", "prefix": self.prefix, "cut": cuts}
        return {name: value for name, value in values.items() if value} | {
            "retrieval_mean": plain["raw_en_to_xx"],
            "retrieval_mean_centred": plain["centred_en_to_xx"],
            "retrieval_mean_xx_to_en": plain["raw_xx_to_en"],
            "retrieval_mean_centred_xx_to_en": plain["centred_xx_to_en"],
            "retrieval_layer": layer,
            "pivot": next(iter(self.pairs.values())).pivot,
            "pairs": {language: len(aligned) for language, aligned in self.pairs.items()},
            "by_language": tables,
            "by_layer": by_layer,
            "examples": examples(self.pairs, found),
        }
