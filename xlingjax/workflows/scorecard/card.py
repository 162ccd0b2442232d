"""The score card: runs' scores by task, strategy and language, means over seeds and suites; as
Markdown, LaTeX and JSON."""

import json
import os
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import pandas as pd

from xlingjax.evaluation.metrics.averages import task_metrics
from xlingjax.evaluation.metrics.registry import METRICS
from xlingjax.report import html
from xlingjax.runtime.files import write_text
from xlingjax.tasks import task_named
from xlingjax.workflows.scorecard.averages import overall_of
from xlingjax.workflows.scorecard.cells import read_scores
from xlingjax.workflows.scorecard.rows import rows_of, tell_apart
from xlingjax.workflows.scorecard.tables import Grid, sections_of


def show(*folders: str | Path, output: str | Path = "") -> str:
    """Writes a score card of folders of cells, of one into itself; returns Markdown and path."""
    made = card(*folders)
    paths = write(made, Path(output or folders[0]))
    return f"{markdown(made)}\nscore card: {', '.join(map(str, paths))}"


def write(card: dict, folder: Path) -> list[Path]:
    """card.json, card.md and card.tex in `folder`."""
    texts = {
        "card.json": json.dumps(card, indent=1, ensure_ascii=False) + "\n",
        "card.md": markdown(card),
        "card.tex": latex(card),
    }
    written = []
    for name, text in texts.items():
        write_text(folder / name, text)
        written.append(folder / name)
    return written


def markdown(card: dict) -> str:
    return html.render("scorecard.md", sections=sections_of(card))


def latex(card: dict) -> str:
    """Tables for `booktabs`."""
    return html.render("scorecard.tex", sections=sections_of(card), tabular=_tabular)


def _tabular(title: str, grid: Grid) -> str:
    # pandas escapes what is in the table alone.
    caption = re.sub(r"([&%$#_{}])", r"\\\1", f"{title}, {grid.caption}")
    columns = "l" + "r" * len(grid.texts.columns)
    texts = grid.texts.rename_axis(index=None)
    text = texts.to_latex(caption=caption, column_format=columns, escape=True)
    return text.replace(r"\begin{table}", r"\begin{table}\centering\small", 1)


def card(*folders: str | Path) -> dict:
    """{"folders", "overall": see `overall_of`, "tables": a table for each task}; a table: task,
    metrics with signatures, rows, papers, "mean": what its mean is of. Seeds of several folders are
    not put together: each folder has rows of its own. Raises UserError as `read_scores`."""
    rows = []
    for folder, name in zip(folders, _short_names(folders), strict=True):
        rows += [row | {"folder": name} for row in rows_of(read_scores(folder))]
    tables = []
    for name in sorted({row["task"] for row in rows}):
        tables.append(_table(name, [row for row in rows if row["task"] == name]))
    return {
        "folders": [str(folder) for folder in folders],
        "overall": overall_of(rows),
        "tables": tables,
    }


def _table(name: str, rows: Sequence[dict]) -> dict:
    tell_apart(rows)
    metrics = dict.fromkeys(metric for row in rows for metric in row["by_language"])
    task = task_named(name)
    mean = "mean"
    # Papers give one figure where a task's mean is of several: it is named beside theirs.
    figure = ""
    if len(task_metrics(task)) > 1:
        mean = "mean of F1 and EM"
        figure = task.metrics[0]
    return {
        "task": name,
        # Figures without it are not comparable: BLEU and F1 have many definitions.
        "metrics": {metric: METRICS[metric].signature for metric in metrics},
        "rows": rows,
        "mean": mean,
        "papers": [paper | {"figure": figure} for paper in _published(name)],
    }


def _published(task: str) -> list[dict]:
    """What papers print of a task: means over languages, of F1 and EM the first. Where a mean is of
    other languages than the task's, its source says so."""
    file = resources.files("xlingjax.workflows.scorecard").joinpath("published.tsv")
    with file.open(encoding="utf-8") as lines:
        papers = pd.read_csv(lines, sep="\t")
    return papers[papers["task"] == task].drop(columns="task").to_dict("records")


def _short_names(folders: Sequence[str | Path]) -> list[str]:
    """What tells the folders apart; nothing of a single one."""
    if len(folders) < 2:
        return [""] * len(folders)
    paths = [os.path.abspath(folder) for folder in folders]
    above = os.path.commonpath(paths)
    return [os.path.relpath(path, above) for path in paths]
