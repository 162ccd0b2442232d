"""The pictures of a report: courses over training, tables by layer, attention, alignment, masks.
Each takes runs or the values of an evaluation and gives figures, none where nothing is to be
drawn."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.evaluation.alignment import METHODS, Alignment, Links
from xlingjax.evaluation.floors import FLOORS
from xlingjax.evaluation.retrieval import best_layer
from xlingjax.report import drawing
from xlingjax.report.drawing import Grid, Panel
from xlingjax.report.run import Run

# fmt: off
OF_PIECES = (
    "mlm", "tlm", "clm", "clwr", "cl_mlm", "camlm", "btmlm", "translation", "back_translation",
    "masked_words", "masked_translation",
)
# fmt: on
"""Objectives each of whose predictions is one of the vocabulary's pieces, so that a uniform guess
has a loss."""
KINDS = {"raw": "raw cosine", "centred": "language means removed"}
ENDINGS = {"raw": "", "centred": "_centred"}
"""Of the names of plain figures."""
MASK = (2.3, 2.4)
"""Inches of a mask in a page."""
MASK_COLOUR = (0.20, 0.51, 0.74, 1.0)
"""Seen on white and on black."""


# ---- over training -------------------------------------------------------------------------------


def _along(runs: Mapping[str, Run], run: Run, steps: Sequence[int]) -> Sequence[float]:
    """Where the points of a curve lie: runs that are compared may have batches of other sizes, and
    are drawn over tokens."""
    return (run.tokens_at(steps) / 1e6).tolist() if len(runs) > 1 else steps


def _axis(runs: Mapping[str, Run]) -> str:
    return "million tokens" if len(runs) > 1 else "step"


def losses(runs: Mapping[str, Run]) -> list[Any]:
    """Training loss, a panel per objective and a curve per run."""
    panels = []
    pieces = next(iter(runs.values())).vocabulary_size
    for objective in dict.fromkeys(name for run in runs.values() for name in run.objectives):
        panel = Panel(f"{objective.upper()}: training loss (nats)", _axis(runs))
        for name, run in runs.items():
            lines = run.lines(objective)
            at = _along(runs, run, [line["step"] for line in lines])
            panel.curves[name] = (at, [line.get("loss") for line in lines])
        if pieces and objective in OF_PIECES:
            panel.levels["uniform"] = float(np.log(pieces))
        panels.append(panel)
    return drawing.draw(panels)


def chance(values: Mapping[str, Any]) -> float:
    """Drawn at random, one of n sentences is the translation: mean over languages, 0..1."""
    return float(np.mean([1 / n for n in values["pairs"].values()]))


def retrieval(runs: Mapping[str, Run]) -> list[Any]:
    """Mean over languages at each evaluation's best layer, raw and centred, a curve per run, from
    two points on; beside it what chance and simple models reach."""
    evaluated = {name: run.first_evaluated("retrieval") for name, run in runs.items()}
    evaluated = {name: evaluations for name, evaluations in evaluated.items() if evaluations}
    if sum(map(len, evaluated.values())) < 2:
        return []
    first = next(iter(evaluated))
    levels = {"chance": 100 * chance(evaluated[first][-1][1])}
    means = (runs[first].last("floors") or {}).get("mean", {})
    levels |= {FLOORS[floor]: 100 * mean for floor, mean in means.items()}
    panels = []
    for kind, title in KINDS.items():
        panel = Panel(f"{title}: en → xx (%)", _axis(runs), True, levels=levels)
        for name, evaluations in evaluated.items():
            at = _along(runs, runs[name], [step for step, _ in evaluations])
            key = f"retrieval_mean{ENDINGS[kind]}"
            panel.curves[name] = (at, [100 * values[key] for _, values in evaluations])
        panels.append(panel)
    return drawing.draw(panels)


def save_pictures(runs: Mapping[str, Run], folder: Path) -> list[Path]:
    """The figures over training as PNG files in `folder`. Returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figures in {"losses": losses(runs), "retrieval": retrieval(runs)}.items():
        if figures:
            written.append(folder / f"{name}.png")
            drawing.save(figures, written[-1], dpi=150)
    return written


# ---- by layer ------------------------------------------------------------------------------------


def layer_name(layer: str) -> str:
    """Layer 0 is what the embeddings give."""
    return "embeddings" if layer == "0" else f"layer {layer}"


def _by_layer(title: str, table: Mapping[str, Any], layers: Iterable[str], score: str) -> Grid:
    """Language by layer, in percent: from 0 to 100 in every run, so that colours compare."""
    layers = list(layers)
    rows = []
    for language, by_layer in table.items():
        rows.append((language, [100 * by_layer[layer][score] for layer in layers]))
    return Grid(title, ["language", *("emb" if layer == "0" else layer for layer in layers)], rows)


