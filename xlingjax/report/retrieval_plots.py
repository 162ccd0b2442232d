"""Pictures of sentence retrieval: by layer, run and language, and how alike the languages are."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from xlingjax.evaluation.retrieval import best_layer
from xlingjax.report import plots
from xlingjax.report.run import Run


@plots.styled
def retrieval_by_layer(run: Run) -> Any:
    """Mean over languages, a curve per layer: raw and centred side by side. None without two
    evaluations."""
    evaluated = plots.first_evaluated(run.evaluated("retrieval"))
    if not evaluated:
        return None
    import matplotlib

    _, last = evaluated[-1]
    # Of several poolings the first, which the plain figures are of.
    pooling = next(iter(last["by_layer"]))
    layers = list(last["by_layer"][pooling])
    # Layers have an order, so their colours have one.
    shades = matplotlib.colormaps["viridis_r"](
        np.linspace(0.12, 1, len(layers)),
    )
    figure, axes = plots.panels(2)
    for axis, kind in zip(axes, ("raw", "centred"), strict=True):
        for layer, colour in zip(layers, shades, strict=True):
            steps = []
            values = []
            for step, evaluation in evaluated:
                scores = evaluation["by_layer"][pooling][layer]
                steps.append(step)
                values.append(100 * scores[f"{kind}_en_to_xx"])
            plots.curve(
                axis,
                run,
                steps,
                values,
                color=colour,
                label=plots.layer_name(layer),
            )
        _chance(axis, last)
        axis.set(
            title=f"{kind} cosine",
            xlabel="million tokens",
            ylabel="en → xx accuracy (%)",
            ylim=(0, None),
        )
    columns = 1
    if len(layers) > 7:
        columns = 2
    axes[-1].legend(ncols=columns)
    _same_height(axes)
    return figure


@plots.styled
def retrieval_runs(runs: Mapping[str, Run]) -> Any:
    """Mean over languages at each evaluation's best layer, a curve per run. None for a single
    run."""
    figure, axes = plots.panels(2)
    drawn = 0
    keys = {
        "raw cosine": "retrieval_mean",
        "centred cosine": "retrieval_mean_centred",
    }
    for axis, (title, key) in zip(axes, keys.items(), strict=True):
        for (name, run), colour in zip(
            runs.items(),
            plots.RUN_COLOURS * len(runs),
            strict=False,
        ):
            evaluated = plots.first_evaluated(run.evaluated("retrieval"))
            if evaluated:
                steps, values = plots.course(evaluated, key, scale=100)
                plots.curve(axis, run, steps, values, color=colour, label=name)
                drawn += 1
        axis.set(
            title=title,
            xlabel="million tokens",
            ylabel="en → xx accuracy (%)",
            ylim=(0, None),
        )
    # Two curves are one run: nothing to compare it with.
    if drawn <= 2:
        return None
    axes[0].legend()
    _same_height(axes)
    return figure


@plots.styled
def retrieval_layers(run: Run) -> Any:
    """The latest evaluation, language by layer, raw and centred, as two heat-maps."""
    values = run.last("retrieval")
    if values is None:
        return None
    pooling = next(iter(values["by_language"]))
    table = values["by_language"][pooling]
    languages = list(table)
    layers = list(values["by_layer"][pooling])
    height = 0.7 + 0.27 * len(languages)
    figure, axes = plots.panels(2, size=(plots.PANEL[0], max(height, 1.8)))
    for axis, kind in zip(axes, ("raw", "centred"), strict=True):
        score = f"{kind}_en_to_xx"
        cells = np.zeros((len(languages), len(layers)))
        for i, language in enumerate(languages):
            cells[i] = [100 * table[language][layer][score] for layer in layers]
        # The same choice as the evaluator's, whose figures stand beside.
        best = best_layer(values["by_layer"][pooling], score)
        plots.heat_map(
            axis,
            cells,
            languages,
            plots.short_layer_names(layers),
            "{:.0f}",
            0,
            100,
        )
        axis.set(
            title=f"{kind}: en → xx accuracy (%), best layer {best}",
            xlabel="layer",
        )
    return figure


@plots.styled
def similarity(run: Run) -> Any:
    """Cosine of the languages' mean vectors."""
    values = run.last("retrieval")
    if values is None:
        return None
    names = values["similarity"]["languages"]
    cells = np.array(values["similarity"]["cosine"])
    side = 1.6 + 0.36 * len(names)
    figure, (axis,) = plots.panels(1, size=(side + 0.5, side))
    # From the lowest: cosines of one model lie close together, and from 0 all would look alike.
    plots.heat_map(axis, cells, names, names, "{:.2f}", float(cells.min()), 1.0)
    axis.set_title(f"layer {values['similarity']['layer']}")
    return figure


def _same_height(axes) -> None:
    # Raw and centred stand side by side and are compared by eye.
    top = 0.0
    for axis in axes:
        _, height = axis.get_ylim()
        top = max(top, height)
    for axis in axes:
        axis.set_ylim(0, top)


def _chance(axis, values: Mapping[str, Any]) -> None:
    # Drawn at random, one of n sentences is the translation.
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
