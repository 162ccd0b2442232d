"""Sentence retrieval: pictures by layer, run and language, with what chance and simple models
reach, and how alike the languages are."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlingjax.evaluation.floors import FLOORS
from xlingjax.evaluation.retrieval import best_layer
from xlingjax.report import drawing, html, plots
from xlingjax.report.run import Run

LAYERS = 5
"""Of a deep model so many are drawn, and the best."""
KINDS = {"raw": "raw cosine", "centred": "language means removed"}


def chance(values: Mapping[str, Any]) -> float:
    """Drawn at random, one of n sentences is the translation: mean over languages, 0..1."""
    return float(np.mean([1 / n for n in values["pairs"].values()]))


@drawing.styled
def retrieval_by_layer(run: Run) -> Any:
    """Mean over languages over training, a curve per layer: raw and centred beside each other. None
    without two evaluations."""
    evaluated = plots.first_evaluated(run.evaluated("retrieval"))
    if len(evaluated) < 2:
        return None
    _, last = evaluated[-1]
    # Of several poolings the first, which the plain figures are of.
    pooling = next(iter(last["by_layer"]))
    figures, axes = drawing.panels(len(KINDS), drawing.tall(LAYERS + 4))
    for axis, (kind, title) in zip(axes, KINDS.items(), strict=True):
        score = f"{kind}_en_to_xx"
        best = best_layer(last["by_layer"][pooling], score)
        layers = list(last["by_layer"][pooling])
        for number, layer in enumerate(_drawn_layers(layers, best)):
            steps = []
            values = []
            for step, evaluation in evaluated:
                steps.append(step)
                of_layer = evaluation["by_layer"][pooling][layer]
                values.append(100 * of_layer[score])
            name = drawing.layer_name(layer)
            drawing.curve(axis, run, steps, values, number, name)
        _levels(axis, run, last)
        axis.set(title=f"{title}: en → xx (%)", xlabel=drawing.axis_label(), ylim=(0, 100))
        drawing.label_ends(axis)
    return figures


def _drawn_layers(layers: Sequence[str], best: str) -> list[str]:
    """All, or of many some that are evenly spaced, and the best."""
    spaced = np.linspace(0, len(layers) - 1, min(len(layers), LAYERS))
    chosen = {layers[round(place)] for place in spaced} | {best}
    return [layer for layer in layers if layer in chosen]


def _levels(axis, run: Run, last: Mapping[str, Any]) -> None:
    """Chance, and what simple models reach."""
    drawing.level(axis, 100 * chance(last), "chance")
    means = (run.last("floors") or {}).get("mean", {})
    for floor, name in FLOORS.items():
        if floor in means:
            drawing.level(axis, 100 * means[floor], name)


@drawing.styled
def retrieval_runs(runs: Mapping[str, Run]) -> Any:
    """Mean over languages at each evaluation's best layer, a curve per run. None for a single
    run."""
    evaluated = {}
    for name, run in runs.items():
        found = plots.first_evaluated(run.evaluated("retrieval"))
        if found:
            evaluated[name] = found
    if len(evaluated) < 2:
        return None
    way = drawing.over(runs)
    keys = {"raw": "retrieval_mean", "centred": "retrieval_mean_centred"}
    figures, axes = drawing.panels(len(KINDS))
    for axis, (kind, title) in zip(axes, KINDS.items(), strict=True):
        for number, name in enumerate(evaluated):
            steps, values = plots.course(evaluated[name], keys[kind], scale=100)
            drawing.curve(axis, runs[name], steps, values, number, name, **way)
        first = next(iter(evaluated))
        _levels(axis, runs[first], evaluated[first][-1][1])
        axis.set(title=f"{title}: en → xx (%)", xlabel=drawing.axis_label(**way), ylim=(0, 100))
        drawing.label_ends(axis)
    return figures


def by_layer_tables(values: Mapping[str, Any]) -> list[str]:
    """The latest evaluation, language by layer, raw and centred, as coloured tables."""
    pooling = next(iter(values["by_language"]))
    table = values["by_language"][pooling]
    layers = list(values["by_layer"][pooling])
    parts = []
    for kind, title in KINDS.items():
        score = f"{kind}_en_to_xx"
        rows = []
        for language, by_layer in table.items():
            cells = [100 * by_layer[layer][score] for layer in layers]
            rows.append((language, cells))
        # The same choice as the evaluator's, whose figures stand beside.
        best = best_layer(values["by_layer"][pooling], score)
        said = f"{title}, by layer: en → xx (%); best: {drawing.layer_name(best)}"
        head = ["language", *drawing.short_layer_names(layers)]
        parts.append(html.titled(said, html.heat(head, rows)))
    return [html.beside(parts)]


def similarity_table(values: Mapping[str, Any]) -> str:
    """Cosine of the languages' mean vectors."""
    names = values["similarity"]["languages"]
    cosines = values["similarity"]["cosine"]
    # From the lowest: cosines of one model lie close together, and from 0 all would look alike.
    low = min(map(min, cosines))
    rows = zip(names, cosines, strict=True)
    return html.heat(["", *names], rows, "{:.2f}", low, 1.0)


@drawing.styled
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
    size = (max(drawing.PANEL[0], 1 + 0.4 * len(layers)), max(height, 1.8))
    figures, axes = drawing.panels(2, size)
    for axis, kind in zip(axes, KINDS, strict=True):
        score = f"{kind}_en_to_xx"
        cells = np.zeros((len(languages), len(layers)))
        for i, language in enumerate(languages):
            cells[i] = [100 * table[language][layer][score] for layer in layers]
        # The same choice as the evaluator's, whose figures stand beside.
        best = best_layer(values["by_layer"][pooling], score)
        drawing.heat_map(
            axis, cells, languages, drawing.short_layer_names(layers), "{:.0f}", 0, 100
        )
        axis.set(title=f"{kind}: en → xx (%), best layer {best}", xlabel="layer")
    return figures


@drawing.styled
def similarity(run: Run) -> Any:
    """Cosine of the languages' mean vectors."""
    values = run.last("retrieval")
    if values is None:
        return None
    names = values["similarity"]["languages"]
    cells = np.array(values["similarity"]["cosine"])
    side = 1.6 + 0.36 * len(names)
    figures, (axis,) = drawing.panels(1, (side + 0.5, side))
    # From the lowest: cosines of one model lie close together, and from 0 all would look alike.
    drawing.heat_map(axis, cells, names, names, "{:.2f}", float(cells.min()), 1.0)
    axis.set_title(f"layer {values['similarity']['layer']}")
    return figures
