"""How many words an objective hides in its batches, and what stands in their place."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlingjax.report import html
from xlingjax.report.rows import Batch, with_slots

STATISTICS_HEAD = (
    "language",
    "tokens",
    "predictions",
    "rate (%)",
    "MASK (%)",
    "random (%)",
    "kept (%)",
)


def mask_statistics(
    batches: Sequence[Batch], vocabulary, languages: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Per language that occurs, and over "all": tokens, predictions, rate (predictions per token,
    padding apart), and what share of the predictions shows MASK, a random piece or the piece itself
    (`mask`, `random`, `kept`).

    A random piece that happens to be the true one counts as kept.
    """
    # Of each language: tokens, mask, random, kept.
    counts = np.zeros((len(languages), 4), np.int64)
    for batch in map(with_slots, batches):
        language_BL = batch["language_ids"]
        # `+=` would count a language that an index has twice only once.
        np.add.at(counts[:, 0], language_BL[batch["pack_ids"] > 0], 1)
        used_BM = batch["masked_weights"] > 0
        columns_BM = batch["masked_positions"]
        shown_BM = np.take_along_axis(batch["input_ids"], columns_BM, axis=1)
        language_BM = np.take_along_axis(language_BL, columns_BM, axis=1)
        is_mask = shown_BM == vocabulary.mask_id
        # By what is shown, since batches do not keep which fate was drawn.
        is_kept = ~is_mask & (shown_BM == batch["masked_targets"])
        is_random = ~is_mask & ~is_kept
        for column, kind in enumerate((is_mask, is_random, is_kept), 1):
            np.add.at(counts[:, column], language_BM[used_BM & kind], 1)
    statistics = {}
    for name, row in zip(languages, counts, strict=True):
        # A language of the run need not occur in these batches.
        if row[0]:
            statistics[name] = _shares(*map(int, row))
    # Of the sums, not a mean of the rates: languages occur unequally often.
    statistics["all"] = _shares(*map(int, counts.sum(axis=0)))
    return statistics


def _shares(tokens: int, mask: int, random: int, kept: int) -> dict[str, float]:
    predictions = mask + random + kept
    # Of none all shares are 0.
    divisor = max(predictions, 1)
    return {
        "tokens": tokens,
        "predictions": predictions,
        "rate": predictions / max(tokens, 1),
        "mask": mask / divisor,
        "random": random / divisor,
        "kept": kept / divisor,
    }


def statistics_rows(statistics: Mapping[str, Any]) -> list[list[Any]]:
    """The rows below `STATISTICS_HEAD`, of what `mask_statistics` gives."""
    rows = []
    for name, of_language in statistics.items():
        row = [name, of_language["tokens"], of_language["predictions"]]
        for key in ("rate", "mask", "random", "kept"):
            row.append(html.percent(of_language[key]))
        rows.append(row)
    return rows
