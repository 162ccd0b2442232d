"""What the model puts where a word is masked: a few held-out sentences per language, for a person
to look at."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from xlingjax.data.held_out_pairs import PIVOT, Pairs
from xlingjax.data.texts import Text
from xlingjax.errors import UserError
from xlingjax.evaluation.perplexity import (
    Rows,
    hide_partner,
    mask_for_validation,
    pair_rows,
    same_slots,
    sentence_rows,
)
from xlingjax.inference.encode import on_xla, place, row_multiple
from xlingjax.model.attention import AttentionSpec
from xlingjax.model.masks import bidirectional
from xlingjax.training.evaluator import Evaluator


@functools.lru_cache(maxsize=8)
def _top(model, count: int, size: int, mesh):
    """jit of (params, batch) -> probabilities and ids [B, M, count] of the likeliest of `size`
    pieces at the
    prediction slots.
    """
    model = on_xla(model, mesh)

    def run(params, batch):
        h_BLD = model.encode(params, batch, AttentionSpec(bidirectional))
        h_BMD = jnp.take_along_axis(h_BLD, batch["masked_positions"][..., None], axis=1)
        g_BMD, table_VD, bias_V = model.vocab_head(params, h_BMD)
        logits_BMV = (
            jnp.einsum(
                "bmd,vd->bmv", g_BMD, table_VD, preferred_element_type=jnp.float32
            )
            + bias_V
        )
        return jax.lax.top_k(jax.nn.softmax(logits_BMV[..., :size]), count)

    return jax.jit(
        run,
        out_shardings=NamedSharding(mesh, PartitionSpec())
        if mesh is not None
        else None,
    )


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
        texts = [
            rows
            for language, text in sorted(self.texts.items())
            for rows in self._text_rows(language, text)
        ]
        pairs, partners = self._pair_rows()
        out: dict[str, Any] = {"kind": "masked_samples", "texts": [], "pairs": []}
        if texts:
            out["texts"] = self._show(model, params, texts, mesh)
        if pairs:
            out["pairs"] = self._show(
                model, params, [hide_partner(rows) for rows in pairs], mesh
            )
            visible = self._show(model, params, pairs, mesh)
            for sample, other, partner in zip(
                out["pairs"], visible, partners, strict=True
            ):
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
        lines = [line for line in text.lines() if line]
        chosen = [
            lines[i] for i in np.random.default_rng(self.seed).permutation(len(lines))
        ]
        rows = sentence_rows(
            chosen, self.vocabulary, self.length, self._id(language), self.per_language
        )
        return (
            [mask_for_validation(rows, self.vocabulary.mask_id, self.seed)]
            if len(rows["input_ids"])
            else []
        )

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
                english = [
                    i
                    for i in ids_L[side_L == 1].tolist()
                    if i not in self.vocabulary.special_ids
                ]
                partners.append(self.vocabulary.decode(english))
            parts.append(
                mask_for_validation(rows, self.vocabulary.mask_id, self.seed, side=0)
            )
        return parts, partners

    def _show(self, model, params, parts: list[Rows], mesh) -> list[dict[str, Any]]:
        parts = same_slots(parts)
        batch = {
            name: np.concatenate([rows[name] for rows in parts]) for name in parts[0]
        }
        width = int(
            batch["pack_ids"].any(axis=0).sum()
        )  # of the longest: all rows go through the model at once
        batch = {
            name: x if name.startswith("masked_") else x[:, :width]
            for name, x in batch.items()
        }
        count = len(batch["input_ids"])
        missing = -count % row_multiple(mesh)
        size = min(model.config.vocab_size, self.vocabulary.size)
        padded = {
            name: np.pad(values, [(0, missing), (0, 0)])
            for name, values in batch.items()
        }
        top_BMK, ids_BMK = (
            np.asarray(x)
            for x in _top(model, self.top, size, mesh)(params, place(padded, mesh))
        )
        samples = []
        for row in range(count):
            shown = (batch["pack_ids"][row] > 0) & (batch["sides"][row] == 0)
            pieces = self.vocabulary.pieces(batch["input_ids"][row][shown].tolist())
            slots = []
            for slot in np.flatnonzero(batch["masked_weights"][row]):
                column = int(batch["masked_positions"][row, slot])
                pieces[column] = "[MASK]"
                names = self.vocabulary.pieces(ids_BMK[row, slot].tolist())
                slots.append(
                    {
                        "column": column,
                        "target": self.vocabulary.pieces(
                            [int(batch["masked_targets"][row, slot])]
                        )[0],
                        "predictions": [
                            [name, round(float(p), 4)]
                            for name, p in zip(names, top_BMK[row, slot], strict=True)
                        ],
                    }
                )
            language = self.languages[int(batch["language_ids"][row, 0])]
            samples.append({"language": language, "pieces": pieces, "slots": slots})
        return samples
