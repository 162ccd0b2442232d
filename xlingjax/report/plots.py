"""The pictures of a report: each function takes runs and gives one matplotlib figure, or None where
there is nothing to draw.

The common axis is tokens seen, so that runs of unequal batches compare. Colours follow the thing
drawn (a language keeps its colour throughout a report).
"""

import io
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.report import html
from xlingjax.report.run import Run

RUN_COLOURS = ("#1f5fa8", "#d1662b", "#4c8b3f", "#8a4f9e", "#7a6a53", "#b8960c")
LANGUAGE_COLOURS = (
    "#1f5fa8",
    "#d1662b",
    "#4c8b3f",
    "#b5352d",
    "#7f5aa8",
    "#7c5446",
    "#c9609b",
    "#6e6e6e",
    "#a39a1d",
    "#2a99a8",
    "#88b1de",
    "#f0ad7c",
    "#94c58a",
    "#e39089",
    "#bda6d8",
)
PANEL = (5.3, 3.0)
"""Inches."""
POINTS = 400
"""A curve is thinned to about as many points: a page of many curves stays small."""

_STYLE = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a8f98",
    "axes.labelcolor": "#3c4250",
    "xtick.color": "#5b616e",
    "ytick.color": "#5b616e",
    "axes.grid": True,
    "grid.color": "#e6e8ec",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.5,
    "text.parse_math": False,  # pieces may hold dollar signs
    # Text stays text: it can be searched, and the reader's fonts have its scripts.
    "svg.fonttype": "none",
    # Without a salt of its own every drawing has other ids, and pages of one run would differ.
    "svg.hashsalt": "xlingjax",
}


def panels(count: int, columns: int = 2, size: tuple[float, float] = PANEL):
    """A figure and its axes, `columns` side by side; no display is needed."""
    # Here, since matplotlib takes long to import and many verbs draw nothing.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(columns, count)
    rows = -(-count // columns)
    # Not through pyplot, which keeps every figure and may look for a display.
    figure = Figure(
        figsize=(size[0] * columns, size[1] * rows),
        layout="constrained",
    )
    # A figure without pyplot has no canvas, and cannot be laid out or saved.
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in axes[count:]:
        unused.set_axis_off()
    return figure, list(axes[:count])


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


def _thin(
    x: Sequence[float],
    y: Sequence[float],
) -> tuple[np.ndarray, np.ndarray]:
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
    **style,
) -> None:
    x, y = _thin(run.tokens_at(steps) / 1e6, values)
    # Of few points one sees which were measured.
    marker = None
    if len(x) < 12:
        marker = "o"
    axis.plot(x, y, marker=marker, markersize=3, **style)


def layer_name(layer: str) -> str:
    """Layer 0 is what the embeddings give."""
    if layer == "0":
        return "embeddings"
    return f"layer {layer}"


def short_layer_names(layers: Iterable[str]) -> list[str]:
    """For the ticks of an axis."""
    names = {"0": "emb"}
    return [names.get(layer, layer) for layer in layers]


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name; where there are more names than colours they begin again."""
    return dict(zip(names, cycle(LANGUAGE_COLOURS), strict=False))


def language_colours(run: Run) -> dict[str, str]:
    if run.languages:
        return colours(run.languages)
    # Of a run whose run.json is not there.
    seen = set()
    for line in run.metrics:
        seen.update(line.get("loss_by_language", ()))
    return colours(sorted(seen))


def _column(lines: Iterable[Mapping[str, Any]], key: str) -> list[Any]:
    return [line.get(key) for line in lines]


def course(
    evaluated: Iterable[tuple[int, Mapping[str, Any]]],
    key: str,
    scale: float = 1,
) -> tuple[list[int], list[float]]:
    """(the steps, one of their values, times `scale`)."""
    steps = []
    values = []
    for step, evaluation in evaluated:
        steps.append(step)
        values.append(scale * evaluation[key])
    return steps, values


@styled
def losses(runs: Mapping[str, Run]) -> Any:
    """Training loss, a panel per objective and a curve per run."""
    # A dict keeps the order in which they first ran.
    objectives: dict[str, None] = {}
    for run in runs.values():
        objectives |= dict.fromkeys(run.objectives)
    if not objectives:
        return None
    figure, axes = panels(len(objectives))
    for axis, objective in zip(axes, objectives, strict=True):
        for (name, run), colour in zip(
            runs.items(),
            RUN_COLOURS * len(runs),
            strict=False,
        ):
            lines = run.lines(objective)
            if lines:
                steps = _column(lines, "step")
                values = _column(lines, "loss")
                curve(axis, run, steps, values, color=colour, label=name)
        axis.set(
            title=objective.upper(),
            xlabel="million tokens",
            ylabel="training loss (nats)",
        )
        if len(runs) > 1:
            axis.legend()
    return figure


@styled
def by_language(
    run: Run,
    value: str = "loss_by_language",
    label: str = "training loss (nats)",
) -> Any:
    """One value per language over training, a panel per objective."""
    objectives = []
    for name in run.objectives:
        if any(_column(run.lines(name), value)):
            objectives.append(name)
    if not objectives:
        return None
    coloured = language_colours(run)
    figure, axes = panels(len(objectives))
    for axis, objective in zip(axes, objectives, strict=True):
        lines = run.lines(objective)
        for language, colour in coloured.items():
            steps = []
            values = []
            # A language that no row was of since the line before is not in a line.
            for line in lines:
                if language in line.get(value, ()):
                    steps.append(line["step"])
                    values.append(line[value][language])
            if steps:
                curve(axis, run, steps, values, color=colour, label=language)
        axis.set(title=objective.upper(), xlabel="million tokens", ylabel=label)
        columns = 3
        if len(coloured) <= 10:
            columns = 2
        axis.legend(ncols=columns)
    return figure


def first_evaluated(evaluated: Mapping[str, list]) -> list[tuple[int, Any]]:
    """(step, values) of the first evaluator of a kind; [] without one."""
    return next(iter(evaluated.values()), [])


def _plain_numbers(axis) -> None:
    """30 on a logarithmic axis, not 3 × 10^1."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    # Labels of minor ticks would lie between the others.
    axis.yaxis.set_minor_formatter("")


