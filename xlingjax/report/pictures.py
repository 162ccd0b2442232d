"""The pictures of a report: courses over training, tables by layer, attention, alignment, masks.
Each takes runs or values of an evaluation and gives figures, if any."""

from collections.abc import Mapping, Sequence

import numpy as np

from xlingjax.evaluation.floors import FLOORS
from xlingjax.report import drawing
from xlingjax.report.drawing import Panel
from xlingjax.report.run import Run, Runs

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


def _along(runs: Runs, run: Run, steps: Sequence[int]) -> Sequence[float]:
    """A curve's x: compared runs, whose batches may differ, are drawn over tokens."""
    return (run.tokens_at(steps) / 1e6).tolist() if len(runs) > 1 else steps


def _axis(runs: Runs) -> str:
    return "million tokens" if len(runs) > 1 else "step"


def losses(runs: Runs) -> list:
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


def chance(values: Mapping) -> float:
    """Drawn at random, one of n sentences is the translation: mean over languages, 0..1."""
    return float(np.mean([1 / n for n in values["pairs"].values()]))


def retrieval(runs: Runs) -> list:
    """Mean over languages at the run's layer, raw and centred, a curve per run, from
    two points on; beside it what chance and simple models reach."""
    evaluated = {}
    for name, run in runs.items():
        if by_evaluator := run.evaluated("retrieval"):
            # Of several evaluators the first.
            evaluated[name] = next(iter(by_evaluator.values()))
    if sum(map(len, evaluated.values())) < 2:
        return []
    first = next(iter(evaluated))
    levels = {"chance": 100 * chance(evaluated[first][-1][1])}
    pivot = evaluated[first][-1][1].get("pivot", "en")
    means = runs[first].last("floors").get("mean", {})
    levels |= {FLOORS[floor]: 100 * mean for floor, mean in means.items()}
    panels = []
    for kind, title in KINDS.items():
        panel = Panel(f"{title}: {pivot} → xx (%)", _axis(runs), True, levels=levels)
        for name, evaluations in evaluated.items():
            at = _along(runs, runs[name], [step for step, _ in evaluations])
            key = f"retrieval_mean{ENDINGS[kind]}"
            panel.curves[name] = (at, [100 * values[key] for _, values in evaluations])
        panels.append(panel)
    return drawing.draw(panels)


def beside_layers(values: Mapping, floors: Mapping) -> dict:
    """{name: {language: share}} of what retrieval reaches without a model. A figure below its floor
    says nothing of alignment."""
    pairs = values["pairs"].items()
    beside = {"chance": {language: 1 / n for language, n in pairs} | {"mean": chance(values)}}
    for floor, name in FLOORS.items():
        if of := floors.get(floor):
            shares = {language: scores["raw_en_to_xx"] for language, scores in of.items()}
            beside[name] = shares | {"mean": floors["mean"][floor]}
    return beside


@drawing.styled
def mask(use: str, seen_LL: np.ndarray, starts: Sequence[int]) -> list:
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
