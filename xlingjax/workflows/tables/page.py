"""What came of a table of a paper: the score card of its sweeps, the figures of the trainings that
its rows are, and what the commands on them printed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from xlingjax.report import html
from xlingjax.runtime.files import write_json, write_text
from xlingjax.training.run_record import read_result
from xlingjax.training.tracker import evaluations_at, scalars
from xlingjax.workflows.jobs.recipe_run import finished
from xlingjax.workflows.scorecard import card
from xlingjax.workflows.tables.jobs import RECIPE, THEN, TableJob, printed_by
from xlingjax.workflows.tables.table import Table

PAGE = "table.md"


def show(table: Table, data: str | Path, output: str | Path) -> str:
    """Writes the score card of the sweeps, and of the other rows table.md and table.json, into
    `output`; returns all of it as Markdown, and where it is."""
    parts = []
    folders = table.folders(output)
    if folders:
        parts.append(card.show(*folders, output=output))
    jobs = [job for job in table.jobs(data, output) if job.row]
    trained = [job for job in jobs if job.kind == RECIPE]
    commands = [job for job in jobs if job.kind == THEN]
    if trained or commands:
        rows = [_figures(job) for job in trained if finished(job.folder)]
        text = _markdown(rows, commands)
        folder = Path(output)
        page = folder / PAGE
        write_text(page, text)
        record = page.with_suffix(".json")
        write_json(record, rows)
        parts.append(f"{text}\nrows: {page}, {record}")
    return "\n".join(parts)


def _figures(job: TableJob) -> dict[str, Any]:
    """{"row", "encoder", "step", "by", "figures": {EVALUATOR/NAME: value}} of a training: of the
    checkpoint that is the best by `by`, "": of the last."""
    result = read_result(job.folder)
    step = result.get("steps")
    # Several metrics have each a best of its own: the first is the table's.
    by = next(iter(result.get("best", {})), "")
    if by:
        step = result["best"][by]["step"]
    figures = {}
    # They are figures of a table, so no line is passed over.
    for name, values in evaluations_at(job.folder, step).items():
        for key, value in scalars(values).items():
            figures[f"{name}/{key}"] = value
    return {"row": job.row, "encoder": job.encoder, "step": step, "by": by, "figures": figures}


def _markdown(rows: Sequence[Mapping[str, Any]], commands: Sequence[TableJob]) -> str:
    """Checkpoint and figures of each row, and what the commands printed."""
    texts = []
    for row in rows:
        which = f"the best by {row['by']}" if row["by"] else "the last"
        figures = {name: f"{value:.4g}" for name, value in row["figures"].items()}
        names = {"row": row["row"], "encoder": row["encoder"] or "–"}
        texts.append(names | {"checkpoint": f"{row['step']}, {which}"} | figures)
    return html.render(
        "table.md",
        rows=pd.DataFrame(texts).fillna("–"),
        printed={job.name: printed for job in commands if (printed := printed_by(job))},
    )
