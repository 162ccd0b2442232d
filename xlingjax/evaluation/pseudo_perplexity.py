"""BTMLM's perplexity by the share of pseudo tokens (ERNIE-M §4.3, figure 5): how much a model gains
from what it has written in another language."""

import functools
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
    scores,
)
from xlingjax.objectives.ernie_m import BTMLM
from xlingjax.preprocessors.ernie_m import (
    PLACEMENTS,
    placeholder_count,
    text_beside,
    with_placeholders,
)
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
    name: str = "pseudo_perplexity"

    def __post_init__(self):
        require_choice(self, PLACEMENTS, "placement", "btmlm: ")
        most = max(self.most, *self.shares)
        # As much text as fits beside the most pseudo tokens: all shares read the same.
        text = text_beside(self.length, functools.partial(placeholder_count, most))
        self._places = max(1, placeholder_count(most, text))
        self._orders: list[np.ndarray] = []
        self._targets: list[int] = []
        parts, masked = [], []
        for language, lines in sorted(self.texts.items()):
            rows = rows_of_text(lines, language, self.languages, self.vocabulary, text, self.limit)
            parts.append(rows)
            masked.append(mask_for_validation(rows, self.vocabulary.mask_id))
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
            rng = np.random.default_rng((0, 1, len(self._orders)))
            self._orders.append(rng.permutation(int(pack_L.sum())))
            self._targets.append(list(self.languages).index(str(rng.choice(others))))

    def rows(self, share: float) -> Rows:
        """The batch that `objective` reads, of all rows."""
        tokens_B1 = self._text["pack_ids"].sum(axis=1, keepdims=True)
        counts_B1 = placeholder_count(share, tokens_B1)
        positions_BP = np.tile(np.arange(self._places), (len(tokens_B1), 1))
        if self.placement == "scattered":
            # The first places of an order drawn before: those of a smaller share are among them.
            for row, (order, (count,)) in enumerate(zip(self._orders, counts_B1, strict=True)):
                positions_BP[row, :count] = np.sort(order[:count])
        used_BP = np.arange(self._places) < counts_B1
        if not self.reset_positions:
            positions_BP += tokens_B1
        width = self._text["pack_ids"].shape[1]
        return with_placeholders(
            self._text,
            self._masked,
            used_BP,
            positions_BP,
            np.array(self._targets)[:, None],
            width,
            width + self._places,
            self.vocabulary,
        )

    def __call__(self, model, params, step: int, mesh=None) -> dict:
        values = {"kind": "pseudo_perplexity"}
        by_language = {}
        for share in self.shares:
            of = model, params, self.objective, self.rows(share), self.languages
            found, _ = scores(*of, mesh=mesh)
            values[f"share_{share:g}"] = mean(found)
            by_language[f"{share:g}"] = found
        return {**values, "by_language": by_language}
