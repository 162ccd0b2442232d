"""Pictures of the score card."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pandas as pd

from xlingjax.report import drawing
from xlingjax.workflows.scorecard.rows import row_name

BAR = 0.8
"""Width of all bars of a language; the rest is the space to the next one."""
BAR_INCHES = 0.13
HATCHES = ("", "//", "..", "\\\\", "xx", "--")
"""Beside the colours, for who does not tell these apart."""


@drawing.styled
def by_language(table: dict[str, Any]) -> Any:
    """The score of a task in each language, a bar for each row; a whisker is the deviation over
    seeds. None where the files have no answers."""
    metric = next(iter(table["metrics"]), "")
    rows = [row for row in table["rows"] if row["by_language"].get(metric)]
    if not rows:
        return None
    scores = [row["by_language"][metric] for row in rows]
    languages = sorted(set().union(*scores))
    # By the number of bars: PAN-X has forty languages, and each row a bar in each.
    bars = BAR_INCHES * len(languages) * (len(rows) + 1)
    inches = max(drawing.PANEL[0], 0.3 * len(languages), 0.6 + bars)
    drawings, (axis,) = drawing.panels(1, (inches, drawing.PANEL[1]))
    width = BAR / len(rows)
    for i, (row, of, colour) in enumerate(zip(rows, scores, cycle(drawing.COLOURS), strict=False)):
        places = []
        means = []
        deviations = []
        for k, language in enumerate(languages):
            if language in of:
                places.append(k - BAR / 2 + (i + 0.5) * width)
                means.append(of[language]["mean"])
                deviations.append(of[language].get("sd", 0.0))
        # One seed has no deviation, and a whisker of 0 would claim one.
        whiskers = None
        if any(deviations):
            whiskers = deviations
        axis.bar(
            places,
            means,
            width,
            yerr=whiskers,
            ecolor=drawing.INK,
            color=colour,
            hatch=HATCHES[i % len(HATCHES)],
            # A hatch is drawn in the colour of the edge.
            edgecolor="white",
            linewidth=0,
            label=row_name(row),
        )
    axis.set(
        xticks=range(len(languages)),
        ylim=(0, 100),
        title=f"{table['task']}: {metric.replace('_', ' ')}",
    )
    axis.set_xticklabels(languages)
    # Outside, since bars may fill the axes.
    drawing.legend_below(axis)
    return drawings


def mean_curve(curves: Sequence[Sequence[Sequence[float]]]) -> list[tuple[float, float]]:
    """[(step, mean)] at the steps that all curves [[step, value], ...] have."""
    values = pd.concat([pd.Series(dict(curve)) for curve in curves], axis=1)
    # A mean over fewer seeds would jump where one of them ends.
    return [*values.dropna().mean(axis=1).sort_index().items()]


@drawing.styled
def curves(rows: Sequence[dict[str, Any]]) -> Any:
    """The dev scores of a task's trainings by step, a colour for each row. None where nothing was
    trained."""
    rows = [row for row in rows if row["curves"]]
    if not rows:
        return None
    drawings, (axis,) = drawing.panels(1)
    for number, row in enumerate(rows):
        colour = drawing.COLOURS[number % len(drawing.COLOURS)]
        if len(row["curves"]) > 1:
            for curve in row["curves"]:
                axis.plot(*zip(*curve, strict=True), color=colour, linewidth=0.7, alpha=0.6)
        # Without a step in common there is no line, but its name beside the others.
        points = mean_curve(row["curves"]) or [(float("nan"), float("nan"))]
        axis.plot(
            *zip(*points, strict=True),
            color=colour,
            linewidth=2,
            marker=drawing.MARKERS[number % len(drawing.MARKERS)],
            label=row_name(row),
        )
    axis.set(xlabel="step", title="dev", ylim=(0, 100))
    drawing.legend_below(axis)
    return drawings
