"""The pictures of a report: each function takes runs and gives one matplotlib figure, or None where
there is nothing
to draw.

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

from xlingjax.evaluation.retrieval import best_layer
from xlingjax.report import html
from xlingjax.report.run import Run

RUN_COLOURS = ("#1f5fa8", "#d1662b", "#4c8b3f", "#8a4f9e", "#7a6a53", "#b8960c")
LANGUAGE_COLOURS = (
    *(
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
    ),
    *("#88b1de", "#f0ad7c", "#94c58a", "#e39089", "#bda6d8"),
)
PANEL = (5.3, 3.0)  # inches
POINTS = 400  # a curve is thinned to about as many points

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
    "svg.fonttype": "none",
    "svg.hashsalt": "xlingjax",
}


def panels(count: int, columns: int = 2, size: tuple[float, float] = PANEL):
    """A figure and its axes, `columns` side by side; no display is needed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
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
            warnings.filterwarnings(
                "ignore", "Glyph .* missing"
            )  # the reader's fonts draw the page's text
            return draw(*args, **kwargs)

    drawn.__doc__ = draw.__doc__
    return drawn


def _thin(x: Sequence[float], y: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, float), np.asarray([np.nan if v is None else v for v in y], float)
    every = max(1, len(x) // POINTS)
    return (x[::every], y[::every]) if every > 1 else (x, y)


def _curve(axis, run: Run, steps: Sequence[int], values: Sequence[float], **style) -> None:
    x, y = _thin(run.tokens_at(steps) / 1e6, values)
    axis.plot(x, y, marker="o" if len(x) < 12 else None, markersize=3, **style)


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name; where there are more names than colours they begin again."""
    return dict(zip(names, cycle(LANGUAGE_COLOURS), strict=False))


def language_colours(run: Run) -> dict[str, str]:
    seen = {name for line in run.metrics for name in line.get("loss_by_language", ())}
    return colours(run.languages or sorted(seen))


@styled
def losses(runs: Mapping[str, Run]) -> Any:
    """Training loss, a panel per objective and a curve per run."""
    objectives = list(dict.fromkeys(name for run in runs.values() for name in run.objectives))
    if not objectives:
        return None
    figure, axes = panels(len(objectives))
    for axis, objective in zip(axes, objectives, strict=True):
        for (name, run), colour in zip(runs.items(), RUN_COLOURS * len(runs), strict=False):
            lines = run.lines(objective)
            if lines:
                _curve(
                    axis,
                    run,
                    [r["step"] for r in lines],
                    [r.get("loss") for r in lines],
                    color=colour,
                    label=name,
                )
        axis.set(title=objective.upper(), xlabel="million tokens", ylabel="training loss (nats)")
        if len(runs) > 1:
            axis.legend()
    return figure


@styled
def by_language(
    run: Run, value: str = "loss_by_language", label: str = "training loss (nats)"
) -> Any:
    """One value per language over training, a panel per objective."""
    objectives = [
        name for name in run.objectives if any(line.get(value) for line in run.lines(name))
    ]
    if not objectives:
        return None
    coloured = language_colours(run)
    figure, axes = panels(len(objectives))
    for axis, objective in zip(axes, objectives, strict=True):
        lines = run.lines(objective)
        for language, colour in coloured.items():
            seen = [line for line in lines if language in line.get(value, ())]
            if seen:
                values = [line[value][language] for line in seen]
                _curve(
                    axis, run, [line["step"] for line in seen], values, color=colour, label=language
                )
        axis.set(title=objective.upper(), xlabel="million tokens", ylabel=label)
        axis.legend(ncols=2 if len(coloured) <= 10 else 3)
    return figure


@styled
def retrieval_by_layer(run: Run) -> Any:
    """Mean over languages, a curve per layer: raw and centred side by side. None without two
    evaluations."""
    found = run.evaluated("retrieval")
    evaluated = next(iter(found.values()), [])
    if not evaluated:
        return None
    import matplotlib

    pooling = next(iter(evaluated[-1][1]["by_layer"]))
    layers = list(evaluated[-1][1]["by_layer"][pooling])
    shades = matplotlib.colormaps["viridis_r"](np.linspace(0.12, 1, len(layers)))
    figure, axes = panels(2)
    for axis, kind in zip(axes, ("raw", "centred"), strict=True):
        for layer, colour in zip(layers, shades, strict=True):
            steps = [step for step, _ in evaluated]
            values = [100 * v["by_layer"][pooling][layer][f"{kind}_en_to_xx"] for _, v in evaluated]
            name = "embeddings" if layer == "0" else f"layer {layer}"
            _curve(axis, run, steps, values, color=colour, label=name)
        _chance(axis, evaluated[-1][1])
        axis.set(
            title=f"{kind} cosine",
            xlabel="million tokens",
            ylabel="en → xx accuracy (%)",
            ylim=(0, None),
        )
    axes[-1].legend(ncols=2 if len(layers) > 7 else 1)
    _same_height(axes)
    return figure


@styled
def retrieval_runs(runs: Mapping[str, Run]) -> Any:
    """Mean over languages at each evaluation's best layer, a curve per run. None for a single
    run."""
    figure, axes = panels(2)
    drawn = 0
    for axis, key in zip(axes, ("retrieval_mean", "retrieval_mean_centred"), strict=True):
        for (name, run), colour in zip(runs.items(), RUN_COLOURS * len(runs), strict=False):
            evaluated = next(iter(run.evaluated("retrieval").values()), [])
            if evaluated:
                values = [100 * v[key] for _, v in evaluated]
                _curve(axis, run, [step for step, _ in evaluated], values, color=colour, label=name)
                drawn += 1
        title = "centred cosine" if key.endswith("centred") else "raw cosine"
        axis.set(
            title=title, xlabel="million tokens", ylabel="en → xx accuracy (%)", ylim=(0, None)
        )
    if drawn:
        axes[0].legend()
    _same_height(axes)
    return figure if drawn > 2 else None


def _plain_numbers(axis) -> None:
    """30 on a logarithmic axis, not 3 × 10^1."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.yaxis.set_minor_formatter("")


def _same_height(axes) -> None:
    top = max(axis.get_ylim()[1] for axis in axes)
    for axis in axes:
        axis.set_ylim(0, top)


def _chance(axis, values: Mapping[str, Any]) -> None:
    chance = 100 * float(np.mean([1 / n for n in values["pairs"].values()]))
    axis.axhline(chance, color="#8a8f98", linewidth=0.9, linestyle=":")
    axis.annotate(
        "chance",
        (1, chance),
        xycoords=("axes fraction", "data"),
        ha="right",
        va="bottom",
        color="#8a8f98",
    )


@styled
def retrieval_layers(run: Run) -> Any:
    """The latest evaluation, language by layer, raw and centred, as two heat-maps."""
    values = run.last("retrieval")
    if values is None:
        return None
    pooling = next(iter(values["by_language"]))
    table = values["by_language"][pooling]
    languages, layers = list(table), list(values["by_layer"][pooling])
    height = 0.7 + 0.27 * len(languages)
    figure, axes = panels(2, size=(PANEL[0], max(height, 1.8)))
    for axis, kind in zip(axes, ("raw", "centred"), strict=True):
        cells = np.array(
            [[100 * table[la][n][f"{kind}_en_to_xx"] for n in layers] for la in languages]
        )
        best = best_layer(values["by_layer"][pooling], f"{kind}_en_to_xx")
        heat_map(
            axis, cells, languages, ["emb" if n == "0" else n for n in layers], "{:.0f}", 0, 100
        )
        axis.set(title=f"{kind}: en → xx accuracy (%), best layer {best}", xlabel="layer")
    return figure


@styled
def similarity(run: Run) -> Any:
    """Cosine of the languages' mean vectors."""
    values = run.last("retrieval")
    if values is None:
        return None
    names, cells = values["similarity"]["languages"], np.array(values["similarity"]["cosine"])
    side = 1.6 + 0.36 * len(names)
    figure, (axis,) = panels(1, size=(side + 0.5, side))
    heat_map(axis, cells, names, names, "{:.2f}", float(cells.min()), 1.0)
    axis.set_title(f"layer {values['similarity']['layer']}")
    return figure


def heat_map(
    axis, cells: np.ndarray, rows: list[str], columns: list[str], form: str, low: float, high: float
) -> None:
    axis.grid(False)
    axis.imshow(cells, cmap="YlGnBu", vmin=low, vmax=high if high > low else low + 1, aspect="auto")
    axis.set_xticks(range(len(columns)), columns)
    axis.set_yticks(range(len(rows)), rows)
    axis.tick_params(length=0)
    size = 8 if len(columns) <= 10 else 6
    for (i, j), value in np.ndenumerate(cells):
        dark = (value - low) / ((high - low) or 1) > 0.6
        axis.text(
            j,
            i,
            form.format(value),
            ha="center",
            va="center",
            fontsize=size,
            color="white" if dark else "#222",
        )


@styled
def perplexities(run: Run) -> Any:
    """Held-out perplexity per language, and TLM with the partner visible and hidden. None without
    two evaluations."""
    text = next(iter(run.evaluated("perplexity").values()), [])
    pairs = next(iter(run.evaluated("translation_perplexity").values()), [])
    count = (len(text) > 1) + (len(pairs) > 1)
    if not count:
        return None
    figure, axes = panels(count)
    if len(text) > 1:
        for language, colour in language_colours(run).items():
            seen = [
                (step, v["by_language"][language])
                for step, v in text
                if language in v["by_language"]
            ]
            if seen:
                _curve(axes[0], run, *zip(*seen, strict=True), color=colour, label=language)
        axes[0].set(
            title="held-out text", xlabel="million tokens", ylabel="perplexity", yscale="log"
        )
        _plain_numbers(axes[0])
        axes[0].legend(ncols=2)
    if len(pairs) > 1:
        for kind, colour in (("hidden", RUN_COLOURS[1]), ("visible", RUN_COLOURS[0])):
            values = [v[f"{kind}_mean"] for _, v in pairs]
            _curve(
                axes[-1],
                run,
                [step for step, _ in pairs],
                values,
                color=colour,
                label=f"partner {kind}",
            )
        axes[-1].set(
            title="held-out pairs (TLM)", xlabel="million tokens", ylabel="perplexity", yscale="log"
        )
        _plain_numbers(axes[-1])
        axes[-1].legend()
    return figure


@styled
def machinery(run: Run) -> Any:
    """Learning rate, gradient norm and speed over training."""
    shown = (
        ("learning_rate", "learning rate"),
        ("grad_norm", "gradient norm"),
        ("tokens_per_second", "tokens per second"),
    )
    shown = [
        (key, name) for key, name in shown if any(line.get(key) is not None for line in run.metrics)
    ]
    if not shown:
        return None
    figure, axes = panels(len(shown), columns=3, size=(PANEL[0] * 2 / 3, 2.2))
    for axis, (key, name) in zip(axes, shown, strict=True):
        split = run.objectives if key == "grad_norm" else run.objectives[:1]
        for objective, colour in zip(split, RUN_COLOURS * len(split), strict=False):
            lines = [line for line in run.lines(objective) if line.get(key) is not None]
            _curve(
                axis,
                run,
                [r["step"] for r in lines],
                [r[key] for r in lines],
                color=colour,
                label=objective,
            )
        axis.set(title=name, xlabel="million tokens", ylim=(0, None))
        if len(split) > 1:
            axis.legend()
    return figure


@styled
def svg(figure: Any) -> str:
    """The figure as an <svg> element that refers to nothing outside itself and scales with the
    page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    text = text[text.index("<svg") :]
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    # matplotlib's one rule would apply to the whole page.
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    sized = r'(<svg[^>]*?) width="([\d.]+)pt" height="[\d.]+pt"'
    return re.sub(sized, r'\1 style="width:100%;max-width:\2pt"', text, count=1)


@styled
def drawn(figure: Any, label: str) -> str:
    """A figure as HTML; "" for None."""
    return html.figure(svg(figure), label) if figure is not None else ""


def save(figure: Any, path: Path, dpi: int = 130) -> None:
    """The figure as a PNG file. Scripts that no font of this machine has are boxes there."""
    figure.savefig(path, dpi=dpi)


def save_pictures(runs: Mapping[str, Run], folder: Path, more: Mapping[str, Any]) -> list[Path]:
    """The report's figures as PNG files in `folder`, and `more` of them; the first run is the
    report's. Returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    run = next(iter(runs.values()))
    figures = {
        "losses": losses(runs),
        "retrieval_by_layer": retrieval_by_layer(run),
        "retrieval_layers": retrieval_layers(run),
        "retrieval_runs": retrieval_runs(runs),
        "similarity": similarity(run),
        **more,
    }
    written = []
    for name, figure in figures.items():
        if figure is not None:
            written.append(folder / f"{name}.png")
            save(figure, written[-1], dpi=150)
    return written
