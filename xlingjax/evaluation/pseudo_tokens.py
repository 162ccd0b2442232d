"""What BTMLM's first stage writes (ERNIE-M §3.1): the pseudo tokens of held-out sentences, for a
person to look at."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from xlingjax.data.features import SPECIAL_IDS
from xlingjax.data.texts import Text
from xlingjax.evaluation.perplexity import Rows, sentence_rows
from xlingjax.inference.encode import language_index, on_xla, place, row_multiple
from xlingjax.objectives.ernie_m import BTMLM
from xlingjax.training.evaluator import Evaluator


@functools.lru_cache(maxsize=8)
def _placeholders(model, mesh):
    """jit of (params, batch) -> the pseudo tokens [B, P], each the likeliest."""
    model, objective = on_xla(model, mesh), BTMLM()
    replicated = NamedSharding(mesh, PartitionSpec()) if mesh is not None else None
    return jax.jit(
        lambda params, batch: objective.placeholders(model, params, batch).targets,
        out_shardings=replicated,
    )


@dataclass
class PseudoSamples(Evaluator):
    """The pseudo tokens that the model writes for held-out sentences, as an evaluator of the
    training loop.

    texts: one per language, of which `per_language` sentences are drawn with `seed`, the same ones
    at every step, from those that fit rows of `length` tokens; for each a language of `targets` is
    drawn that is not its own. proportion, reset_positions: those of `BtmlmFeatures`.

    Values: {"samples": [{"language", "pieces", "target_language", "pseudo": [[offset, piece],
    ...]}]}; an offset is the place in the sentence where the piece would stand.
    """

    texts: Mapping[str, Text]
    vocabulary: Any
    languages: Sequence[str]
    targets: Sequence[str]
    proportion: float = 0.15
    reset_positions: bool = False
    per_language: int = 2
    length: int = 64
    seed: int = 0
    name: str = "pseudo_samples"

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        parts, samples, offsets = [], [], []
        for language, text in sorted(self.texts.items()):
            rows = self._sentences(
                text, language_index(language, self.languages, model)
            )
            for row, pack_L in enumerate(rows["pack_ids"]):
                rng = np.random.default_rng((self.seed, len(samples)))
                tokens = int(pack_L.sum())
                places = np.sort(
                    rng.choice(
                        tokens,
                        int(np.ceil(self.proportion * tokens - 1e-6)),
                        replace=False,
                    )
                )
                target = str(
                    rng.choice([code for code in self.targets if code != language])
                )
                pieces = self.vocabulary.pieces(
                    rows["input_ids"][row, :tokens].tolist()
                )
                samples.append(
                    {"language": language, "pieces": pieces, "target_language": target}
                )
                offsets.append(places)
            parts.append(rows)
        if not samples:
            return {"kind": "pseudo_samples", "samples": []}
        text = {
            name: np.concatenate([rows[name] for rows in parts]) for name in parts[0]
        }
        targets = [
            language_index(sample["target_language"], self.languages, model)
            for sample in samples
        ]
        batch = self._with_placeholders(text, offsets, targets)
        missing = -len(samples) % row_multiple(mesh)
        batch = {
            name: np.pad(values, [(0, missing), (0, 0)], mode="edge")
            for name, values in batch.items()
        }
        ids_BP = np.asarray(_placeholders(model, mesh)(params, place(batch, mesh)))
        for sample, places, ids_P in zip(samples, offsets, ids_BP, strict=False):
            pieces = self.vocabulary.pieces(ids_P[: len(places)].tolist())
            sample["pseudo"] = [
                [int(at), piece] for at, piece in zip(places, pieces, strict=True)
            ]
        return {"kind": "pseudo_samples", "samples": samples}

    def _sentences(self, text: Text, language_id: int) -> Rows:
        lines = [line for line in text.lines() if line]
        chosen = [
            lines[i] for i in np.random.default_rng(self.seed).permutation(len(lines))
        ]
        longest = int(self.length / (1 + self.proportion)) - 1
        return sentence_rows(
            chosen, self.vocabulary, longest, language_id, self.per_language
        )

    def _with_placeholders(
        self, text: Rows, offsets: Sequence[np.ndarray], targets: Sequence[int]
    ) -> Rows:
        """The rows that `BtmlmFeatures` makes, nothing of the text masked."""
        width, most = text["pack_ids"].shape[1], max(len(places) for places in offsets)
        used_BP = np.array(
            [[slot < len(places) for slot in range(most)] for places in offsets]
        )
        offset_BP = np.array(
            [[*places, *[0] * (most - len(places))] for places in offsets]
        )
        base_B1 = (
            0 if self.reset_positions else text["pack_ids"].sum(axis=1, keepdims=True)
        )
        behind = {
            "input_ids": np.where(
                used_BP, self.vocabulary.mask_id, self.vocabulary.pad_id
            ),
            "position_ids": np.where(used_BP, base_B1 + offset_BP, 0),
            "language_ids": np.where(used_BP, np.array(targets)[:, None], 0),
            "pack_ids": used_BP,
            "sides": used_BP,
        }
        row = {
            name: np.concatenate([text[name], behind[name]], axis=1).astype(np.int32)
            for name in behind
        }
        special = np.resize(sorted(self.vocabulary.special_ids), SPECIAL_IDS)
        return row | {
            "original_ids": row["input_ids"],
            "is_mask": np.pad(used_BP, [(0, 0), (width, 0)]).astype(np.int32),
            "special_ids": np.tile(special, (len(used_BP), 1)).astype(np.int32),
            "pseudo_positions": np.where(used_BP, width + np.arange(most), 0).astype(
                np.int32
            ),
            "pseudo_weights": used_BP.astype(np.float32),
        }
