"""What word recovery reads (Unicoder §3.2): how much of which word of the translation stands for
each word, and which word the model takes it for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.held_out_pairs import PIVOT, Pairs
from xlingjax.evaluation.perplexity import joined, pair_rows
from xlingjax.inference.encode import language_index
from xlingjax.inference.forward import by_row, compiled
from xlingjax.objectives.losses import best_ids
from xlingjax.objectives.unicoder import CLWR
from xlingjax.training.evaluator import Evaluator


def _recover(model, objective: CLWR, params, batch):
    """(attention_BLS, the likeliest id at every column [B, L])."""
    _, attention_BLS = objective.mixtures(model, params, batch)
    h_BLD = objective.predictions(model, params, batch)[objective.name].states
    g_BLD, table_VD, bias_V = model.vocab_head(params, h_BLD)
    # In chunks of the vocabulary: the logits of every column would fill the memory.
    ids_T = best_ids(
        g_BLD.reshape(-1, g_BLD.shape[-1]),
        table_VD,
        bias_V,
        vocab_size=model.config.vocab_size,
        chunk=objective.chunk,
    )
    return attention_BLS, ids_T.reshape(h_BLD.shape[:2])


@dataclass
class RecoverySamples(Evaluator):
    """The attention of word recovery in held-out pairs, as an evaluator of the training loop.

    `per_language` pairs with English of each language, drawn with `seed`, the same ones at every
    step, from those that fit rows of `length` tokens. raw: that of `CLWR`.

    Values: {"samples": [...]}, two of each pair, either text recovered from the other: {"language",
    "pieces" of the words recovered, "recovered", the likeliest piece for each, "partner_language",
    "partner", the pieces they are mixed from, the separators too, "attention": a row of shares of
    `partner` for each of `pieces`, that sums to 1}.
    """

    pairs: Mapping[str, Pairs]
    vocabulary: Any
    languages: Sequence[str]
    raw: bool = False
    per_language: int = 1
    length: int = 64
    seed: int = 0
    name: str = "recovery_samples"

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        parts, names = [], []
        for language, pairs in sorted(self.pairs.items()):
            own = language_index(language, self.languages, model)
            pivot = language_index(PIVOT, self.languages, model)
            drawn = pairs.shuffled(self.seed)
            parts.append(
                pair_rows(
                    drawn,
                    self.vocabulary,
                    self.length,
                    (own, pivot),
                    self.per_language,
                    # Word recovery reads either side as a text of its own.
                    each_opens=True,
                )
            )
            names += [(language, PIVOT)] * len(parts[-1]["input_ids"])
        batch = joined(parts)
        # All rows go through the model at once: no wider than the longest.
        width = int(batch["pack_ids"].any(axis=0).sum())
        batch = {name: values[:, :width] for name, values in batch.items()}
        batch["target_weights"] = self._ordinary(batch).astype(np.float32)
        run = compiled(_recover, model, mesh, CLWR(raw=self.raw))
        attention_BLS, ids_BL = by_row(run, params, batch, len(names), mesh)
        samples = []
        for row, codes in enumerate(names):
            # Either side is recovered from the other.
            for side in (0, 1):
                samples.append(
                    self._sample(batch, row, side, codes, attention_BLS[row], ids_BL[row])
                )
        return {"kind": "recovery_samples", "samples": samples}

    def _ordinary(self, batch: Mapping[str, np.ndarray]) -> np.ndarray:
        special = np.isin(batch["input_ids"], sorted(self.vocabulary.special_ids))
        # A separator has no counterpart in the translation to be recovered from.
        return (batch["pack_ids"] > 0) & ~special

    def _sample(
        self, batch, row: int, side: int, names: tuple[str, str], attention_LS, ids_L
    ) -> dict[str, Any]:
        sides = batch["sides"][row]
        real = batch["pack_ids"][row] > 0
        words = np.flatnonzero((batch["target_weights"][row] > 0) & (sides == side))
        partner = np.flatnonzero(real & (sides != side))

        def pieces(ids: np.ndarray) -> list[str]:
            return self.vocabulary.pieces(ids.tolist())

        return {
            "language": names[side],
            "pieces": pieces(batch["input_ids"][row, words]),
            "recovered": pieces(ids_L[words]),
            "partner_language": names[1 - side],
            "partner": pieces(batch["input_ids"][row, partner]),
            "attention": np.float64(attention_LS[np.ix_(words, partner)])
            # Rounded, since a table of shares at every evaluation would fill the log.
            .round(4)
            .tolist(),
        }
