"""Pictures of alignments: similarity of pieces and links of words of one pair, error rates of a
run."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlingjax.evaluation.alignment import METHODS, Alignment, Links
from xlingjax.report import drawing, html
from xlingjax.report.run import Run


@drawing.styled
def picture(alignment: Alignment, words: tuple[Sequence[str], Sequence[str]], links: Links) -> Any:
    """Words down and across; colour: the highest cosine of their pieces, dots: links."""
    left, right = words
    # NaN until a pair of pieces is met: 0 would be a cosine, higher than a negative one.
    grid = np.full((len(left), len(right)), np.nan)
    for (i, j), cosine in np.ndenumerate(alignment.similarity):
        row = alignment.left[i]
        column = alignment.right[j]
        grid[row, column] = np.nanmax([grid[row, column], cosine])
    # By the number of words, so that each label has its room; clipped, so that a page can hold it.
    width = float(np.clip(1.6 + 0.32 * len(right), 2.5, 14.0))
    height = float(np.clip(1.6 + 0.32 * len(left), 2.5, 14.0))
    figures, (axis,) = drawing.panels(1, (width, height))
    axis.grid(False)
    image = axis.imshow(grid, cmap="Blues", interpolation="nearest")
    if links:
        rows, columns = zip(*sorted(links), strict=True)
        axis.plot(columns, rows, "o", color=drawing.COLOURS[1], markersize=5)
    axis.set_xticks(range(len(right)), right, rotation=60, ha="right")
    axis.set_yticks(range(len(left)), left)
    axis.figure.colorbar(image, ax=axis, label="cosine", shrink=0.8)
    return figures


def by_layer(run: Run) -> list[str]:
    """Alignment error rate of the latest evaluation, language by layer, a coloured table per
    method. [] without one."""
    values = run.last("alignment")
    if values is None:
        return []
    table = values["by_language"]
    layers = list(values["by_layer"])
    head = ["language", *drawing.short_layer_names(layers)]
    parts = []
    for method in METHODS:
        rows = []
        for language in table:
            cells = [100 * table[language][layer][method] for layer in layers]
            rows.append((language, cells))
        title = f"{method}, by layer: error rate (%), 0 is best"
        # From 0 to 100 in every table and run, so that colours compare.
        parts.append(html.titled(title, html.heat(head, rows)))
    return [html.beside(parts)]