def heat_map(
    axis,
    cells: np.ndarray,
    rows: list[str],
    columns: list[str],
    form: str,
    low: float,
    high: float,
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
def perplexities(run: Run) -> Any:
    """Held-out perplexity per language, and TLM with the partner visible and hidden. None without
    two evaluations."""
    text = first_evaluated(run.evaluated("perplexity"))
    pairs = first_evaluated(run.evaluated("translation_perplexity"))
    count = (len(text) > 1) + (len(pairs) > 1)
    if not count:
        return None
    figure, axes = panels(count)
    if len(text) > 1:
        for language, colour in language_colours(run).items():
            steps = []
            values = []
            for step, evaluation in text:
                if language in evaluation["by_language"]:
                    steps.append(step)
                    values.append(evaluation["by_language"][language])
            if steps:
                curve(axes[0], run, steps, values, color=colour, label=language)
        axes[0].set(
            title="held-out text",
            xlabel="million tokens",
            ylabel="perplexity",
            yscale="log",
        )
        _plain_numbers(axes[0])
        axes[0].legend(ncols=2)
    if len(pairs) > 1:
        for kind, colour in (
            ("hidden", RUN_COLOURS[1]),
            ("visible", RUN_COLOURS[0]),
        ):
            steps, values = course(pairs, f"{kind}_mean")
            curve(
                axes[-1],
                run,
                steps,
                values,
                color=colour,
                label=f"partner {kind}",
            )
        axes[-1].set(
            title="held-out pairs (TLM)",
            xlabel="million tokens",
            ylabel="perplexity",
            yscale="log",
        )
        _plain_numbers(axes[-1])
        axes[-1].legend()
    return figure


@styled
def pseudo_perplexities(run: Run) -> Any:
    """BTMLM's perplexity by share of pseudo tokens over training. None without two evaluations."""
    found = first_evaluated(run.evaluated("pseudo_perplexity"))
    if len(found) < 2:
        return None
    figure, axes = panels(1)
    shares = found[-1][1]["by_language"]
    for share, colour in zip(shares, RUN_COLOURS * len(shares), strict=False):
        key = f"share_{share}"
        # A run may have gone on with other shares.
        with_it = [one for one in found if key in one[1]]
        steps, values = course(with_it, key)
        label = f"{100 * float(share):g} %"
        curve(axes[0], run, steps, values, color=colour, label=label)
    axes[0].set(
        title="held-out text (BTMLM)",
        xlabel="million tokens",
        ylabel="perplexity",
        yscale="log",
    )
    _plain_numbers(axes[0])
    axes[0].legend(ncols=2)
    return figure


@styled
def machinery(run: Run) -> Any:
    """Learning rate, gradient norm and speed over training."""
    titles = {
        "learning_rate": "learning rate",
        "grad_norm": "gradient norm",
        "tokens_per_second": "tokens per second",
    }
    shown = []
    for key in titles:
        if _with(run.metrics, key):
            shown.append(key)
    if not shown:
        return None
    figure, axes = panels(len(shown), columns=3, size=(PANEL[0] * 2 / 3, 2.2))
    for axis, key in zip(axes, shown, strict=True):
        # The norm is an objective's own; the others are of all steps.
        split = run.objectives[:1]
        if key == "grad_norm":
            split = run.objectives
        for objective, colour in zip(
            split,
            RUN_COLOURS * len(split),
            strict=False,
        ):
            lines = _with(run.lines(objective), key)
            steps = _column(lines, "step")
            values = _column(lines, key)
            curve(axis, run, steps, values, color=colour, label=objective)
        axis.set(title=titles[key], xlabel="million tokens", ylim=(0, None))
        if len(split) > 1:
            axis.legend()
    return figure


def _with(
    lines: Iterable[Mapping[str, Any]],
    key: str,
) -> list[Mapping[str, Any]]:
    return [line for line in lines if line.get(key) is not None]


@styled
def svg(figure: Any) -> str:
    """The figure as an <svg> element that refers to nothing outside itself and scales with the
    page."""
    buffer = io.StringIO()
    # Without a date, so that the same run gives the same page.
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = re.sub(
        r"<metadata>.*?</metadata>",
        "",
        buffer.getvalue(),
        flags=re.DOTALL,
    )
    # In a page neither the XML declaration nor the names of its spaces are needed, and these are
    # addresses, of which a page has none.
    text = text[text.index("<svg") :]
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    # matplotlib's one rule would apply to the whole page.
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    sized = r'(<svg[^>]*?) width="([\d.]+)pt" height="[\d.]+pt"'
    return re.sub(sized, r'\1 style="width:100%;max-width:\2pt"', text, count=1)


@styled
def drawn(figure: Any, label: str) -> str:
    """A figure as HTML; "" for None."""
    if figure is None:
        return ""
    return html.figure(svg(figure), label)


def save(figure: Any, path: Path, dpi: int = 130) -> None:
    """The figure as a PNG file. Scripts that no font of this machine has are boxes there."""
    figure.savefig(path, dpi=dpi)
