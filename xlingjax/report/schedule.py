"""The course of a run, from what its record says before the first step: learning rate, turns, and
all that changes in stages."""

from collections.abc import Mapping, Sequence
from itertools import cycle, pairwise
from typing import Any

import numpy as np

from xlingjax.report import drawing, html
from xlingjax.training.optimizer import OptimizerConfig, learning_rate_schedule
from xlingjax.training.stages import stage_of

POINTS = 500
"""Of the learning rate's curve."""
ALWAYS = ("weight", "batch", "length", "masking rate", "sampling alpha")
"""Shown where they do not change, too, and before the others."""
TURNS = {
    "alternate": "one a step, in turn by their weights",
    "weighted": "one a step, drawn by their weights",
    "summed": "all in every step, losses times their weights",
}
DECAY = {
    "linear": "linear decay to 0",
    "inverse_sqrt": "inverse square root",
    "constant": "constant",
    "linear_from_0": "linear decay to 0 as if from step 0",
}
Stages = dict[int, Any]


def values(record: Mapping[str, Any]) -> dict[str, dict[str, Stages]]:
    """{what: {objective: {first step: value}}}, steps at which nothing changes left out. record:
    run.json, or `run_record.schedule_record`."""
    settings: dict[str, dict[str, Stages]] = {"weight": {}}
    for objective, weight in record.get("weights", {}).items():
        settings["weight"][objective] = _stages(weight)
    for name, of_stage in record.get("stages", {}).items():
        objective, start = stage_of(name)
        for what, value in _flat(of_stage).items():
            settings.setdefault(what, {}).setdefault(objective, {})[start] = value
    # Frozen parameters are the optimizer's and hold for all objectives.
    frozen = _stages(record.get("optimizer", {}).get("frozen", []))
    if len(frozen) > 1 or any(frozen.values()):
        settings["frozen"] = {"all": frozen}
    changes: dict[str, dict[str, Stages]] = {}
    for what, by_objective in settings.items():
        if by_objective:
            changes[what] = _changes_of_each(by_objective)
    return changes


def _stages(value: Any) -> Stages:
    """A constant as stages, and the keys of JSON as steps."""
    if not isinstance(value, Mapping):
        return {0: value}
    return {int(step): of_step for step, of_step in value.items()}


def _changes_of_each(by_objective: Mapping[str, Stages]) -> dict[str, Stages]:
    return {name: _changes(stages) for name, stages in by_objective.items()}


def _changes(stages: Stages) -> Stages:
    changes: Stages = {}
    for before, step in pairwise([None, *sorted(stages)]):
        if before is None or stages[step] != stages[before]:
            changes[step] = stages[step]
    return changes


def _at(stages: Stages, step: int) -> Any:
    """What holds at a step: the value of the last stage that has begun."""
    begun = [start for start in stages if start <= step]
    return stages[max(begun)]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for key, value in settings.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{name} ")
        else:
            flat[name] = value
    return flat


def shares(weights: Mapping[str, Stages]) -> dict[str, Stages]:
    """{objective: {first step: its share of the steps}} of weights in stages; of all 0, which
    `train` refuses, 0."""
    shares: dict[str, Stages] = {name: {} for name in weights}
    # At every step at which any weight changes, since then all shares do.
    for step in _starts(weights):
        now = {name: _at(stages, step) for name, stages in weights.items()}
        total = sum(now.values()) or 1
        for name, weight in now.items():
            shares[name][step] = weight / total
    return _changes_of_each(shares)


def _starts(by_objective: Mapping[str, Stages]) -> list[int]:
    """All steps at which a stage begins."""
    return sorted(set().union(*by_objective.values()))


