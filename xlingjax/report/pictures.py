"""The pictures of a report: courses over training, tables by layer, attention, alignment, masks.
Each takes runs or values of an evaluation and gives figures, if any."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlingjax.evaluation.alignment import METHODS
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
ENDINGS = {"raw": "", "centred": "_centred"}  # of the names of plain figures
MASK = (2.3, 2.4)  # inches of a mask in a page
MASK_COLOUR = (0.20, 0.51, 0.74, 1.0)  # seen on white and on black


def _along(runs: Mapping[str, Run], run: Run, steps: Sequence[int]) -> Sequence[float]:
    """A curve's x: compared runs, whose batches may differ, are drawn over tokens."""
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


Shares = Mapping[str, float]


def _by_layer(
    title: str,
    table: Mapping[str, Any],
    means: Mapping[str, Any],
    score: str,
    beside: Mapping[str, Shares] = {},  # noqa: B006 - only read
) -> Grid:
    """Language by layer, from 0 to 100 % in every run. beside: {title: {language: share}}."""
    rows = []
    for language, by_layer in {**table, "mean": means}.items():
        shares = [by_layer[layer][score] for layer in means]
        shares += [column.get(language) for column in beside.values()]
        rows.append((language, [None if share is None else 100 * share for share in shares]))
    layers = ["emb" if layer == "0" else layer for layer in means]
    return Grid(title, ["language", *layers, *beside], rows)


def retrieval_grids(values: Mapping[str, Any], floors: Mapping[str, Any]) -> list[Grid]:
    """Language by layer, raw and centred. A figure below its floor says nothing of alignment."""
    pooling = next(iter(values["by_language"]))
    layers = values["by_layer"][pooling]
    pairs = values["pairs"].items()
    beside = {"chance": {language: 1 / n for language, n in pairs} | {"mean": chance(values)}}
    for floor, name in FLOORS.items():
        if of := floors.get(floor):
            shares = {language: scores["raw_en_to_xx"] for language, scores in of.items()}
            beside[name] = shares | {"mean": floors["mean"][floor]}
    grids = []
    for kind, title in KINDS.items():
        score = f"{kind}_en_to_xx"
        best = best_layer(layers, score)
        named = "embeddings" if best == "0" else f"layer {best}"
        title = f"{title}, by layer: en → xx (%); best: {named}"
        grids.append(_by_layer(title, values["by_language"][pooling], layers, score, beside))
    return grids


def alignment_grids(values: Mapping[str, Any]) -> list[Grid]:
    """Alignment error rate, language by layer."""
    grids = []
    for method in METHODS:
        title = f"{method}, by layer: error rate (%), 0 is best"
        grids.append(_by_layer(title, values["by_language"], values["by_layer"], method))
    return grids


def attention_title(of_one: Mapping[str, Any]) -> str:
    """ "de-en, cross-attention, layer 2, mean over heads" """
    words = ["-".join(of_one["languages"]), of_one["use"]]
    if of_one["layer"] is not None:
        head = "mean over heads" if of_one["head"] is None else f"head {of_one['head']}"
        words += [f"layer {of_one['layer']}", head]
    return ", ".join(words)


def attention_grid(of_one: Mapping[str, Any]) -> Grid:
    """Pieces down and across; the share (%) that the row's piece takes from the column's."""
    pieces = of_one["pieces"]
    percent = (100 * np.array(of_one["attention"])).tolist()
    return Grid(attention_title(of_one), ["", *pieces], list(zip(pieces, percent, strict=True)))


@drawing.styled
def mask(use: str, seen_LL: np.ndarray, starts: Sequence[int]) -> list[Any]:
    """Who sees whom, small. starts: of sides and examples, where lines are drawn."""
    figures, (axis,) = drawing.panels(1, MASK)
    axis.grid(False)
    # Transparent where nothing is seen, so that it is the page's own colour.
    picture = np.zeros((*seen_LL.shape, 4))
    picture[seen_LL] = MASK_COLOUR
    axis.imshow(picture, interpolation="nearest")
    for start in starts:
        axis.axhline(start - 0.5, color=drawing.SOFT, linewidth=0.8)
        axis.axvline(start - 0.5, color=drawing.SOFT, linewidth=0.8)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_title("\n".join(drawing.wrap(use, 30)))
    return figures
