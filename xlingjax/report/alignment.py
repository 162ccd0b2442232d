"""A picture of one alignment: similarity of pieces, links of words."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlingjax.evaluation.alignment import Alignment, Links
from xlingjax.report import plots


@plots.styled
def picture(alignment: Alignment, words: tuple[Sequence[str], Sequence[str]], links: Links) -> Any:
    """Words down and across; colour: the highest cosine of their pieces, dots: links."""
    left, right = words
    grid = np.full((len(left), len(right)), np.nan)
    for (i, j), cosine in np.ndenumerate(alignment.similarity):
        row, column = alignment.left[i], alignment.right[j]
        grid[row, column] = np.nanmax([grid[row, column], cosine])
    size = tuple(float(np.clip(1.6 + 0.32 * len(side), 2.5, 14.0)) for side in (right, left))
    figure, (axis,) = plots.panels(1, size=size)
    axis.grid(False)
    image = axis.imshow(grid, cmap="Blues", interpolation="nearest")
    if links:
        rows, columns = zip(*sorted(links), strict=True)
        axis.plot(columns, rows, "o", color=plots.RUN_COLOURS[1], markersize=5)
    axis.set_xticks(range(len(right)), right, rotation=60, ha="right")
    axis.set_yticks(range(len(left)), left)
    figure.colorbar(image, ax=axis, label="cosine", shrink=0.8)
    return figure
