"""Averages over rows of the score card: of a suite's tasks (XTREME's, XGLUE's of understanding and
of generation), and by the number of training languages (Unicoder, Table 4)."""

import json
from collections.abc import Mapping, Sequence

import numpy as np

from xlingjax.data.labelled.task import TRAINED, Task
from xlingjax.evaluation.metrics.averages import groups, task_metrics
from xlingjax.tasks import suite_tasks, task_named
from xlingjax.workflows.scorecard.cells import TESTS, weights_of
from xlingjax.workflows.scorecard.rows import Row, policy, row_name, tell_apart

DEV_OF_OTHERS = ("xtreme/xquad",)  # dev of another data set (SQuAD's): not averaged


def overall_of(rows: Sequence[Row]) -> list[dict]:
    """Of each suite with an average of its own, [{"suite", "rows"}]: XTREME's, the mean of the
    tasks' means, and XGLUE's of understanding and of generation.

    A row for each strategy, variant and first weights with two tasks or more: "tasks" {full name:
    mean}, "averages" {name: {"mean", "tasks", "of", "official": whether it is of all tasks and
    languages, on test sets}} of what has two tasks or more. Retrieval and mining, which train
    nothing, count to `transfer` as measured on the weights it started from ("untrained").
    """
    overall = []
    for suite in ("xtreme", "xglue"):
        rows_of_suite = _overall_rows(suite, rows)
        if rows_of_suite:
            tell_apart(rows_of_suite)
            overall.append({"suite": suite, "rows": rows_of_suite})
    return overall


def _overall_rows(suite: str, rows: Sequence[Row]) -> list[Row]:
    tasks = {task.full_name: task for task in suite_tasks(suite)}
    # {(strategy, variant, weights) that an average is over: {task: its rows}}.
    members = {}
    # {weights: {task that trains nothing: its rows}}.
    untrained = {}
    for row in rows:
        name = row["task"]
        if name not in tasks or "mean" not in row["means"]:
            continue
        weights = weights_of(row["start"])
        key = (row["strategy"], json.dumps(row["variant"], sort_keys=True), weights)
        members.setdefault(key, {}).setdefault(name, []).append(row)
        if tasks[name].kind not in TRAINED:
            untrained.setdefault(weights, {}).setdefault(name, []).append(row)
    overall = []
    for (strategy, _, weights), by_task in members.items():
        if len(by_task) < 2:
            continue
        # XTREME counts retrieval and mining of the encoder itself beside tasks that are fine-tuned.
        more = untrained.get(weights, {}) if strategy == "transfer" else {}
        row = _overall(suite, list(tasks.values()), by_task | more)
        if row["averages"]:
            overall.append(row | {"untrained": sorted(more)})
    return overall


def _overall(suite: str, tasks: Sequence[Task], by_task: Mapping[str, Sequence[Row]]) -> Row:
    # A task of several rows counts with none of them: nothing says which.
    counted = {
        name: rows[0]
        for name, rows in by_task.items()
        if len(rows) == 1 and (name not in DEV_OF_OTHERS or rows[0]["split"] in TESTS)
    }
    averages = {}
    for part, members in (groups(tasks) if suite == "xglue" else {"average": tasks}).items():
        rows = [counted[task.full_name] for task in members if task.full_name in counted]
        if len(rows) < 2:
            continue
        averages[part] = {
            "mean": float(np.mean([row["means"]["mean"]["mean"] for row in rows])),
            "tasks": len(rows),
            "of": len(members),
            "official": len(rows) == len(members) and all(map(_is_whole, rows)),
        }
    first = next(iter(by_task.values()))[0]
    row = {name: first[name] for name in ("strategy", "variant", "start")}
    scores = {name: row["means"]["mean"]["mean"] for name, row in counted.items()}
    return row | {"settings": {}, "tasks": scores, "averages": averages}


def _is_whole(row: Row) -> bool:
    """Whether its mean is of a test set in all languages of the official average."""
    measured, official = row["averaged"]
    return measured == official and row["split"] in TESTS


def trained_on(row: Row) -> str:
    """ "de" of a pivot, "en+de" of a set of languages, "" of other rows."""
    return row["variant"].get("LANGUAGES") or row["variant"].get("PIVOT") or ""


def by_number(rows: Sequence[Row]) -> list[dict]:
    """The mean over the rows of as many training languages: "languages" (how many), "mean", "own",
    "rows" (names). Rows of another folder, strategy, policy or grid, from other weights or tested
    otherwise, have a line of their own. A pivot counts as a set of one, where no row is of that
    set. [] where no row is of a set of languages.

    own: in each test language the mean of the models that were trained on it, and their mean, as
    the paper takes it (Unicoder, Table 4: one language is translate-train); None: no model was
    trained on a test language.
    """
    if not any("LANGUAGES" in row["variant"] for row in rows):
        return []
    alike = {}
    # Sets first: a pivot counts where there is no set of its language alone.
    for row in sorted(rows, key=lambda row: "LANGUAGES" not in row["variant"]):
        if trained_on(row) and "mean" in row["means"]:
            alike.setdefault(_key(row), {}).setdefault(trained_on(row), row)
    lines = []
    for key, by_set in sorted(alike.items()):
        line = {
            "languages": key[0],
            "mean": float(np.mean([row["means"]["mean"]["mean"] for row in by_set.values()])),
            "own": _own(by_set),
            "rows": [row_name(row) for row in by_set.values()],
        }
        lines.append(line)
    return lines


def _key(row: Row) -> tuple:
    # A pivot is a set of one language.
    strategy = {"pivot": "multi_language"}.get(row["strategy"], row["strategy"])
    return (
        len(trained_on(row).split("+")),
        row.get("folder", ""),
        strategy,
        weights_of(row["start"]),
        row["split"],
        policy(row),
        ", ".join(sorted(row["settings"])),
        *sorted(row["examples"]),
    )


def _own(by_set: Mapping[str, Row]) -> float | None:
    by_language = {}
    for names, row in by_set.items():
        metrics = [row["by_language"][name] for name in task_metrics(task_named(row["task"]))]
        for language in {*metrics[0]} & {*names.split("+")}:
            score = np.mean([values[language]["mean"] for values in metrics])
            by_language.setdefault(language, []).append(float(score))
    if not by_language:
        return None
    return float(np.mean([np.mean(scores) for scores in by_language.values()]))