def retrieval_grids(values: Mapping[str, Any]) -> list[Grid]:
    """Language by layer, raw and centred."""
    pooling = next(iter(values["by_language"]))
    layers = values["by_layer"][pooling]
    grids = []
    for kind, title in KINDS.items():
        score = f"{kind}_en_to_xx"
        # The same choice as the evaluator's, whose figures stand beside.
        best = layer_name(best_layer(layers, score))
        title = f"{title}, by layer: en → xx (%); best: {best}"
        grids.append(_by_layer(title, values["by_language"][pooling], layers, score))
    return grids


def alignment_grids(values: Mapping[str, Any]) -> list[Grid]:
    """Alignment error rate, language by layer."""
    grids = []
    for method in METHODS:
        title = f"{method}, by layer: error rate (%), 0 is best"
        grids.append(_by_layer(title, values["by_language"], values["by_layer"], method))
    return grids


def similarity_grid(values: Mapping[str, Any]) -> Grid:
    """Cosine of the languages' mean vectors."""
    names = values["similarity"]["languages"]
    cosines = values["similarity"]["cosine"]
    # From the lowest: cosines of one model lie close together, and from 0 all would look alike.
    low = min(map(min, cosines))
    title = f"layer {values['similarity']['layer']}"
    return Grid(title, ["", *names], list(zip(names, cosines, strict=True)), "{:.2f}", low, 1.0)


# ---- of a pair or a row --------------------------------------------------------------------------

ATTENTION_HEAD = ("text", "piece", "looks most at", "share", "of the other text")


def attention_title(of_one: Mapping[str, Any]) -> str:
    """ "de-en, cross-attention, layer 2, mean over heads" """
    words = ["-".join(of_one["languages"]), of_one["use"]]
    if of_one["layer"] is not None:
        head = "mean over heads" if of_one["head"] is None else f"head {of_one['head']}"
        words += [f"layer {of_one['layer']}", head]
    return ", ".join(words)


def attention_lines(of_one: Mapping[str, Any]) -> list[tuple[str, str, str, float, float]]:
    """`ATTENTION_HEAD` of each piece; the last is its share of all the other text's pieces."""
    pieces = of_one["pieces"]
    second = of_one["second"]
    lines = []
    for row, shares in enumerate(of_one["attention"]):
        is_second = row >= second
        most = int(np.argmax(shares))
        other = shares[:second] if is_second else shares[second:]
        # Shares are kept rounded, and may sum to a little more.
        of_other = round(min(sum(other), 1.0), 3)
        language = of_one["languages"][is_second]
        lines.append((language, pieces[row], pieces[most], round(shares[most], 3), of_other))
    return lines


def attention(of_one: Mapping[str, Any]) -> list[Any]:
    """Pieces down and across; colour: the share that the row's piece takes from the column's."""
    pieces = of_one["pieces"]
    title = attention_title(of_one)
    figures, axis = drawing.cells(of_one["attention"], pieces, pieces, title, "share", vmin=0)
    border = of_one["second"] - 0.5
    axis.axhline(border, color=drawing.SOFT, linewidth=0.8)
    axis.axvline(border, color=drawing.SOFT, linewidth=0.8)
    return figures


def alignment(
    alignment: Alignment, words: tuple[Sequence[str], Sequence[str]], links: Links
) -> list[Any]:
    """Words of a pair down and across; colour: the highest cosine of their pieces, dots: links."""
    left, right = words
    # NaN until a pair of pieces is met: 0 would be a cosine, higher than a negative one.
    grid = np.full((len(left), len(right)), np.nan)
    for (i, j), cosine in np.ndenumerate(alignment.similarity):
        row = alignment.left[i]
        column = alignment.right[j]
        grid[row, column] = np.nanmax([grid[row, column], cosine])
    figures, axis = drawing.cells(grid, left, right, "", "cosine")
    if links:
        rows, columns = zip(*sorted(links), strict=True)
        axis.plot(columns, rows, "o", color=drawing.COLOURS[1], markersize=5)
    return figures


@drawing.styled
def mask(use: str, seen_LL: np.ndarray, parts: Sequence[tuple[int, str]]) -> list[Any]:
    """Who sees whom, small. parts: (first token, language) of each side and example, where lines
    are drawn."""
    figures, (axis,) = drawing.panels(1, MASK)
    axis.grid(False)
    # Transparent where nothing is seen, so that it is the page's own colour.
    picture = np.zeros((*seen_LL.shape, 4))
    picture[seen_LL] = MASK_COLOUR
    axis.imshow(picture, interpolation="nearest")
    edges = [*(start - 0.5 for start, _ in parts), len(seen_LL) - 0.5]
    for start in edges[1:-1]:
        axis.axhline(start, color=drawing.SOFT, linewidth=0.8)
        axis.axvline(start, color=drawing.SOFT, linewidth=0.8)
    middles, labels = [], []
    # Named where they are few: a row packed with many examples has no room.
    if len(parts) <= 4:
        middles = [(a + b) / 2 for a, b in pairwise(edges)]
        labels = drawing.piece_labels([language for _, language in parts])
    axis.set_xticks(middles, labels)
    axis.set_yticks(middles, labels)
    axis.tick_params(length=0)
    axis.set_title("\n".join(drawing.wrap(use, 30)))
    return figures
