"""What the pictures of reports are drawn with: panels, colours, markers, curves whose names stand
at their ends, figures as SVG or PNG.

A page lays the panels out beside or below each other, so that text keeps its size on a telephone.
Colours follow the thing drawn (a language keeps its colour throughout a report); each has a marker
of its own, and curves carry their names at their ends.
"""

import io
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from xlingjax.report import html
from xlingjax.report.run import Run

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


LABEL = 16
"""Characters of a piece that a picture has room for."""
LABEL_INCHES = 0.08 * LABEL


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


def _thin(x: Sequence[float], y: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    x = np.asarray(x, float)
    # As floats None is NaN, which leaves a gap in the curve.
    y = np.asarray(y, float)
    every = max(1, len(x) // POINTS)
    return x[::every], y[::every]


def curve(
    axis,
    run: Run,
    steps: Sequence[int],
    values: Sequence[float],
    number: int,
    label: str,
    by_tokens: bool = False,
    **style,
) -> None:
    """number: which colour and marker. by_tokens: over the tokens seen, for runs that are compared
    and may have batches of other sizes."""
    at = np.asarray(steps, float)
    if by_tokens:
        at = run.tokens_at(steps) / 1e6
    x, y = _thin(at, values)
    every = max(1, len(x) // MARKED)
    axis.plot(
        x,
        y,
        color=COLOURS[number % len(COLOURS)],
        marker=MARKERS[number % len(MARKERS)],
        # Beginning at another point, so that markers of curves that run together are seen.
        markevery=(number % every, every),
        label=label,
        **style,
    )


def over(runs: Mapping[str, Run]) -> dict[str, Any]:
    """How `curve` and `axis_label` draw those runs."""
    return {"by_tokens": len(runs) > 1}


def axis_label(by_tokens: bool = False) -> str:
    if by_tokens:
        return "million tokens"
    return "step"


def level(axis, value: float, label: str) -> None:
    """A horizontal line to compare with: chance, a floor."""
    axis.axhline(value, color=SOFT, linewidth=1, linestyle=":", label=label)


def label_ends(axis) -> None:
    """Writes each curve's name at its end, names of ends that lie close one below the other. To be
    called last: the axis keeps its limits. Of many curves or long names a legend stands below."""
    lines = []
    for line in axis.get_lines():
        if not line.get_label().startswith("_"):
            lines.append(line)
    if len(lines) < 2:
        return
    longest = max(len(line.get_label()) for line in lines)
    if len(lines) > DIRECT or longest > SHORT:
        legend_below(axis, lines)
        return
    low, high = axis.get_ylim()
    axis.set_ylim(low, high)
    # Up to the last point's marker, where the names stand; a level has no points of its own.
    ends = []
    for line in lines:
        x = np.asarray(line.get_xdata(), float)
        if line.get_transform() == axis.transData and len(x):
            ends.append(np.nanmax(x))
    if ends:
        first, _ = axis.get_xlim()
        axis.set_xlim(right=max(ends) + 0.012 * (max(ends) - first))
    places = []
    for line in lines:
        y = np.asarray(line.get_ydata(), float)
        y = y[np.isfinite(y)]
        end = low
        if len(y):
            end = y[-1]
        places.append(_fraction(axis, end))
    names = [line.get_label() for line in lines]
    write_ends(axis, names, places, [line.get_color() for line in lines])


def legend_below(axis, handles: Sequence[Any] | None = None) -> None:
    """A legend under the panel, which grows by it; long names go over several lines."""
    if handles is None:
        handles, _ = axis.get_legend_handles_labels()
    names = []
    longest = 0
    for handle in handles:
        name = wrap(handle.get_label(), WRAPPED) or [""]
        longest = max(longest, *map(len, name))
        names.append("\n".join(name))
    # As many beside each other as there is room for.
    columns = max(1, WRAPPED // (longest + 6))
    rows = 0
    for start in range(0, len(names), columns):
        row = names[start : start + columns]
        rows += max(name.count("\n") + 1 for name in row)
    width, height = axis.figure.get_size_inches()
    axis.figure.set_size_inches(width, height + 0.17 * rows)
    axis.figure.legend(handles, names, loc="outside lower left", ncols=columns)


def write_ends(axis, names: Sequence[str], places: Sequence[float], colours: Sequence[str]) -> None:
    """Names right of the panel, at heights of 0..1 or close by. There may be more colours."""
    _, height = axis.figure.get_size_inches()
    # The axis has about two thirds of the panel's height, and a line of text 12 points.
    gap = 12 / (72 * height * 0.68)
    moved = spread(places, gap)
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


def _fraction(axis, value: float) -> float:
    """How high on the axis a value stands, 0..1."""
    _, y = axis.transData.transform((0, value))
    (_, low), (_, high) = axis.transAxes.transform([(0, 0), (0, 1)])
    return float(np.clip((y - low) / (high - low), 0, 1))


def spread(places: Sequence[float], gap: float) -> list[float]:
    """The places at least `gap` apart, in their order, moved as little as a few rounds find."""
    order = np.argsort(places, kind="stable")
    sorted_places = np.asarray(places, float)[order]
    # Neighbours that are too close part by half of what is missing each.
    for _ in range(500):
        missing = gap - np.diff(sorted_places)
        if not (missing > 1e-6).any():
            break
        push = np.clip(missing, 0, None) / 2
        sorted_places[:-1] -= push
        sorted_places[1:] += push
        # Within the panel, whose ends the others give way to in the next round.
        sorted_places = np.clip(sorted_places, 0, 1)
    moved = np.empty(len(places))
    moved[order] = sorted_places
    return moved.tolist()


def layer_name(layer: str) -> str:
    """Layer 0 is what the embeddings give."""
    if layer == "0":
        return "embeddings"
    return f"layer {layer}"


def short_layer_names(layers: Iterable[str]) -> list[str]:
    """For the ticks of an axis."""
    names = {"0": "emb"}
    return [names.get(layer, layer) for layer in layers]


def piece_labels(pieces: Sequence[str]) -> list[str]:
    """Pieces, or codes, cut to LABEL characters: longer ones would leave a picture no room."""
    labels = []
    for piece in pieces:
        if len(piece) > LABEL:
            piece = piece[: LABEL - 1] + "…"
        labels.append(piece)
    return labels


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name; where there are more names than colours they begin again."""
    return dict(zip(names, cycle(COLOURS), strict=False))


def from_zero(axis) -> None:
    """A little above what is drawn, so that no curve lies on the frame."""
    _, high = axis.get_ylim()
    axis.set_ylim(0, high)


def tall(curves: int) -> tuple[float, float]:
    """The size of a panel in which so many names stand below each other."""
    width, height = PANEL
    return width, max(height, 0.9 + 0.16 * min(curves, DIRECT))


def plain_numbers(axis) -> None:
    """30 on a logarithmic axis, not 3 × 10^1."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    low, high = axis.get_ylim()
    decades = np.log10(high / low)
    # As many as have room.
    subs: tuple[int, ...] = (1,)
    if decades < 1.5:
        subs = (1, 2, 3, 5)
    elif decades < 3:
        subs = (1, 3)
    axis.yaxis.set_major_locator(LogLocator(subs=subs))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    # Labels of minor ticks would lie between the others.
    axis.yaxis.set_minor_formatter("")


def heat_map(
    axis, cells: np.ndarray, rows: list[str], columns: list[str], form: str, low: float, high: float
) -> None:
    axis.grid(False)
    # Of equal values all have the lowest colour.
    if high <= low:
        high = low + 1
    axis.imshow(cells, cmap="YlGnBu", vmin=low, vmax=high, aspect="auto")
    axis.set_xticks(range(len(columns)), columns)
    axis.set_yticks(range(len(rows)), rows)
    axis.tick_params(length=0)
    size = 6
    if len(columns) <= 10:
        size = 8
    style = {"ha": "center", "va": "center", "fontsize": size}
    for (i, j), value in np.ndenumerate(cells):
        colour = "#222"
        # On dark cells dark numbers could not be read.
        is_dark = (value - low) / (high - low) > 0.6
        if is_dark:
            colour = "white"
        axis.text(j, i, form.format(value), color=colour, **style)


@styled
def svg(figure: Any) -> str:
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
    return re.sub(sized, r'\1 style="width:\2pt"', text, count=1)


def variable(colour: str) -> str:
    """A colour as the page calls it, which has another one where it is dark."""
    return _VARIABLES[colour]


_VARIABLES = {INK: "var(--ink)", SOFT: "var(--soft)", LINE: "var(--line)"}
_VARIABLES |= {colour: f"var(--series-{number})" for number, colour in enumerate(COLOURS)}


def drawn(figures: Any, label: str) -> str:
    """Figures as HTML, beside each other where there is room; "" for None."""
    if figures is None:
        return ""
    parts = []
    for figure in figures:
        title = figure.axes[0].get_title(loc="left")
        parts.append(html.figure(svg(figure), f"{label}: {title}"))
    return html.beside(parts)


@styled
def save(figures: Sequence[Any], path: Path, dpi: int = 130) -> None:
    """The figures as one PNG file, up to three side by side. Scripts that no font of this machine
    has are boxes there."""
    from matplotlib.image import imsave

    drawn = []
    for figure in figures:
        figure.set_dpi(dpi)
        # On white, since the page it is put into may be of any colour.
        figure.set_facecolor("white")
        figure.canvas.draw()
        drawn.append(np.asarray(figure.canvas.buffer_rgba()))
        figure.set_facecolor("none")
    rows = []
    for start in range(0, len(drawn), 3):
        row = drawn[start : start + 3]
        height = max(len(picture) for picture in row)
        row = [_filled(picture, height, picture.shape[1]) for picture in row]
        rows.append(np.concatenate(row, axis=1))
    width = max(row.shape[1] for row in rows)
    rows = [_filled(row, len(row), width) for row in rows]
    imsave(path, np.concatenate(rows), dpi=dpi)


def _filled(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """With white below and to the right."""
    whole = np.full((height, width, 4), 255, np.uint8)
    whole[: picture.shape[0], : picture.shape[1]] = picture
    return whole
