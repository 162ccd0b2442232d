"""Which lines of the text are kept from training."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xlingjax.data.text.files import plain_name
from xlingjax.data.text.names import pair_side
from xlingjax.data.text.texts import Pair, Text
from xlingjax.errors import UserError

BLOCK = 32  # held-out lines are taken in blocks of this many, so that they keep their context


def held_out(lines: int, share: float) -> np.ndarray:
    """bool [lines]: which lines are held out: evenly spaced blocks, about `share` of all."""
    if not 0 <= share < 1:
        raise UserError(f"the held-out share must be at least 0 and below 1, got {share}")
    if share == 0:
        return np.zeros(lines, bool)
    # By the line's number alone: text added to a file moves no line to the other part.
    return _taken(np.arange(lines) // BLOCK, share)


def held_out_of(
    files: Sequence[Text] | Sequence[Pair], lines: Sequence[int], share: float
) -> list[np.ndarray]:
    """bool [lines]: which lines of each file of one language or pair are held out.

    `held_out` of every file. Where that is less than half of the share, as of many short files,
    those that give nothing are counted on from one to the next, each cut into equal parts of about
    a block: a short file is one part. Only the order of the names and the numbers of lines count,
    so a line is held out of a pair and of its side as text alike. Raises UserError: no share.
    """
    masks = [held_out(count, share) for count in lines]
    # Text that is a side of pairs is counted apart, so that its lines fall as those of the pairs.
    sets: dict[str, list[int]] = {}
    for i, file in enumerate(files):
        side = ""
        if not isinstance(file, Pair):
            side = pair_side(file.path)
        sets.setdefault(side, []).append(i)
    for members in sets.values():
        held_lines = sum(masks[i].sum() for i in members)
        all_lines = sum(lines[i] for i in members)
        if held_lines >= share / 2 * all_lines:
            continue
        first = 0
        # By place and name, so that both sides of a pair come in the same order.
        for i in sorted(members, key=lambda i: _place(files[i])):
            if not masks[i].any() and lines[i]:
                parts = max(1, round(lines[i] / BLOCK))
                part_of_line = np.arange(lines[i]) * parts // lines[i]
                masks[i] = _taken(first + part_of_line, share)
                first += parts
    return masks


def _taken(block: np.ndarray, share: float) -> np.ndarray:
    # Block b is held out when the count of held-out blocks, b * share, passes a whole number in it.
    return np.floor((block + 1) * share) > np.floor(block * share)


def _place(file: Text | Pair) -> tuple[str, str]:
    """Folder and name, without the ending that tells the sides of a pair apart."""
    text = file
    if isinstance(file, Pair):
        text = file.first
    # Absolute, so that the order does not depend on the folder that a run is started in.
    path = Path(os.path.abspath(text.path))
    name, _, _ = plain_name(path).rpartition(".")
    return str(path.parent), name
