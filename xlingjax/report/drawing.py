"""What pictures are drawn with: panels, colours, markers, curves whose names stand at their ends,
tables of cells, figures as SVG or PNG.

A page lays the panels out beside or below each other, so that text keeps its size on a telephone.
Colours follow the thing drawn (a language keeps its colour throughout a report); each has a marker
of its own.
"""

import io
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, pairwise
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from markupsafe import Markup

from xlingjax.report import html

COLOURS = (
    "#0072b2",
    "#c2500a",
    "#007f5c",
    "#a8447f",
    "#8a6a00",
    "#4b3f9e",
    "#17788c",
    "#8c3a2e",
    "#59616e",
)
"""Okabe and Ito's, which the colour-blind tell apart, darkened until text in them can be read on
white (contrast 4.5). report.css has a lighter set of the same order for dark pages."""
MARKERS = "osD^vPX*h"
INK = "#1c2230"
SOFT = "#565d6b"
LINE = "#e2e5ea"
PANEL = (3.4, 2.5)
"""Inches: as wide as a telephone."""
POINTS = 400
"""A curve is thinned to about as many points: a page of many curves stays small."""
MARKED = 6
"""Markers of a long curve."""
DIRECT = 12
"""Curves of a panel that carry their names; of more the names would lie on each other."""
SHORT = 14
"""Letters of a name that has room beside a panel."""
WRAPPED = 34
"""Letters of a line below a panel."""
LABEL = 16
"""Characters of a piece that a picture has room for."""
TITLE = 36
"""Characters of a panel's title that stand in one line."""
LABELLED = 72
"""Rows or columns that are named; more names would lie on each other."""

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


def panels(count: int, size: tuple[float, float] = PANEL) -> tuple[list[Any], list[Any]]:
    """(`count` figures of `size` inches, the axes of each); no display is needed."""
    # Here, since matplotlib takes long to import and many verbs draw nothing.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figures = []
    for _ in range(count):
        # Not through pyplot, which keeps every figure and may look for a display.
        figure = Figure(figsize=size, layout="constrained")
        # A figure without pyplot has no canvas, and cannot be laid out or saved.
        FigureCanvasAgg(figure)
        figures.append(figure)
    return figures, [figure.subplots() for figure in figures]


def styled(draw):
    """The report's style for what `draw` draws."""

    def drawn(*args, **kwargs):
        import matplotlib

        with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
            # The reader's fonts draw the page's text.
            warnings.filterwarnings("ignore", "Glyph .* missing")
            return draw(*args, **kwargs)

    drawn.__doc__ = draw.__doc__
    return drawn


# ---- curves --------------------------------------------------------------------------------------


@dataclass
class Panel:
    """Curves over an axis. curves: {name: (x, y)}, None in y leaves a gap; a curve's colour and
    marker go by its place, and an empty one is not drawn. levels: {name: height} of
    lines to compare with: chance, a guess."""

    title: str
    xlabel: str = "step"
    percent: bool = False
    curves: dict[str, tuple[Sequence[float], Sequence[float | None]]] = field(default_factory=dict)
    levels: dict[str, float] = field(default_factory=dict)


