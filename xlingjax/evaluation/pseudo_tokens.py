"""What BTMLM's first stage writes (ERNIE-M §3.1): the pseudo tokens of held-out sentences, for a
person to look at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.features import special_row
from xlingjax.data.text.texts import Text
from xlingjax.errors import require_choice
from xlingjax.evaluation.perplexity import Rows, joined, sentence_rows
from xlingjax.inference.encode import language_index
from xlingjax.inference.forward import by_row, compiled
from xlingjax.objectives.ernie_m import BTMLM
from xlingjax.preprocessors.ernie_m import PLACEMENTS
from xlingjax.training.evaluator import Evaluator


def _placeholders(model, params, batch):
    """The pseudo tokens [B, P], each the likeliest."""
    # With BTMLM's defaults: the likeliest ids, no special ones, whatever the run draws.
    return BTMLM().placeholders(model, params, batch).targets


@dataclass
class PseudoSamples(Evaluator):
    """The pseudo tokens that the model writes for held-out sentences, as an evaluator of the
    training loop.

    texts: one per language, of which `per_language` sentences are drawn with `seed`, the same ones
    at every step, from those that fit rows of `length` tokens; for each a language of `targets` is
    drawn that is not its own. proportion, placement, reset_positions: those of `BtmlmFeatures`.

    Values: {"samples": [{"language", "pieces", "target_language", "pseudo": [[offset, piece],
    ...]}]}; an offset is the piece's place in a second sentence.
    """

    texts: Mapping[str, Text]
    vocabulary: Any
    languages: Sequence[str]
    targets: Sequence[str]
    proportion: float = 0.15
    placement: str = "behind"
    reset_positions: bool = False
    per_language: int = 2
    length: int = 64
    seed: int = 0
    name: str = "pseudo_samples"

    def __post_init__(self):
        require_choice(self, PLACEMENTS, "placement", "btmlm: ")

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        parts, samples, offsets, targets = [], [], [], []
        for language, text in sorted(self.texts.items()):
            index = language_index(language, self.languages, model)
            rows = self._sentences(text, index)
            parts.append(rows)
            for ids_L, pack_L in zip(rows["input_ids"], rows["pack_ids"], strict=True):
                # The number of the sample alone, so that every step asks for the same.
                rng = np.random.default_rng((self.seed, len(samples)))
                tokens = int(pack_L.sum())
                places, target = self._drawn(rng, tokens, language)
                pieces = self.vocabulary.pieces(ids_L[:tokens].tolist())
                samples.append({"language": language, "pieces": pieces, "target_language": target})
                offsets.append(places)
                targets.append(language_index(target, self.languages, model))
        if not samples:
            return {"kind": "pseudo_samples", "samples": []}
        batch = with_placeholders(
            joined(parts), offsets, targets, self.vocabulary, self.reset_positions
        )
        run = compiled(_placeholders, model, mesh)
        ids_BP = by_row(run, params, batch, len(samples), mesh)
        for sample, places, ids_P in zip(samples, offsets, ids_BP, strict=True):
            pieces = self.vocabulary.pieces(ids_P[: len(places)].tolist())
            pseudo = [[int(at), piece] for at, piece in zip(places, pieces, strict=True)]
            sample["pseudo"] = pseudo
        return {"kind": "pseudo_samples", "samples": samples}

    def _drawn(
        self, rng: np.random.Generator, tokens: int, language: str
    ) -> tuple[np.ndarray, str]:
        """(offsets, sorted, the language) of a sentence's pseudo tokens."""
        count = placeholder_count(self.proportion, tokens)
        order = rng.permutation(tokens)
        places = offsets_of(order, count, self.placement)
        # As in training: pseudo tokens are of another language than the text.
        others = [code for code in self.targets if code != language]
        return places, str(rng.choice(others))

    def _sentences(self, text: Text, language_id: int) -> Rows:
        lines = [line for line in text.lines() if line]
        order = np.random.default_rng(self.seed).permutation(len(lines))
        chosen = [lines[i] for i in order]
        # A sentence leaves room for its own placeholders.
        # Less one, since the number of placeholders is rounded up.
        longest = int(self.length / (1 + self.proportion)) - 1
        return sentence_rows(chosen, self.vocabulary, longest, language_id, self.per_language)


def with_placeholders(
    text: Rows,
    offsets: Sequence[np.ndarray],
    targets: Sequence[int],
    vocabulary: Any,
    reset_positions: bool,
    places: int = 0,
) -> Rows:
    """The rows that `BtmlmFeatures` makes, nothing of the text masked.

    offsets: of each row's pseudo tokens, sorted; targets: their language ids; places: columns
    behind the text, at least as many as a row's pseudo tokens (0: as many).
    """
    width = text["pack_ids"].shape[1]
    counts_B1 = np.array([[len(chosen)] for chosen in offsets])
    most = places or int(counts_B1.max())
    used_BP = np.arange(most) < counts_B1
    offset_BP = np.zeros(used_BP.shape, int)
    for row, chosen in enumerate(offsets):
        offset_BP[row, : len(chosen)] = chosen
    # Positions run on behind the sentence, unless each text starts from 0 again.
    base_B1 = text["pack_ids"].sum(axis=1, keepdims=True)
    if reset_positions:
        base_B1 = np.zeros_like(base_B1)
    behind = {
        "input_ids": np.where(used_BP, vocabulary.mask_id, vocabulary.pad_id),
        "position_ids": np.where(used_BP, base_B1 + offset_BP, 0),
        "language_ids": np.where(used_BP, np.array(targets)[:, None], 0),
        "pack_ids": used_BP,
        "sides": used_BP,
    }
    row = {}
    for name, columns in behind.items():
        whole = np.concatenate([text[name], columns], axis=1)
        row[name] = whole.astype(np.int32)
    special = special_row(vocabulary.special_ids, "pseudo tokens")
    return row | {
        "original_ids": row["input_ids"],
        "is_mask": np.pad(used_BP, [(0, 0), (width, 0)]).astype(np.int32),
        "special_ids": np.tile(special, (len(used_BP), 1)),
        "pseudo_positions": np.where(used_BP, width + np.arange(most), 0).astype(np.int32),
        "pseudo_weights": used_BP.astype(np.float32),
    }


def offsets_of(order: np.ndarray, count: int, placement: str) -> np.ndarray:
    """Of so many pseudo tokens, sorted, as `BtmlmFeatures` places them; of scattered ones the first
    places of an order drawn before."""
    return np.arange(count) if placement == "behind" else np.sort(order[:count])


def placeholder_count(proportion: float, tokens: int) -> int:
    """Pseudo tokens of a text, as `BtmlmFeatures` counts them."""
    # Less a little: a product may come out above a whole number, as 0.07 x 100 does.
    return int(np.ceil(proportion * tokens - 1e-6))
