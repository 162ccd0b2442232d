"""What the model puts where a word is masked, in a few held-out sentences per language."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlingjax.data.text.texts import Text
from xlingjax.evaluation.perplexity import (
    Rows,
    joined,
    language_id,
    mask_for_validation,
    sentence_rows,
)
from xlingjax.inference.forward import by_row, compiled
from xlingjax.model.masks import bidirectional
from xlingjax.training.evaluator import Evaluator


def _top(model, count: int, size: int, params, batch):
    """Probabilities and ids [B, M, count] of the likeliest of `size` pieces at the slots."""
    h_BLD = model.encode(params, batch, bidirectional)
    h_BMD = jnp.take_along_axis(h_BLD, batch["masked_positions"][..., None], axis=1)
    g_BMD, table_VD, bias_V = model.vocab_head(params, h_BMD)
    logits_BMV = (
        jnp.einsum("bmd,vd->bmv", g_BMD, table_VD, preferred_element_type=jnp.float32) + bias_V
    )
    return jax.lax.top_k(jax.nn.softmax(logits_BMV[..., :size]), count)


@dataclass
class MaskedSamples(Evaluator):
    """Masked sentences with the model's likeliest pieces, as an evaluator of the training loop.

    texts: one per language; `per_language` sentences of each are drawn with `seed`, the same at
    every step, from those that fit rows of `length` tokens.

    Values: {"texts": [sample]}; a sample is {"language", "pieces": [piece, masked ones as
    "[MASK]"], "slots": [{"column", "target", "predictions": [[piece, probability], ...]}]}.
    """

    texts: Mapping[str, Text]
    vocabulary: Any
    languages: Sequence[str]
    per_language: int = 3
    top: int = 5
    length: int = 64
    seed: int = 0
    name: str = "masked_samples"

    def __call__(self, model, params, step: int, mesh=None) -> dict[str, Any]:
        texts = [self._text_rows(*one) for one in sorted(self.texts.items())]
        texts = [rows for rows in texts if len(rows["input_ids"])]
        samples = self._show(model, params, texts, mesh) if texts else []
        return {"kind": "masked_samples", "texts": samples}

    def _text_rows(self, language: str, text: Text) -> Rows:
        lines = [line for line in text.lines() if line]
        # By the seed alone, so that a reader sees the same sentences change from step to step.
        order = np.random.default_rng(self.seed).permutation(len(lines))
        index = language_id(language, self.languages, text.path)
        chosen = [lines[i] for i in order]
        rows = sentence_rows(chosen, self.vocabulary, self.length, index, self.per_language)
        return mask_for_validation(rows, self.vocabulary.mask_id, self.seed)

    def _show(self, model, params, parts: list[Rows], mesh) -> list[dict[str, Any]]:
        batch = joined(parts)
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
        ids_L = batch["input_ids"][row]
        pieces = self.vocabulary.pieces(ids_L[batch["pack_ids"][row] > 0].tolist())
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
        return {"language": language, "pieces": pieces, "slots": slots}
