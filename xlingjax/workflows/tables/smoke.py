"""A table whose jobs are small: the same rows, encoders and commands, of a few steps each."""

import dataclasses
from collections.abc import Collection, Sequence

from xlingjax.config.gin_files import macros_set
from xlingjax.data.text.sources import split_list
from xlingjax.workflows.tables.jobs import SWEEP
from xlingjax.workflows.tables.table import Row, Table, kind_of

SMALL = "runs/smoke.gin"
ROWS = 8  # of each set of a benchmark
BATCH = 4
WIDTHS = ("model.dim=32", "model.heads=2", "model.ffn=64")  # of what starts from random weights
STARTS = ("INIT_FROM", "INIT_ENCODER", "INIT_DECODER", "INIT_EMBEDDINGS")


def smoked(table: Table, devices: int) -> Table:
    """The table with `SMALL` behind the settings of all that trains, the first setting of each
    grid, one seed and the first `ROWS` of each set. A recipe's model has the shape of what it
    starts from, or `WIDTHS`. devices: of a training."""
    # Rows that every number of devices shares out.
    batch = -(-BATCH // devices) * devices
    decided = macros_set([SMALL])

    def small(row: str | Row) -> str | Row:
        if isinstance(row, str):
            return row
        row = {**row}
        if "task" in row:
            row["task"] = [f"{name}[:{ROWS}]" for name in split_list(row["task"])]
        if "grid" in row:
            grid = {name: values.partition(",")[0] for name, values in row["grid"].items()}
            row["grid"] = {name: value for name, value in grid.items() if name not in decided}
        if "recipe" in row or kind_of(row) == SWEEP:
            left = _without(row.get("settings", ()), decided)
            row["settings"] = [*left, SMALL, f"BATCH={batch}"]
        if "recipe" in row:
            row["settings"] += _shape(row)
        # There are few checkpoints, and what stands last counts.
        row["then"] = {
            label: f"{line} --last 2" if line.startswith("average ") else line
            for label, line in row.get("then", {}).items()
        }
        return {name: value for name, value in row.items() if value}

    return dataclasses.replace(
        table,
        rows={name: small(row) for name, row in table.rows.items()},
        encoders={name: small(one) for name, one in table.encoders.items()},
        settings=_without(table.settings, decided),
        seeds=1,
    )


def _without(settings: Sequence[str], decided: Collection[str]) -> list[str]:
    return [one for one in settings if one.partition("=")[0] not in decided]


def _shape(row: Row) -> Sequence[str]:
    # The model of a run has the run's shape anyway.
    if "MODEL" not in macros_set([row["recipe"]]):
        return ()
    if row.get("from"):
        return ["MODEL={from}"]
    # One that the table trains has `WIDTHS`, and is there when this is run.
    given = dict(one.partition("=")[::2] for one in row["settings"])
    starts = [given[name] for name in STARTS if given.get(name, "None") != "None"]
    return [f"MODEL={starts[0]}"] if starts else WIDTHS
