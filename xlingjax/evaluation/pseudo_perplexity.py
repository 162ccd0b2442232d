"""BTMLM's perplexity by the share of pseudo tokens (ERNIE-M §4.3, figure 5): how much a model gains
from what it has written in another language."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.features import special_row
from xlingjax.data.text.texts import Text
from xlingjax.errors import UserError, require_choice
from xlingjax.evaluation.perplexity import (
    Rows,
    joined,
    mask_for_validation,
    mean,
    rows_of_text,
    scores,
)
from xlingjax.objectives.ernie_m import BTMLM
from xlingjax.preprocessors.ernie_m import PLACEMENTS, text_beside
from xlingjax.training.evaluator import Evaluator


@dataclass
class PseudoPerplexity(Evaluator):
    """Perplexity of the masked pieces of held-out text beside pseudo tokens, by both stages of
    `objective`, as an evaluator of the training loop.

    texts: one per language; `limit` rows of each, of as much text as rows of `length` tokens hold
    beside `most` of it in pseudo tokens. At every share a row has the same masks (those of
    `TextPerplexity`) and its pseudo tokens are in the same language, one of `targets` that is not
    its own; the places of a smaller share are among those of a larger one. Share 0 is masked LM
    alone. placement, reset_positions: as in `BtmlmFeatures`.

    Values: {"share_0.05": mean perplexity over languages, ..., "by_language": {"0.05": {language:
    perplexity}}}. Raises UserError for a text without sentences.
    """

    texts: Mapping[str, Text]
    vocabulary: Any
    languages: Sequence[str]
    targets: Sequence[str]
    shares: Sequence[float] = (0.0, 0.05, 0.1, 0.15, 0.2)
    objective: BTMLM = BTMLM()
    most: float = 0.2
    placement: str = "behind"
    reset_positions: bool = False
    length: int = 128
    limit: int = 64
    batch_size: int = 16
    seed: int = 0
    name: str = "pseudo_perplexity"

    def __post_init__(self):
        require_choice(self, PLACEMENTS, "placement", "btmlm: ")
        most = max(self.most, *self.shares)
        # As much text as fits beside the most pseudo tokens: all shares read the same.
        text = text_beside(self.length, functools.partial(placeholder_count, most))
        self._places = max(1, placeholder_count(most, text))
        self._draws: list[tuple[np.ndarray, int]] = []
        parts, masked = [], []
        for language, lines in sorted(self.texts.items()):
            rows = rows_of_text(lines, language, self.languages, self.vocabulary, text, self.limit)
            parts.append(rows)
            masked.append(mask_for_validation(rows, self.vocabulary.mask_id, self.seed))
            self._draw(language, rows)
        if not parts:
            raise UserError("PSEUDO_SHARES: HELDOUT_TEXT has no text in a language of the run")
        self._text = joined(parts)
        self._masked = joined(masked)

    def _draw(self, language: str, rows: Rows) -> None:
        """For each row the order in which its places are taken, and the language."""
        others = [code for code in self.targets if code != language]
        if not others:
            raise UserError(
                f"pseudo_perplexity: {language} has no other language to write pseudo tokens in;"
                " set PARALLEL, or leave its text out of HELDOUT_TEXT"
            )
        for pack_L in rows["pack_ids"]:
            # The number of the row alone, so that every step asks for the same.
            rng = np.random.default_rng((self.seed, 1, len(self._draws)))
            order = rng.permutation(int(pack_L.sum()))
            target = str(rng.choice(others))
            self._draws.append((order, list(self.languages).index(target)))

    def rows(self, share: float) -> Rows:
        """The batch that `objective` reads, of all rows."""
        offsets, targets = [], []
        for order, target in self._draws:
            count = placeholder_count(share, len(order))
            offsets.append(offsets_of(order, count, self.placement))
            targets.append(target)
        row = with_placeholders(
            self._text, offsets, targets, self.vocabulary, self.reset_positions, self._places
        )
        # The pseudo tokens are written from the text as it is; what is measured is the masked one.
        width = self._text["input_ids"].shape[1]
        ids_BL = row["input_ids"].copy()
        ids_BL[:, :width] = self._masked["input_ids"]
        slots = {name: of for name, of in self._masked.items() if name.startswith("masked_")}
        return {**row, "input_ids": ids_BL, **slots}

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        values: dict[str, Any] = {"kind": "pseudo_perplexity"}
        by_language = {}
        for share in self.shares:
            of = model, params, self.objective, self.rows(share), self.languages
            found, _ = scores(*of, batch_size=self.batch_size, mesh=mesh)
            values[f"share_{share:g}"] = mean(found)
            by_language[f"{share:g}"] = found
        return {**values, "by_language": by_language}


def with_placeholders(
    text: Rows,
    offsets: Sequence[np.ndarray],
    targets: Sequence[int],
    vocabulary: Any,
    reset_positions: bool,
    places: int,
) -> Rows:
    """The rows that `BtmlmFeatures` makes, nothing of the text masked.

    offsets: of each row's pseudo tokens, sorted; targets: their language ids; places: columns
    behind the text, at least as many as a row's pseudo tokens.
    """
    width = text["pack_ids"].shape[1]
    counts_B1 = np.array([[len(chosen)] for chosen in offsets])
    used_BP = np.arange(places) < counts_B1
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
    row = {
        name: np.concatenate([text[name], columns], axis=1).astype(np.int32)
        for name, columns in behind.items()
    }
    special = special_row(vocabulary.special_ids, "pseudo tokens")
    return row | {
        "original_ids": row["input_ids"],
        "is_mask": np.pad(used_BP, [(0, 0), (width, 0)]).astype(np.int32),
        "special_ids": np.tile(special, (len(used_BP), 1)),
        "pseudo_positions": np.where(used_BP, width + np.arange(places), 0).astype(np.int32),
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
