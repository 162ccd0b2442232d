"""The course of a run, from what its record says before the first step: learning rate, turns, and
all that changes in stages."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlingjax.report import html, plots
from xlingjax.training.optimizer import OptimizerConfig, learning_rate_schedule
from xlingjax.training.stages import stage_of

POINTS = 500  # of the learning rate's curve
# Shown where they do not change, too.
ALWAYS = ("weight", "batch", "length", "masking rate", "sampling alpha")
SAID = {
    "alternate": "one a step, in turn by their weights",
    "weighted": "one a step, drawn by their weights",
    "summed": "all in every step, losses times their weights",
}
NOTE = "Planned, from the recipe. A value holds from its step on until the next one."

Stages = dict[int, Any]


def values(record: Mapping[str, Any]) -> dict[str, dict[str, Stages]]:
    """{what: {objective: {first step: value}}}, steps at which nothing changes left out. record:
    run.json, or `run_record.schedule_record`."""
    found: dict[str, dict[str, Stages]] = {"weight": {}}
    for objective, weight in record.get("weights", {}).items():
        found["weight"][objective] = _stages(weight)
    for name, settings in record.get("stages", {}).items():
        objective, start = stage_of(name)
        for what, value in _flat(settings).items():
            found.setdefault(what, {}).setdefault(objective, {})[start] = value
    frozen = _stages(record.get("optimizer", {}).get("frozen", []))
    if len(frozen) > 1 or any(frozen.values()):
        found["frozen"] = {"all": frozen}
    return {
        what: {objective: _changes(stages) for objective, stages in of.items()}
        for what, of in found.items()
        if of
    }


def _stages(value: Any) -> Stages:
    """A constant as stages, and the keys of JSON as steps."""
    return (
        {int(step): one for step, one in value.items()}
        if isinstance(value, Mapping)
        else {0: value}
    )


def _changes(stages: Stages) -> Stages:
    steps = sorted(stages)
    return {
        step: stages[step]
        for i, step in enumerate(steps)
        if not i or stages[step] != stages[steps[i - 1]]
    }


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for key, value in settings.items():
        name = f"{prefix}{key}".replace("_", " ")
        flat |= _flat(value, f"{name} ") if isinstance(value, Mapping) else {name: value}
    return flat


def shares(weights: Mapping[str, Stages]) -> dict[str, Stages]:
    """{objective: {first step: its share of the steps}} of weights in stages; of all 0, which
    `train` refuses, 0."""
    steps = sorted({step for stages in weights.values() for step in stages})
    now = {
        step: {
            name: stages[max(s for s in stages if s <= step)] for name, stages in weights.items()
        }
        for step in steps
    }
    total = {step: sum(now[step].values()) or 1 for step in steps}
    return {
        name: _changes({step: now[step][name] / total[step] for step in steps}) for name in weights
    }


def rows(record: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(what, objective, its values by step) of all that changes and of what one asks for first."""
    out = []
    if optimizer := record.get("optimizer"):
        shape = {
            "linear": "linear decay to 0",
            "inverse_sqrt": "inverse square root",
            "constant": "constant",
        }
        shape["linear_from_0"] = "linear decay to 0 as if from step 0"
        config = OptimizerConfig(**optimizer)
        warm = (
            f"peak {config.learning_rate:g} after {config.warmup(record['steps']):,} steps of"
            " warm-up"
        )
        out.append(("learning rate", "all", f"{warm}, then {shape[config.schedule]}"))
    if len(record.get("weights", {})) > 1 and "schedule" in record:
        out.append(("objectives", "all", SAID.get(record["schedule"], record["schedule"])))
    found = values(record)
    for what in sorted(
        found, key=lambda what: (what not in ALWAYS, ALWAYS.index(what) if what in ALWAYS else 0)
    ):
        alike: dict[str, list[str]] = {}
        for objective, stages in found[what].items():
            if (len(stages) > 1 or what in (*ALWAYS, "frozen")) and stages != {0: None}:
                alike.setdefault(_said(stages), []).append(objective)
        out += [(what, ", ".join(objectives), said) for said, objectives in alike.items()]
    return out


def _said(stages: Stages) -> str:
    def one(value: Any) -> str:
        if isinstance(value, list):
            return ", ".join(map(str, value)) or "none"
        return html.number(value)

    first, *later = stages.items()
    return "; ".join(
        [one(first[1]), *(f"from step {step:,}: {one(value)}" for step, value in later)]
    )


