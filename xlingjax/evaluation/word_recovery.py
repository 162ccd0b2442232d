"""What word recovery reads (Unicoder §3.2): how much of which word of the translation stands for
each word, and which word the model takes it for."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from xlingjax.data.held_out_pairs import PIVOT, Pairs
from xlingjax.evaluation.perplexity import pair_rows
from xlingjax.inference.encode import language_index, on_xla, place, row_multiple
from xlingjax.objectives.losses import best_ids
from xlingjax.objectives.unicoder import CLWR
from xlingjax.training.evaluator import Evaluator


@functools.lru_cache(maxsize=8)
def _recover(model, objective: CLWR, mesh):
    """jit of (params, batch) -> (attention_BLS, the likeliest id at every column [B, L])."""
    model = on_xla(model, mesh)

    def run(params, batch):
        _, attention_BLS = objective.mixtures(model, params, batch)
        h_BLD = objective.predictions(model, params, batch)[objective.name].states
        g_BLD, table_VD, bias_V = model.vocab_head(params, h_BLD)
        flat_TD = g_BLD.reshape(-1, g_BLD.shape[-1])
        ids_T = best_ids(
            flat_TD,
            table_VD,
            bias_V,
            vocab_size=model.config.vocab_size,
            chunk=objective.chunk,
        )
        return attention_BLS, ids_T.reshape(h_BLD.shape[:2])

    return jax.jit(
        run,
        out_shardings=NamedSharding(mesh, PartitionSpec())
        if mesh is not None
        else None,
    )


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
            ids = tuple(
                language_index(code, self.languages, model)
                for code in (language, PIVOT)
            )
            drawn = pairs.shuffled(self.seed)
            parts.append(
                pair_rows(
                    drawn,
                    self.vocabulary,
                    self.length,
                    ids,
                    self.per_language,
                    each_opens=True,
                )
            )
            names += [(language, PIVOT)] * len(parts[-1]["input_ids"])
        batch = {
            name: np.concatenate([rows[name] for rows in parts]) for name in parts[0]
        }
        width = int(
            batch["pack_ids"].any(axis=0).sum()
        )  # of the longest: all rows go through the model at once
        batch = {name: values[:, :width] for name, values in batch.items()}
        batch["target_weights"] = self._ordinary(batch).astype(np.float32)
        missing = -len(names) % row_multiple(mesh)
        padded = {
            name: np.pad(values, [(0, missing), (0, 0)])
            for name, values in batch.items()
        }
        run = _recover(model, CLWR(raw=self.raw), mesh)
        attention_BLS, ids_BL = (
            np.asarray(found) for found in run(params, place(padded, mesh))
        )
        samples = [
            self._sample(batch, row, side, names[row], attention_BLS[row], ids_BL[row])
            for row in range(len(names))
            for side in (0, 1)
        ]
        return {"kind": "recovery_samples", "samples": samples}

    def _ordinary(self, batch: Mapping[str, np.ndarray]) -> np.ndarray:
        special = np.isin(batch["input_ids"], sorted(self.vocabulary.special_ids))
        return (batch["pack_ids"] > 0) & ~special

    def _sample(
        self, batch, row: int, side: int, names: tuple[str, str], attention_LS, ids_L
    ) -> dict[str, Any]:
        sides, real = batch["sides"][row], batch["pack_ids"][row] > 0
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
            .round(4)
            .tolist(),
        }
