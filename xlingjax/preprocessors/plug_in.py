"""Labelled pairs that are given in two languages, to the rows of plug-in fine-tuning (VECO §3.1).

A row is the example in one language, then in the other, each as `pair_row` lays it out and padded
by itself.
"""

from collections.abc import Sequence

import numpy as np

from xlingjax.data.labelled.records import Example
from xlingjax.preprocessors.finetuning import classification_rows


def paired_rows(
    first: Sequence[Example],
    second: Sequence[Example],
    vocabulary,
    length: int,
    labels: Sequence[str],
    language_ids: Sequence[int],
    reset_positions: bool = False,
) -> dict[str, np.ndarray]:
    """Arrays [N, 2 * length] and [N], the features that `PlugIn` reads: side 0 is `first` in
    columns 0 to length, side 1 `second` in the others. Positions start anew with it."""
    sides = []
    for examples, language in zip((first, second), language_ids, strict=True):
        sides.append(
            classification_rows(
                examples,
                vocabulary,
                length,
                labels,
                language,
                reset_positions,
            ),
        )
    one, two = sides
    # The label is that of the example, in whichever language it is read.
    rows = {"labels": one["labels"], "example_weights": one["example_weights"]}
    # Side by side in one row: what stands before and behind a
    # token differs, but a batch keeps one axis of examples.
    for name in ("input_ids", "position_ids", "language_ids", "pack_ids"):
        rows[name] = np.concatenate([one[name], two[name]], axis=1)
    # The texts within an example need no side: plugged in, each example is one text, as VECO's side
    # is.
    rows["sides"] = np.concatenate(
        [np.zeros_like(one["pack_ids"]), two["pack_ids"]],
        axis=1,
    )
    return rows
