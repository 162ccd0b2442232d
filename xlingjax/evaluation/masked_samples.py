"""What the model puts where a word is masked: a few held-out sentences per language, for a person
to look at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.data.held_out_pairs import PIVOT, Pairs
from xlingjax.data.text.texts import Text
from xlingjax.errors import UserError
from xlingjax.evaluation.perplexity import (
    Rows,
    hide_partner,
    joined,
    mask_for_validation,
    pair_rows,
    same_slots,
    sentence_rows,
)
from xlingjax.inference.forward import by_row, compiled
from xlingjax.model.attention import AttentionSpec
from xlingjax.model.masks import bidirectional
from xlingjax.training.evaluator import Evaluator


def _top(model, count: int, size: int, params, batch):
    """Probabilities and ids [B, M, count] of the likeliest of `size` pieces at the prediction
    slots.
    """
    h_BLD = model.encode(params, batch, AttentionSpec(bidirectional))
    h_BMD = jnp.take_along_axis(h_BLD, batch["masked_positions"][..., None], axis=1)
    g_BMD, table_VD, bias_V = model.vocab_head(params, h_BMD)
    # All logits at once: there are a few slots, and each needs its best few.
    logits_BMV = (
        jnp.einsum("bmd,vd->bmv", g_BMD, table_VD, preferred_element_type=jnp.float32) + bias_V
    )
    return jax.lax.top_k(jax.nn.softmax(logits_BMV[..., :size]), count)


@dataclass
class MaskedSamples(Evaluator):
    """Masked sentences with the model's likeliest pieces, as an evaluator of the training loop.

    texts: one per language; pairs: the same for translations, shown with the English side hidden
    and visible. `per_language` sentences of each are drawn with `seed`, the same ones at every
    step, from those that fit rows of `length` (pairs: `pair_length`) tokens.

    reset_positions: positions start from 0 again at the second sentence; must be what the model was
    trained with.

    Values: {"texts": [sample], "pairs": [sample]}; a sample is {"language", "pieces": [piece,
    masked ones as
    "[MASK]"], "slots": [{"column", "target", "predictions": [[piece, probability], ...]}]}; one of
    `pairs` has "partner", the English sentence, and in each slot "with_partner", the predictions
    when it is visible.
    """

    texts: Mapping[str, Text]
    vocabulary: Any
    languages: Sequence[str]
    pairs: Mapping[str, Pairs] | None = None
    per_language: int = 3
    top: int = 5
    length: int = 64
    pair_length: int = 64
    reset_positions: bool = True
    seed: int = 0
    name: str = "masked_samples"

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        texts: list[Rows] = []
        for language, text in sorted(self.texts.items()):
            texts += self._text_rows(language, text)
        pairs, partners = self._pair_rows()
        out: dict[str, Any] = {"kind": "masked_samples", "texts": [], "pairs": []}
        if texts:
            out["texts"] = self._show(model, params, texts, mesh)
        if not pairs:
            return out
        # The same masks twice: what differs between the two is the translation alone.
        hidden = [hide_partner(rows) for rows in pairs]
        out["pairs"] = self._show(model, params, hidden, mesh)
        visible = self._show(model, params, pairs, mesh)
        for sample, other, partner in zip(out["pairs"], visible, partners, strict=True):
            sample["partner"] = partner
            for slot, seen in zip(sample["slots"], other["slots"], strict=True):
                slot["with_partner"] = seen["predictions"]
        return out

    def _id(self, language: str) -> int:
        if language not in self.languages:
            raise UserError(
                f"masked samples: {language!r} is not one of the run's languages"
                f" ({', '.join(self.languages)})"
            )
        return list(self.languages).index(language)

    def _text_rows(self, language: str, text: Text) -> list[Rows]:
        """One part, or none where no sentence fits."""
        lines = [line for line in text.lines() if line]
        # By the seed alone, so that a reader sees the same sentences change from step to step.
        order = np.random.default_rng(self.seed).permutation(len(lines))
        chosen = [lines[i] for i in order]
        index = self._id(language)
        rows = sentence_rows(chosen, self.vocabulary, self.length, index, self.per_language)
        if not len(rows["input_ids"]):
            return []
        return [mask_for_validation(rows, self.vocabulary.mask_id, self.seed)]

    def _pair_rows(self) -> tuple[list[Rows], list[str]]:
        """Rows that mask the foreign side alone, and each row's English sentence."""
        parts, partners = [], []
        for language, pairs in sorted((self.pairs or {}).items()):
            ids = self._id(language), self._id(PIVOT)
            drawn = pairs.shuffled(self.seed)
            rows = pair_rows(
                drawn,
                self.vocabulary,
                self.pair_length,
                ids,
                self.per_language,
                self.reset_positions,
            )
            for ids_L, side_L in zip(rows["input_ids"], rows["sides"], strict=True):
                partners.append(self._text_of(ids_L[side_L == 1]))
            parts.append(mask_for_validation(rows, self.vocabulary.mask_id, self.seed, side=0))
        return parts, partners

    def _text_of(self, ids_L: np.ndarray) -> str:
        special = self.vocabulary.special_ids
        return self.vocabulary.decode([i for i in ids_L.tolist() if i not in special])

    def _show(self, model, params, parts: list[Rows], mesh) -> list[dict[str, Any]]:
        batch = joined(same_slots(parts))
        # All rows go through the model at once: no wider than the longest.
        width = int(batch["pack_ids"].any(axis=0).sum())
        for name, values in batch.items():
            if not name.startswith("masked_"):
                batch[name] = values[:, :width]
        count = len(batch["input_ids"])
        # Rows of an embedding beyond the vocabulary are no pieces.
        size = min(model.config.vocab_size, self.vocabulary.size)
        run = compiled(_top, model, mesh, self.top, size)
        top_BMK, ids_BMK = by_row(run, params, batch, count, mesh)
        return [self._sample(batch, row, top_BMK[row], ids_BMK[row]) for row in range(count)]

    def _sample(self, batch: Rows, row: int, top_MK, ids_MK) -> dict[str, Any]:
        shown = (batch["pack_ids"][row] > 0) & (batch["sides"][row] == 0)
        pieces = self.vocabulary.pieces(batch["input_ids"][row][shown].tolist())
        slots = []
        for slot in np.flatnonzero(batch["masked_weights"][row]):
            column = int(batch["masked_positions"][row, slot])
            pieces[column] = "[MASK]"
            names = self.vocabulary.pieces(ids_MK[slot].tolist())
            predictions = []
            for name, probability in zip(names, top_MK[slot], strict=True):
                # Rounded, and Python's own: values go into a line of JSON at every evaluation.
                predictions.append([name, round(float(probability), 4)])
            target = int(batch["masked_targets"][row, slot])
            slots.append(
                {
                    "column": column,
                    "target": self.vocabulary.pieces([target])[0],
                    "predictions": predictions,
                }
            )
        language = self.languages[int(batch["language_ids"][row, 0])]
        return {"language": language, "pieces": pieces, "slots": slots}
