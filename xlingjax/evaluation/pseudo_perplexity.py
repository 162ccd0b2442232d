"""BTMLM's perplexity by the share of pseudo tokens (ERNIE-M §4.3, figure 5): how much a model gains
from what it has written in another language."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xlingjax.data.text.texts import Text
from xlingjax.errors import UserError, require_choice
from xlingjax.evaluation.perplexity import (
    Rows,
    joined,
    mask_for_validation,
    mean,
    rows_of_text,
    same_slots,
    scores,
)
from xlingjax.evaluation.pseudo_tokens import offsets_of, placeholder_count, with_placeholders
from xlingjax.objectives.ernie_m import BTMLM
from xlingjax.preprocessors.ernie_m import PLACEMENTS
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
    perplexity}}}. Raises UserError for shares that are none and for a text without sentences.
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
        for share in self.shares:
            if not 0 <= share < 1:
                raise UserError(
                    f"PSEUDO_SHARES: {share:g} is no share: give numbers from 0 to below 1, like"
                    " 0,0.05,0.1"
                )
        most = max(self.most, *self.shares)
        # As much text as fits beside the most pseudo tokens: all shares read the same.
        text = self.length - 1
        while text + placeholder_count(most, text) > self.length:
            text -= 1
        # At one width all shares run by one program.
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
        self._masked = joined(same_slots(masked))

    def _draw(self, language: str, rows: Rows) -> None:
        """For each row the order in which its places are taken, and the language."""
        # As in training: pseudo tokens are of another language than the text.
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
        names = ("masked_positions", "masked_targets", "masked_weights")
        slots = {name: self._masked[name] for name in names}
        return {**row, "input_ids": ids_BL, **slots}

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        values: dict[str, Any] = {"kind": "pseudo_perplexity"}
        by_language = {}
        for share in self.shares:
            found, _ = scores(
                model,
                params,
                self.objective,
                self.rows(share),
                self.languages,
                batch_size=self.batch_size,
                mesh=mesh,
            )
            values[f"share_{share:g}"] = mean(found)
            by_language[f"{share:g}"] = found
        return {**values, "by_language": by_language}
