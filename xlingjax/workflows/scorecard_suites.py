"""The averages of a suite on the score card: of XTREME over its tasks, of XGLUE over understanding
and over generation."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlingjax.data.labelled.task import TRAINED, Task
from xlingjax.evaluation.metrics.averages import groups
from xlingjax.tasks import suite_tasks
from xlingjax.workflows.scorecard_cells import TESTS, weights_of
from xlingjax.workflows.scorecard_names import tell_apart
from xlingjax.workflows.scorecard_rows import Row

DEV_OF_OTHERS = {"xtreme/xquad": "English SQuAD's"}
"""Tasks whose dev set is of another data set; on it they do not count in an average."""


def overall_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of each suite with an average of its own, [{"suite", "rows"}]: XTREME's, the mean of the
    tasks' means, and XGLUE's of understanding and of generation.

    A row for each strategy, variant and first weights with two tasks or more: "tasks" {full name:
    mean}, "averages" {name: {"mean", "tasks", "of", "lacks": why it is no official average, in
    words; none: it is}} of what has two tasks or more. Retrieval and mining, which train nothing,
    count to `transfer` as measured on the weights it started from ("untrained": their names).
    """
    overall = []
    # The others have no average of their own.
    for suite in ("xtreme", "xglue"):
        rows_of_suite = _overall_rows(suite, rows)
        if rows_of_suite:
            tell_apart(rows_of_suite)
            overall.append({"suite": suite, "rows": rows_of_suite})
    return overall


def _overall_rows(suite: str, rows: Sequence[Row]) -> list[Row]:
    tasks = {task.full_name: task for task in suite_tasks(suite)}
    # {what an average is over: {task: its rows}}.
    members: dict[tuple, dict[str, list[Row]]] = {}
    for row in rows:
        if row["task"] not in tasks or "mean" not in row["means"]:
            continue
        variant = json.dumps(row["variant"], sort_keys=True)
        key = (row["strategy"], variant, weights_of(row["start"]))
        members.setdefault(key, {}).setdefault(row["task"], []).append(row)
    # {weights: {task: its rows}}.
    untrained: dict[str, dict[str, list[Row]]] = {}
    # XTREME counts retrieval and mining of the encoder
    # itself beside tasks that are fine-tuned from it.
    for (_, _, weights), by_task in members.items():
        for name, rows_of_task in by_task.items():
            if tasks[name].kind not in TRAINED:
                untrained.setdefault(weights, {}).setdefault(name, []).extend(rows_of_task)
    overall = []
    for (strategy, _, weights), by_task in members.items():
        # One task is its own mean.
        if len(by_task) < 2:
            continue
        more = {}
        if strategy == "transfer":
            more = untrained.get(weights, {})
        row = _overall(suite, list(tasks.values()), by_task | more)
        row["untrained"] = sorted(more)
        if row["averages"]:
            overall.append(row)
    return overall


def _overall(suite: str, tasks: Sequence[Task], by_task: Mapping[str, Sequence[Row]]) -> Row:
    # A task of several rows counts with none of them: nothing says which.
    scores = {}
    for name, rows in by_task.items():
        if len(rows) == 1 and not _on_dev_of_others(rows[0]):
            scores[name] = rows[0]["means"]["mean"]["mean"]
    parts = {"average": tasks}
    if suite == "xglue":
        parts = groups(tasks)
    averages = {}
    for part, members in parts.items():
        values = [scores[task.full_name] for task in members if task.full_name in scores]
        if len(values) < 2:
            continue
        lacks = []
        if len(values) < len(members):
            lacks.append(f"{len(values)} of {len(members)} tasks")
        for task in members:
            lacks += _lacks(task, by_task.get(task.full_name, ()))
        averages[part] = {
            "mean": float(np.mean(values)),
            "tasks": len(values),
            "of": len(members),
            "lacks": lacks,
        }
    first = next(iter(by_task.values()))[0]
    row = {name: first[name] for name in ("strategy", "variant", "start")}
    return row | {"settings": {}, "tasks": scores, "averages": averages}


def _on_dev_of_others(row: Row) -> bool:
    return row["task"] in DEV_OF_OTHERS and row["split"] not in TESTS


def _lacks(task: Task, rows: Sequence[Row]) -> list[str]:
    """What keeps an average with the rows of this task from being official, in words."""
    if not rows:
        return []
    if len(rows) > 1:
        return [f"{task.name} has {len(rows)} rows, none of which counts"]
    split = rows[0]["split"]
    if _on_dev_of_others(rows[0]):
        owner = DEV_OF_OTHERS[task.full_name]
        return [f"{task.name} left out: tested on {split}, which is {owner} and not its own"]
    lacks = []
    here, official = rows[0]["averaged"]
    if here < official:
        lacks.append(f"{here} of {official} languages of {task.name}")
    if split not in TESTS:
        lacks.append(f"{task.name} tested on {split}")
    return lacks