@plots.styled
def picture(record: Mapping[str, Any]) -> Any:
    """Learning rate, shares of the objectives (where losses are summed their weights), and a panel
    for each number or switch that changes, by step."""
    found, steps = values(record), record.get("steps") or 0
    weights = found.get("weight", {})
    in_turn = len(weights) > 1 and record.get("schedule") != "summed"
    elsewhere = ("weight", "frozen") if in_turn else ("frozen",)
    drawn = {
        what: {objective: stages for objective, stages in of.items() if _is_drawn(stages)}
        for what, of in found.items()
        if what not in elsewhere and any(len(stages) > 1 for stages in of.values())
    }
    drawn = {what: of for what, of in drawn.items() if of}
    frozen = _frozen_spans(found.get("frozen", {}).get("all", {}), steps)
    rate = bool(record.get("optimizer"))
    count = rate + in_turn + len(drawn) + bool(frozen)
    if not count or not steps:
        return None
    figure, axes = plots.panels(count, columns=3, size=(plots.PANEL[0] * 2 / 3, 2.2))
    left = list(axes)
    if rate:
        _learning_rate(left.pop(0), record["optimizer"], steps)
    if in_turn:
        _turns(left.pop(0), shares(weights), steps)
    for what, of in drawn.items():
        _steps(left.pop(0), what, of, steps, list(weights or of))
    if frozen:
        _frozen(left.pop(0), frozen)
    for axis in axes:
        axis.set(xlabel="step", xlim=(0, steps))
    return figure


def _is_drawn(stages: Stages) -> bool:
    return all(isinstance(value, int | float) for value in stages.values())


def _learning_rate(axis, optimizer: Mapping[str, Any], steps: int) -> None:
    at = np.unique(np.linspace(0, max(steps - 1, 0), POINTS).astype(int))
    axis.plot(
        at,
        learning_rate_schedule(OptimizerConfig(**optimizer), steps, np)(at),
        color=plots.RUN_COLOURS[0],
    )
    axis.set(title="learning rate", ylim=(0, None))


def _turns(axis, of: Mapping[str, Stages], steps: int) -> None:
    """Shares of the steps, one on the other."""
    starts = sorted({0, *(step for stages in of.values() for step in stages if step < steps)})
    edges, below = [*starts, steps], np.zeros(len(starts) + 1)
    for (objective, stages), colour in zip(of.items(), plots.RUN_COLOURS * len(of), strict=False):
        now = [stages[max(step for step in stages if step <= start)] for start in starts]
        above = below + [*now, now[-1]]
        axis.fill_between(
            edges, below, above, step="post", color=colour, linewidth=0, label=objective
        )
        below = above
    axis.set(title="share of the steps", ylim=(0, 1))
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def _steps(
    axis, what: str, of: Mapping[str, Stages], steps: int, objectives: Sequence[str]
) -> None:
    alike: dict[tuple, list[str]] = {}
    for objective, stages in of.items():
        alike.setdefault(tuple(stages.items()), []).append(objective)
    for stages, names in alike.items():
        begun = {step: float(value) for step, value in stages if step < steps}
        colour = plots.RUN_COLOURS[objectives.index(names[0]) % len(plots.RUN_COLOURS)]
        at, value = [*begun, steps], [*begun.values()]
        axis.step(at, [*value, value[-1]], where="post", color=colour, label=", ".join(names))
    if all(isinstance(value, bool) for stages in of.values() for value in stages.values()):
        axis.set_yticks([0, 1], ["off", "on"])
        axis.set_ylim(-0.1, 1.1)
    else:
        axis.set_ylim(0, None)
    axis.set_title(what)
    if len(alike) > 1:
        axis.legend()


def _frozen_spans(stages: Stages, steps: int) -> dict[str, list[tuple[int, int]]]:
    """{regular expression: [(first step, steps)]} of when it freezes."""
    spans: dict[str, list[tuple[int, int]]] = {}
    ends = [*stages, steps][1:]
    for (start, patterns), end in zip(stages.items(), ends, strict=True):
        for pattern in patterns:
            if start < steps:
                spans.setdefault(pattern, []).append((start, min(end, steps) - start))
    return spans


def _frozen(axis, spans: Mapping[str, Sequence[tuple[int, int]]]) -> None:
    for row, (pattern, of) in enumerate(spans.items()):
        axis.broken_barh(of, (row - 0.35, 0.7), color="#b9cfea")
        axis.text(0.02, row, pattern, transform=axis.get_yaxis_transform(), va="center", fontsize=8)
    axis.set_yticks([])
    axis.set_ylim(len(spans) - 0.4, -0.6)
    axis.set_title("frozen parameters")


def section(record: Mapping[str, Any]) -> list[str]:
    """The parts of the section of a page; nothing for a run whose record says nothing."""
    figure = picture(record)
    if figure is None:
        return []
    return [
        html.figure(plots.svg(figure), "the run's schedule by step"),
        html.table(("what", "objective", "value"), rows(record), words=True),
        html.note(NOTE),
    ]
