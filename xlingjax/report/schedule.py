"""The course of a run, by its record before step 1: learning rate, turns, what changes."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from xlingjax.report import html
from xlingjax.report.drawing import Panel
from xlingjax.training.optimizer import OptimizerConfig, learning_rate_schedule
from xlingjax.training.stages import stage_of

ALWAYS = ("weight", "batch", "length", "masking rate", "sampling alpha")
"""Shown where they do not change, too, and before the others."""
TURNS = {
    "alternate": "one a step, in turn by their weights",
    "weighted": "one a step, drawn by their weights",
    "summed": "all in every step, losses times their weights",
}
Stages = dict[int, Any]


def values(record: Mapping) -> dict[str, dict[str, Stages]]:
    """{what: {objective: {first step: value}}} of run.json, or `run_record.schedule_record`."""
    settings = {"weight": {}}
    for objective, weight in record.get("weights", {}).items():
        settings["weight"][objective] = _stages(weight)
    for name, of_stage in record.get("stages", {}).items():
        objective, start = stage_of(name)
        for what, value in _flat(of_stage).items():
            settings.setdefault(what, {}).setdefault(objective, {})[start] = value
    # Frozen parameters are the optimizer's and hold for all objectives.
    frozen = _stages(record.get("optimizer", {}).get("frozen", []))
    if any(frozen.values()):
        settings["frozen"] = {"all": frozen}
    changes = {}
    for what, by_objective in settings.items():
        if by_objective:
            changes[what] = {name: _changes(stages) for name, stages in by_objective.items()}
    return changes


def _stages(value: Any) -> Stages:
    """A constant as stages, and the keys of JSON as steps."""
    if not isinstance(value, Mapping):
        return {0: value}
    return {int(step): of_step for step, of_step in value.items()}


def _changes(stages: Stages) -> Stages:
    changes = {}
    for before, step in pairwise([None, *sorted(stages)]):
        if before is None or stages[step] != stages[before]:
            changes[step] = stages[step]
    return changes


def _flat(settings: Mapping, prefix: str = "") -> dict:
    flat = {}
    for key, value in settings.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{name} ")
        else:
            flat[name] = value
    return flat


def rows(record: Mapping) -> list[tuple[str, str, str]]:
    """(what, objective, its values by step) of all that changes and of what one asks for first."""
    rows = []
    optimizer = record.get("optimizer")
    if optimizer:
        config = OptimizerConfig(**optimizer)
        rate = html.render("rate.txt", of=config, steps=record["steps"])
        rows.append(("learning rate", "all", rate))
    # One objective has every step, and nothing to take turns with.
    if len(record.get("weights", {})) > 1 and "schedule" in record:
        rows.append(("objectives", "all", TURNS[record["schedule"]]))
    settings = values(record)
    first = [what for what in ALWAYS if what in settings]
    for what in dict.fromkeys([*first, *settings]):
        alike = {}
        for objective, stages in settings[what].items():
            # An option that is not set says nothing to a reader.
            if stages != {0: None} and (len(stages) > 1 or what in (*ALWAYS, "frozen")):
                alike.setdefault(_stated(stages), []).append(objective)
        rows += [(what, ", ".join(objectives), text) for text, objectives in alike.items()]
    return rows


def panels(record: Mapping, tables: Mapping) -> list[Panel]:
    """By step: the numbers that change, and what each text's share of the rows is; with them the
    learning rate. None where nothing changes. tables: see `build.sampling_tables`."""
    steps = record["steps"]
    drawn = {}
    for what, by_objective in values(record).items():
        numbers = {
            name: stages
            for name, stages in by_objective.items()
            if len(stages) > 1 and all(type(value) in (int, float) for value in stages.values())
        }
        drawn |= {what: numbers} if numbers else {}
    for name, texts in tables.items():
        objective, start = stage_of(name)
        shares = drawn.setdefault(f"{objective}: shares of rows", {})
        given = {text["name"]: text["share"] for text in texts}
        # A text that comes later has none before, one that goes has none from there on.
        for text in {**shares, **given}:
            shares.setdefault(text, {0: 0.0})[start] = given.get(text, 0.0)
    drawn = {
        what: curves
        for what, curves in drawn.items()
        if any(len(_changes(stages)) > 1 for stages in curves.values())
    }
    if not drawn:
        return []
    found = []
    if record.get("optimizer"):
        rate = learning_rate_schedule(OptimizerConfig(**record["optimizer"]), steps)
        at = np.arange(0, steps + 1, max(1, steps // 200))
        found.append(Panel("learning rate", curves={"all": (at.tolist(), jax.vmap(rate)(at))}))
    for what, curves in drawn.items():
        panel = Panel(what)
        for name, stages in curves.items():
            starts = sorted(stages)
            ends = [*starts[1:], steps]
            panel.curves[name] = (
                [step for both in zip(starts, ends, strict=True) for step in both],
                [stages[start] for start in starts for _ in (0, 1)],
            )
        found.append(panel)
    return found


def _stated(stages: Stages) -> str:
    parts = []
    for step, value in stages.items():
        text = ", ".join(value) or "none" if isinstance(value, list) else html.number(value)
        parts.append(f"from step {step:,}: {text}" if parts else text)
    return "; ".join(parts)
