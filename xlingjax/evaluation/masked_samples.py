"""What the model puts where a word is masked: a few held-out sentences per language, for a person
to look at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.data.held_out_pairs import Pairs
from xlingjax.data.text.texts import Text
from xlingjax.evaluation.perplexity import (
    Rows,
    hide_partner,
    joined,
    language_id,
    mask_for_validation,
    rows_of_pairs,
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
        texts = [self._text_rows(*one) for one in sorted(self.texts.items())]
        # Where no sentence fits there is nothing to show.
        texts = [rows for rows in texts if len(rows["input_ids"])]
        out: dict[str, Any] = {"kind": "masked_samples", "texts": [], "pairs": []}
        if texts:
            out["texts"] = self._show(model, params, texts, mesh)
        if not self.pairs:
            return out
        drawn = {language: pairs.shuffled(self.seed) for language, pairs in self.pairs.items()}
        options = self.pair_length, self.per_language, self.reset_positions
        parts = rows_of_pairs(drawn, self.vocabulary, self.languages, *options).values()
        # The foreign side alone is masked.
        masked = [
            mask_for_validation(rows, self.vocabulary.mask_id, self.seed, side=0) for rows in parts
        ]
        # The same masks twice: what differs between the two is the translation alone.
        out["pairs"] = self._show(model, params, [hide_partner(rows) for rows in masked], mesh)
        visible = self._show(model, params, masked, mesh)
        for sample, other in zip(out["pairs"], visible, strict=True):
            for slot, seen in zip(sample["slots"], other["slots"], strict=True):
                slot["with_partner"] = seen["predictions"]
        return out

    def _text_rows(self, language: str, text: Text) -> Rows:
        lines = [line for line in text.lines() if line]
        # By the seed alone, so that a reader sees the same sentences change from step to step.
        order = np.random.default_rng(self.seed).permutation(len(lines))
        index = language_id(language, self.languages, text.path)
        chosen = [lines[i] for i in order]
        rows = sentence_rows(chosen, self.vocabulary, self.length, index, self.per_language)
        return mask_for_validation(rows, self.vocabulary.mask_id, self.seed)

    def _text_of(self, ids_L: np.ndarray) -> str:
        special = self.vocabulary.special_ids
        return self.vocabulary.decode([i for i in ids_L.tolist() if i not in special])

    def _show(self, model, params, parts: list[Rows], mesh) -> list[dict[str, Any]]:
        batch = joined(parts)
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
        side_L = batch["sides"][row]
        ids_L = batch["input_ids"][row]
        first_L = (batch["pack_ids"][row] > 0) & (side_L == 0)
        pieces = self.vocabulary.pieces(ids_L[first_L].tolist())
        slots = []
        for slot in np.flatnonzero(batch["masked_weights"][row]):
            column = int(batch["masked_positions"][row, slot])
            pieces[column] = "[MASK]"
            names = self.vocabulary.pieces(ids_MK[slot].tolist())
            # Rounded, and Python's own: values go into a line of JSON at every evaluation.
            shares = [round(float(share), 4) for share in top_MK[slot]]
            (target,) = self.vocabulary.pieces([int(batch["masked_targets"][row, slot])])
            predictions = [list(one) for one in zip(names, shares, strict=True)]
            slots.append({"column": column, "target": target, "predictions": predictions})
        language = self.languages[int(batch["language_ids"][row, 0])]
        sample = {"language": language, "pieces": pieces, "slots": slots}
        if side_L.any():
            sample["partner"] = self._text_of(ids_L[side_L == 1])
        return sample
