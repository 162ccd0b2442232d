"""What pictures are drawn with: panels of curves, figures as SVG.

A page lays the panels out beside or below each other, so that text keeps its size on a telephone.
"""

import functools
import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

import numpy as np
from markupsafe import Markup

# fmt: off
COLOURS = (
    "#0072b2", "#c2500a", "#007f5c", "#a8447f", "#8a6a00", "#4b3f9e", "#17788c", "#8c3a2e",
    "#59616e",
)
# fmt: on
"""Okabe and Ito's, which the colour-blind tell apart, darkened until text in them can be read on
white (contrast 4.5). report.css has a lighter set of the same order for dark pages."""
MARKERS = "osD^vPX*h"
INK = "#1c2230"
SOFT = "#565d6b"
LINE = "#e2e5ea"
PANEL = (3.4, 2.5)  # inches: as wide as a telephone
MARKED = 6  # markers of a long curve
WRAPPED = 34  # letters of a line below or above a panel

_STYLE = {
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "text.color": INK,
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "text.parse_math": False,  # pieces may hold dollar signs
    # Text stays text: it can be searched, and the reader's fonts have its scripts.
    "svg.fonttype": "none",
    # Without a salt of its own every drawing has other ids, and pages of one run would differ.
    "svg.hashsalt": "xlingjax",
}


def panels(count: int, size: tuple[float, float] = PANEL) -> tuple[list, list]:
    """(`count` figures of `size` inches, the axes of each); no display is needed."""
    # Here, since matplotlib takes long to import and many verbs draw nothing.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Not through pyplot, which keeps every figure and may look for a display.
    figures = [Figure(figsize=size, layout="constrained") for _ in range(count)]
    for figure in figures:
        # A figure without pyplot has no canvas, and cannot be laid out or saved.
        FigureCanvasAgg(figure)
    return figures, [figure.subplots() for figure in figures]


def styled(draw):
    """The report's style for what `draw` draws."""

    @functools.wraps(draw)
    def drawn(*args, **kwargs):
        import matplotlib

        with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
            # The reader's fonts draw the page's text.
            warnings.filterwarnings("ignore", "Glyph .* missing")
            return draw(*args, **kwargs)

    return drawn


@dataclass
class Panel:
    """curves: {name: (x, y)}; None in y is a gap. levels: {name: height} of chance, a guess."""

    title: str
    xlabel: str = "step"
    percent: bool = False
    curves: dict[str, tuple[Sequence[float], Sequence[float | None]]] = field(default_factory=dict)
    levels: dict[str, float] = field(default_factory=dict)


@styled
def draw(described: Sequence[Panel]) -> list:
    """A figure for each."""
    figures, axes = panels(len(described))
    for axis, panel in zip(axes, described, strict=True):
        for number, (name, (x, y)) in enumerate(panel.curves.items()):
            # A curve's colour goes by its place, also where one before it is empty.
            if not len(x):
                continue
            axis.plot(
                x,
                # As floats None is NaN.
                np.asarray(y, float),
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)],
                markevery=max(1, len(x) // MARKED),
                label=name,
            )
        for name, height in panel.levels.items():
            axis.axhline(height, color=SOFT, linewidth=1, linestyle=":", label=name)
        top = 100.0 if panel.percent else axis.get_ylim()[1]
        title = "\n".join(wrap(panel.title, WRAPPED))
        axis.set(title=title, xlabel=panel.xlabel, ylim=(0, top))
        legend_below(axis)
    return figures


def legend_below(axis) -> None:
    """A legend under the panel, which grows by it; long names go over several lines."""
    handles, labels = axis.get_legend_handles_labels()
    if len(labels) < 2:
        return
    names = ["\n".join(wrap(label, WRAPPED)) for label in labels]
    width, height = axis.figure.get_size_inches()
    axis.figure.set_size_inches(width, height + 0.17 * "\n".join([*names, ""]).count("\n"))
    axis.figure.legend(handles, names, loc="outside lower left")


@styled
def svg(figure: Any) -> Markup:
    """An <svg> element without references outside. Its ink is the page's, which may be dark."""
    buffer = io.StringIO()
    # Without a date, so that the same run gives the same page.
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    # A page needs neither the XML declaration nor its namespaces, which are addresses.
    text = text[text.index("<svg") :]
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    # matplotlib's one rule would apply to the whole page.
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    sized = r'(<svg[^>]*?) width="([\d.]+)pt" height="[\d.]+pt"'
    return Markup(re.sub(sized, r'\1 style="width:\2pt"', text, count=1))


_VARIABLES = {INK: "var(--ink)", SOFT: "var(--soft)", LINE: "var(--line)"}
_VARIABLES |= {colour: f"var(--series-{number})" for number, colour in enumerate(COLOURS)}


def labelled(figures: Sequence, label: str) -> list[tuple[Markup, str]]:
    """[(svg, what it shows)] for the templates."""
    return [(svg(one), f"{label}: {one.axes[0].get_title(loc='left')}") for one in figures]
