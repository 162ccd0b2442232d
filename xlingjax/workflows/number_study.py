"""The score by the number of training languages (Unicoder, Table 4), of the rows of a task on the
score card."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlingjax.evaluation.metrics.averages import task_metrics
from xlingjax.tasks import task_named
from xlingjax.workflows.scorecard_cells import weights_of
from xlingjax.workflows.scorecard_names import policy, said

CAPTION = (
    "mean score by number of training languages, over all test languages and over those trained on"
)


def trained_on(row: dict[str, Any]) -> str:
    """ "de" of a pivot, "en+de" of a set of languages, "" of other rows."""
    return row["variant"].get("LANGUAGES") or row["variant"].get("PIVOT") or ""


def by_number(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mean over the rows of as many training languages: "languages" (how many), "mean", "own",
    "rows" (names).
    Rows of another folder or strategy, from other weights, chosen or tested otherwise, have a line
    of their own, and so have those that another grid was tried for: a row's settings are its own
    best of the grid. A pivot counts as a set of one, where there is no row of that set. [] where no
    row is of a set of languages.

    own: in each test language the mean of the models that were trained on it, and their mean, as
    the paper takes it (Unicoder, Table 4: one language is translate-train); None: no model was
    trained on a test language.
    """
    if not any("LANGUAGES" in row["variant"] for row in rows):
        return []
    groups: dict[tuple, list[dict[str, Any]]] = {}
    # Sets first: a pivot counts where there is no set of its language alone.
    for row in sorted(rows, key=lambda row: "LANGUAGES" not in row["variant"]):
        # Rows without one mean (unequal seeds, no answers) cannot be averaged.
        if not trained_on(row) or "mean" not in row["means"]:
            continue
        group = groups.setdefault(_key(row), [])
        if "LANGUAGES" in row["variant"] or trained_on(row) not in map(trained_on, group):
            group.append(row)
    lines = []
    for key, group in sorted(groups.items()):
        line = {
            "languages": key[0],
            "mean": float(np.mean([row["means"]["mean"]["mean"] for row in group])),
            "own": _own(group),
            "rows": [said(row) for row in group],
        }
        lines.append(line)
    return lines


def _key(row: dict[str, Any]) -> tuple:
    strategy = row["strategy"]
    # A pivot is a set of one language.
    if strategy == "pivot":
        strategy = "multi_language"
    grid = ", ".join(sorted(row["settings"]))
    return (
        # First, since the lines are sorted by it.
        len(trained_on(row).split("+")),
        row.get("folder", ""),
        strategy,
        weights_of(row["start"]),
        row["split"],
        policy(row),
        grid,
        *sorted(row["examples"]),
    )


def _own(rows: Sequence[dict[str, Any]]) -> float | None:
    by_language: dict[str, list[float]] = {}
    for row in rows:
        metrics = []
        for name in task_metrics(task_named(row["task"])):
            metrics.append(row["by_language"][name])
        for language in {*metrics[0]} & {*trained_on(row).split("+")}:
            score = float(np.mean([values[language]["mean"] for values in metrics]))
            by_language.setdefault(language, []).append(score)
    if not by_language:
        return None
    return float(np.mean([np.mean(scores) for scores in by_language.values()]))


def grid(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """(head, rows) of the table of `by_number`; no rows: there is none."""
    cells = []
    for line in by_number(rows):
        means = [_number(line["mean"]), _number(line["own"])]
        cells.append([str(line["languages"]), *means, ", ".join(line["rows"])])
    return ["languages", "mean", "in the languages trained on", "of the rows"], cells


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    # z: no -0.0.
    return f"{value:z.1f}"