def rows(record: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(what, objective, its values by step) of all that changes and of what one asks for first."""
    rows = []
    optimizer = record.get("optimizer")
    if optimizer:
        config = OptimizerConfig(**optimizer)
        warmup = config.warmup(record["steps"])
        peak = f"peak {config.learning_rate:g} after {warmup:,} steps of warm-up"
        rows.append(("learning rate", "all", f"{peak}, then {DECAY[config.schedule]}"))
    # One objective has every step, and nothing to take turns with.
    if len(record.get("weights", {})) > 1 and "schedule" in record:
        rows.append(("objectives", "all", TURNS.get(record["schedule"], record["schedule"])))
    settings = values(record)
    for what in sorted(settings, key=_rank):
        # Objectives of the same values share a row.
        alike: dict[str, list[str]] = {}
        for objective, stages in settings[what].items():
            # An option that is not set says nothing to a reader.
            if stages == {0: None}:
                continue
            if len(stages) > 1 or what in ALWAYS or what == "frozen":
                alike.setdefault(_stated(stages), []).append(objective)
        for text, objectives in alike.items():
            rows.append((what, ", ".join(objectives), text))
    return rows


def _rank(what: str) -> int:
    """The order of rows: `ALWAYS`, then the others as they come."""
    if what in ALWAYS:
        return ALWAYS.index(what)
    return len(ALWAYS)


def _stated(stages: Stages) -> str:
    def text_of(value: Any) -> str:
        if isinstance(value, list):
            return ", ".join(map(str, value)) or "none"
        return html.number(value)

    (_, first), *later = stages.items()
    parts = [text_of(first)]
    for step, value in later:
        parts.append(f"from step {step:,}: {text_of(value)}")
    return "; ".join(parts)


def picture(record: Mapping[str, Any]) -> list[Any]:
    """Learning rate, shares of the objectives (where losses are summed their weights), and a panel
    for each number or switch that changes, by step."""
    settings = values(record)
    steps = record.get("steps") or 0
    if not steps:
        return []
    figures = []
    if record.get("optimizer"):
        figures += _learning_rate(record["optimizer"], steps)
    weights = settings.pop("weight", {})
    if len(weights) > 1 and record.get("schedule") != "summed":
        figures += _turns(shares(weights), steps)
    elif weights:
        settings = {"weight": weights} | settings
    frozen = settings.pop("frozen", {}).get("all", {})
    for what, by_objective in settings.items():
        # Switches too: to Python True is 1.
        numbers = {}
        for name, stages in by_objective.items():
            if all(isinstance(value, int | float) for value in stages.values()):
                numbers[name] = stages
        if numbers and max(map(len, by_objective.values())) > 1:
            # An objective has the colour of its place in the run, whatever panel it is in.
            figures += _steps(what, numbers, steps, list(weights or by_objective))
    if spans := _frozen_spans(frozen, steps):
        figures += _frozen(spans)
    for figure in figures:
        figure.axes[0].set(xlabel="step", xlim=(0, steps))
    return figures


def _panel() -> tuple[list[Any], Any]:
    figures, (axis,) = drawing.panels(1, (drawing.PANEL[0], 2.1))
    return figures, axis


@drawing.styled
def _learning_rate(optimizer: Mapping[str, Any], steps: int) -> list[Any]:
    figures, axis = _panel()
    # Whole steps alone: a short run has fewer of them than a curve has points.
    at = np.unique(np.linspace(0, max(steps - 1, 0), POINTS).astype(int))
    # The training's own function, on NumPy: a drawing must not start a device.
    rate = learning_rate_schedule(OptimizerConfig(**optimizer), steps, np)
    axis.plot(at, rate(at), color=drawing.COLOURS[0])
    axis.set(title="learning rate", ylim=(0, None))
    return figures


@drawing.styled
def _turns(of: Mapping[str, Stages], steps: int) -> list[Any]:
    """Shares of the steps, one on the other."""
    figures, axis = _panel()
    # A stage behind the last step is planned in vain.
    starts = [0, *(step for step in _starts(of) if 0 < step < steps)]
    edges = [*starts, steps]
    below = np.zeros(len(edges))
    middles = []
    for stages, colour in zip(of.values(), cycle(drawing.COLOURS), strict=False):
        now = [100 * _at(stages, start) for start in starts]
        # The last value holds to the end.
        above = below + [*now, now[-1]]
        axis.fill_between(edges, below, above, step="post", color=colour, linewidth=0, alpha=0.75)
        middles.append(float(below[-1] + above[-1]) / 200)
        below = above
    axis.set(title="share of the steps (%)", ylim=(0, 100))
    drawing.write_ends(axis, list(of), middles, drawing.COLOURS)
    return figures


@drawing.styled
def _steps(what: str, of: Mapping[str, Stages], steps: int, objectives: Sequence[str]) -> list[Any]:
    figures, axis = _panel()
    alike: dict[tuple, list[str]] = {}
    for objective, stages in of.items():
        alike.setdefault(tuple(stages.items()), []).append(objective)
    for stages, names in alike.items():
        begun = {step: float(value) for step, value in stages if step < steps}
        levels = list(begun.values())
        # The last value holds to the end.
        at, levels = [*begun, steps], [*levels, levels[-1]]
        colour = drawing.COLOURS[objectives.index(names[0]) % len(drawing.COLOURS)]
        axis.step(at, levels, where="post", color=colour, label=", ".join(names))
    axis.set(title=what, ylim=(0, None))
    if all(isinstance(value, bool) for stages in of.values() for value in stages.values()):
        axis.set_yticks([0, 1], ["off", "on"])
        axis.set_ylim(-0.1, 1.1)
    drawing.label_ends(axis)
    return figures


def _frozen_spans(stages: Stages, steps: int) -> dict[str, list[tuple[int, int]]]:
    """{regular expression: [(first step, steps)]} of when it freezes."""
    spans: dict[str, list[tuple[int, int]]] = {}
    ends = [*stages, steps][1:]
    for (start, patterns), end in zip(stages.items(), ends, strict=True):
        for pattern in patterns:
            if start < steps:
                spans.setdefault(pattern, []).append((start, min(end, steps) - start))
    return spans


@drawing.styled
def _frozen(spans: Mapping[str, Sequence[tuple[int, int]]]) -> list[Any]:
    figures, axis = _panel()
    for row, (pattern, of) in enumerate(spans.items()):
        axis.broken_barh(of, (row - 0.35, 0.7), color=drawing.COLOURS[0], alpha=0.25)
        axis.text(0.02, row, pattern, transform=axis.get_yaxis_transform(), va="center", fontsize=9)
    axis.set_yticks([])
    # The first one on top.
    axis.set_ylim(len(spans) - 0.4, -0.6)
    axis.set_title("frozen parameters")
    return figures


def section(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of a page; None of a run whose record says nothing."""
    figures = picture(record)
    if not figures:
        return None
    return {"figures": drawing.labelled(figures, "the run's schedule"), "rows": rows(record)}