@styled
def draw(described: Sequence[Panel]) -> list[Any]:
    """A figure for each."""
    most = max((len(one.curves) + len(one.levels) for one in described), default=0)
    figures, axes = panels(len(described), tall(most))
    for axis, panel in zip(axes, described, strict=True):
        for number, (name, (x, y)) in enumerate(panel.curves.items()):
            if not len(x):
                continue
            thin = slice(None, None, max(1, len(x) // POINTS))
            shown = np.asarray(x, float)[thin]
            every = max(1, len(shown) // MARKED)
            axis.plot(
                shown,
                # As floats None is NaN.
                np.asarray(y, float)[thin],
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)],
                # Beginning at another point, so that markers of curves that run together are seen.
                markevery=(number % every, every),
                label=name,
            )
        for name, height in panel.levels.items():
            axis.axhline(height, color=SOFT, linewidth=1, linestyle=":", label=name)
        top = 100.0
        if not panel.percent:
            _, top = axis.get_ylim()
        axis.set(title=panel.title, xlabel=panel.xlabel, ylim=(0, top))
        label_ends(axis)
    return figures


def label_ends(axis) -> None:
    """Writes each curve's name at its end, names of ends that lie close one below the other. To be
    called last: the axis keeps its limits. Of many curves or long names a legend stands below."""
    lines = [line for line in axis.get_lines() if not line.get_label().startswith("_")]
    names = [line.get_label() for line in lines]
    if len(lines) < 2:
        return
    if len(lines) > DIRECT or max(map(len, names)) > SHORT:
        legend_below(axis, lines)
        return
    low, high = axis.get_ylim()
    axis.set_ylim(low, high)
    first, _ = axis.get_xlim()
    last = first
    places = []
    for line in lines:
        # A level has no points of its own along the axis.
        if line.get_transform() == axis.transData and len(line.get_xdata()):
            last = max(last, float(np.nanmax(line.get_xdata())))
        known = [y for y in np.asarray(line.get_ydata(), float) if np.isfinite(y)]
        pixels = axis.transData.transform((0, [low, *known][-1]))
        places.append(float(np.clip(axis.transAxes.inverted().transform(pixels)[1], 0, 1)))
    # Up to the last point's marker, where the names stand.
    if last > first:
        axis.set_xlim(right=last + 0.012 * (last - first))
    write_ends(axis, names, places, [line.get_color() for line in lines])


def legend_below(axis, handles: Sequence[Any] | None = None) -> None:
    """A legend under the panel, which grows by it; long names go over several lines."""
    if handles is None:
        handles, _ = axis.get_legend_handles_labels()
    names = ["\n".join(wrap(handle.get_label(), WRAPPED)) for handle in handles]
    longest = max(len(line) for name in names for line in name.split("\n"))
    # As many beside each other as there is room for.
    columns = max(1, WRAPPED // (longest + 6))
    rows = 0
    for start in range(0, len(names), columns):
        rows += max(name.count("\n") + 1 for name in names[start : start + columns])
    width, height = axis.figure.get_size_inches()
    axis.figure.set_size_inches(width, height + 0.17 * rows)
    axis.figure.legend(handles, names, loc="outside lower left", ncols=columns)


def write_ends(axis, names: Sequence[str], places: Sequence[float], colours: Sequence[str]) -> None:
    """Names right of the panel, at heights of 0..1 or close by. There may be more colours."""
    _, height = axis.figure.get_size_inches()
    # The axis has about two thirds of the panel's height, and a line of text 12 points.
    moved = spread(places, 12 / (72 * height * 0.68))
    for name, place, colour in zip(names, moved, colours, strict=False):
        axis.annotate(
            name,
            (1, place),
            xycoords="axes fraction",
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            annotation_clip=False,
        )


def spread(places: Sequence[float], gap: float) -> list[float]:
    """The places at least `gap` apart and below 1, in their order."""
    order = np.argsort(places, kind="stable")
    moved = np.asarray(places, float)
    for before, index in pairwise(order):
        moved[index] = max(moved[index], moved[before] + gap)
    # From the top down again, what was pushed out of the panel.
    ceiling = 1.0
    for index in reversed(order):
        moved[index] = min(moved[index], ceiling)
        ceiling = moved[index] - gap
    return moved.tolist()


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name; where there are more names than colours they begin again."""
    return dict(zip(names, cycle(COLOURS), strict=False))


def tall(curves: int) -> tuple[float, float]:
    """The size of a panel in which so many names stand below each other."""
    width, height = PANEL
    return width, max(height, 0.9 + 0.16 * min(curves, DIRECT))


# ---- cells ---------------------------------------------------------------------------------------


@styled
def cells(
    values: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    bar: str = "",
    pad: float = 0.05,
    **options: Any,
) -> tuple[list[Any], Any]:
    """(a figure, its axis) of values as colours, rows and columns named by pieces or words.
    bar: what the colours are, `pad` apart. options: of `imshow`."""
    room = 0.08 * LABEL
    sides = [np.clip(1.0 + 0.27 * len(names), 2.0, 13.0) + room for names in (columns, rows)]
    width, height = map(float, sides)
    if bar:
        width += 0.8
    figures, (axis,) = panels(1, (width, height))
    axis.grid(False)
    # A side without words has no rows, of which JSON keeps no shape.
    values = np.asarray(values, float).reshape(len(rows), len(columns))
    image = axis.imshow(values, **{"cmap": "Blues", "interpolation": "nearest", **options})
    if bar:
        axis.figure.colorbar(image, ax=axis, label=bar, shrink=0.6, pad=pad)
    axis.set_xticks([])
    axis.set_yticks([])
    if max(len(rows), len(columns)) <= LABELLED:
        axis.set_xticks(range(len(columns)), piece_labels(columns), rotation=90)
        axis.set_yticks(range(len(rows)), piece_labels(rows))
    axis.set_title("\n".join(wrap(title, 26)))
    return figures, axis


def piece_labels(pieces: Sequence[str]) -> list[str]:
    """Pieces, or codes, cut to LABEL characters: longer ones would leave a picture no room."""
    labels = []
    for piece in pieces:
        if len(piece) > LABEL:
            piece = piece[: LABEL - 1] + "…"
        labels.append(piece)
    return labels


@dataclass(frozen=True)
class Grid:
    """A table of numbers coloured from `low` to `high`: a page has it as text, a file as a
    picture. rows: (name, values)."""

    title: str
    head: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float]]]
    form: str = "{:.0f}"
    low: float = 0
    high: float = 100


@styled
def grid(table: Grid) -> list[Any]:
    names = [name for name, _ in table.rows]
    values = np.array([of_row for _, of_row in table.rows])
    size = (max(PANEL[0], 1 + 0.4 * values.shape[1]), max(0.7 + 0.27 * len(names), 1.8))
    figures, (axis,) = panels(1, size)
    axis.grid(False)
    # Of equal values all have the lowest colour.
    high = table.high
    if high <= table.low:
        high = table.low + 1
    axis.imshow(values, cmap="YlGnBu", vmin=table.low, vmax=high, aspect="auto")
    axis.set_xticks(range(values.shape[1]), table.head[1:])
    axis.set_yticks(range(len(names)), names)
    axis.tick_params(length=0)
    for (i, j), value in np.ndenumerate(values):
        colour = "#222"
        # On dark cells dark numbers could not be read.
        if (value - table.low) / (high - table.low) > 0.6:
            colour = "white"
        style = {"ha": "center", "va": "center", "fontsize": 7, "color": colour}
        axis.text(j, i, table.form.format(value), **style)
    axis.set_title("\n".join(wrap(table.title, TITLE)))
    return figures


# ---- as text and as files ------------------------------------------------------------------------


@styled
def svg(figure: Any) -> Markup:
    """The figure as an <svg> element that refers to nothing outside itself. It keeps its size; its
    ink is the page's, which may be dark."""
    buffer = io.StringIO()
    # Without a date, so that the same run gives the same page.
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    # In a page neither the XML declaration nor the names of its spaces are needed, and these are
    # addresses, of which a page has none.
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


def labelled(figures: Sequence[Any], label: str) -> list[tuple[Markup, str]]:
    """[(svg, what it shows)] for the templates."""
    pictures = []
    for figure in figures:
        pictures.append((svg(figure), f"{label}: {figure.axes[0].get_title(loc='left')}"))
    return pictures


def drawn(figures: Sequence[Any] | None, label: str) -> str:
    """Figures as HTML, beside each other where there is room; "" for None."""
    return html.part("parts", "figures", labelled(figures or [], label))


@styled
def save(figures: Sequence[Any], path: Path, dpi: int = 130) -> None:
    """The figures as one PNG file, up to three side by side. Scripts that no font of this machine
    has are boxes there."""
    from matplotlib.image import imsave

    pictures = []
    for figure in figures:
        figure.set_dpi(dpi)
        # On white, since the page it is put into may be of any colour.
        figure.set_facecolor("white")
        figure.canvas.draw()
        pictures.append(np.asarray(figure.canvas.buffer_rgba()))
        figure.set_facecolor("none")
    height = max(picture.shape[0] for picture in pictures)
    width = max(picture.shape[1] for picture in pictures)
    columns = min(len(pictures), 3)
    places = -(-len(pictures) // columns) * columns
    whole = np.full((places, height, width, 4), 255, np.uint8)
    for place, picture in zip(whole, pictures, strict=False):
        place[: picture.shape[0], : picture.shape[1]] = picture
    rows = [np.hstack(whole[start : start + columns]) for start in range(0, places, columns)]
    imsave(path, np.vstack(rows), dpi=dpi)
