"""The score card: the scores of many runs as tables by task, strategy and language, means over
seeds; and of a suite its average."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.evaluation.metrics.averages import task_metrics
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.tasks import task_named
from xlingjax.workflows.published import PAPERS
from xlingjax.workflows.scorecard_cells import read_scores
from xlingjax.workflows.scorecard_names import tell_apart
from xlingjax.workflows.scorecard_rows import rows_of
from xlingjax.workflows.scorecard_suites import overall_of


def card(*folders: str | Path) -> dict[str, Any]:
    """{"folders", "overall": see `overall_of`, "tables": a table for each task}; a table: task,
    metrics with signatures, rows, papers, "mean": what its mean is of. Seeds of several folders are
    not put together: each folder has rows of its own. Raises UserError as `read_scores`.
    """
    rows = []
    for folder, name in zip(folders, _short_names(folders), strict=True):
        rows += [row | {"folder": name} for row in rows_of(read_scores(folder))]
    tables: dict[str, dict[str, Any]] = {}
    for row in rows:
        table = tables.setdefault(row["task"], {"task": row["task"], "metrics": {}, "rows": []})
        for name in row["by_language"]:
            # Figures without it are not comparable: BLEU and F1 have many definitions.
            table["metrics"][name] = METRICS[name].signature
        table["rows"].append(row)
    for name, table in tables.items():
        tell_apart(table["rows"])
        task = task_named(name)
        table["mean"] = "mean"
        # Papers give one figure where a task's mean is of several: it is named beside theirs.
        figure = ""
        if len(task_metrics(task)) > 1:
            table["mean"] = "mean of F1 and EM"
            figure = METRICS[task.metrics[0]].name
        table["papers"] = _papers(name, figure)
    return {
        "folders": [str(folder) for folder in folders],
        "overall": overall_of(rows),
        "tables": [tables[name] for name in sorted(tables)],
    }


def _short_names(folders: Sequence[str | Path]) -> list[str]:
    """What tells the folders apart; nothing of a single one."""
    if len(folders) < 2:
        return [""] * len(folders)
    paths = [os.path.abspath(folder) for folder in folders]
    above = os.path.commonpath(paths)
    return [os.path.relpath(path, above) for path in paths]


def _papers(name: str, figure: str) -> list[dict[str, Any]]:
    """The published figures of a task."""
    papers = []
    for task, model, strategy, mean, source in PAPERS:
        if task != name:
            continue
        paper = {
            "model": model,
            "strategy": strategy,
            "mean": mean,
            "source": source,
            "figure": figure,
        }
        papers.append(paper)
    return papers
