"""The runs behind a table of a paper: a sweep of fine-tuning (`xlingjax finetune --task`) for each
row and encoder.

Each sweep is a process with a folder of its own, ENCODER/ROW, and runs no cell twice; so a table
that was stopped goes on with the same command.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlingjax.config.multi_task import merged
from xlingjax.data.labelled.task import TRAINED
from xlingjax.data.sources import split_list
from xlingjax.errors import UserError
from xlingjax.evaluation.tatoeba import chosen_layer
from xlingjax.tasks import task_named
from xlingjax.training.run_record import read_run_record, run_and_checkpoint
from xlingjax.workflows.bakeoff import slug
from xlingjax.workflows.cell import MULTI_TASK
from xlingjax.workflows.many import Command, Stop, run_all

TRAINING = {"strategy", "settings", "grid", "languages"}
"""What a row says of its training; retrieval and mining have none."""
FIELDS = {"task", "layer", "encoders"} | TRAINING


@dataclass(frozen=True)
class Table:
    rows: Mapping[str, Mapping[str, Any]]
    """Name -> "task" (SUITE/NAME; of the strategy multi_task a list) and, where they differ from
    those of `finetune --task`, "strategy", "settings" (gin files and NAME=VALUE, in the order they
    are read), "grid" ({macro: "A,B"}), "languages" (pivots or targets); of retrieval and mining
    "layer" alone, see `evaluate --layer`; "encoders": those that the row is for, default: all."""
    encoders: Mapping[str, str]
    """Name -> the pretrained run."""
    seeds: int = 1
    select: str | None = None
    """SELECT of every row; None: that of its strategy."""
    dtype: str | None = None
    """DTYPE of every row that trains and does not set its own; None: that of its encoder."""

    def __post_init__(self):
        for name, row in self.rows.items():
            try:
                # All rows before any is run: a fault of the last
                # would be told after the others' trainings.
                _require_sound(row)
            except UserError as fault:
                raise UserError(f"table, row {name!r}: {fault}") from None
        if not self.encoders or not isinstance(self.encoders, Mapping):
            raise UserError(
                f'ENCODERS={self.encoders!r}: give {{name: pretrained run}}, \'{{"base":'
                ' "runs/x"}\'',
            )
        if self.seeds < 1:
            raise UserError(f"SEEDS={self.seeds} must be at least 1")
        folders = [slug(f"{encoder} {row}") for encoder, row in self.cells()]
        if len({*folders}) != len(folders):
            raise UserError(
                f"table: two rows or encoders would share a folder: {', '.join(folders)};"
                " rename one",
            )

    def cells(self) -> list[tuple[str, str]]:
        """(encoder, row) of every sweep. Raises UserError where there is none."""
        cells = []
        named = set()
        for encoder in self.encoders:
            for name, row in self.rows.items():
                encoders = split_list(row.get("encoders"))
                named.update(encoders)
                if encoder in encoders or not row.get("encoders"):
                    cells.append((encoder, name))
        if not cells:
            raise UserError(
                f"ENCODERS has {', '.join(self.encoders)} and the rows are for"
                f" {', '.join(sorted(named)) or 'none'}: name those",
            )
        return cells

    def left_out(self) -> list[str]:
        """Rows whose encoders are not given."""
        run = {name for _, name in self.cells()}
        return [name for name in self.rows if name not in run]

    def folders(self, output: str | Path) -> list[Path]:
        """Of the sweeps."""
        return [
            _folder(output, encoder, name) for encoder, name in self.cells()
        ]

    def command(
        self,
        encoder: str,
        name: str,
        data: str | Path,
        output: str | Path,
    ) -> list[str]:
        """The command line of one sweep."""
        row = self.rows[name]
        tasks = split_list(row["task"])
        suite, _, task = tasks[0].partition("/")
        where = ["--from", self.encoders[encoder], "--data", str(data)]
        where += ["--to", str(_folder(output, encoder, name))]
        line = [sys.executable, "-m", "xlingjax"]
        if _is_trained(row):
            return [
                *line,
                "finetune",
                "--task",
                *tasks,
                *where,
                *self._training(row),
            ]
        line += ["evaluate", "--mixture", suite, "--tasks", task, *where]
        # Models differ in the languages that they know, and all are measured on what they do.
        line.append("--allow-missing")
        if "layer" in row:
            line += ["--layer", str(row["layer"])]
        return line

    def _training(self, row: Mapping[str, Any]) -> list[str]:
        """The options of a row's training."""
        words = ["--strategy", row.get("strategy", "transfer")]
        words += ["--seeds", str(self.seeds)]
        if row.get("languages"):
            words += ["--languages", *split_list(row["languages"])]
        if row.get("grid"):
            words.append("--grid")
            for macro, values in row["grid"].items():
                words.append(f"{macro}={values}")
        if self.select:
            words.append(f"--gin.SELECT={self.select!r}")
        # A grid may try precisions itself, and an option beside a grid is refused.
        if self.dtype and not _says(row, "DTYPE"):
            words.append(f"--gin.DTYPE={self.dtype}")
        # Last, so that the settings of a row are stronger than those of the table.
        for word in row.get("settings", ()):
            if "=" in word:
                words.append(f"--gin.{word}")
            else:
                words += ["--gin_file", word]
        return words


def _folder(output: str | Path, encoder: str, name: str) -> Path:
    return Path(output) / slug(encoder) / slug(name)


def _says(row: Mapping[str, Any], macro: str) -> bool:
    """Whether the settings or the grid of a row set a macro."""
    if macro in row.get("grid", {}):
        return True
    return any(word.startswith(f"{macro}=") for word in row.get("settings", ()))


def _is_trained(row: Mapping[str, Any]) -> bool:
    return task_named(split_list(row["task"])[0]).kind in TRAINED


def _require_sound(row: Mapping[str, Any]) -> None:
    """Raise UserError unless the fields of a row are known, fit its task and one another."""
    strange = sorted({*row} - FIELDS)
    if strange:
        raise UserError(
            f"{strange[0]!r} is not one of {', '.join(sorted(FIELDS))}",
        )
    names = row.get("task")
    tasks = []
    if isinstance(names, str):
        tasks = [names]
    elif isinstance(names, list | tuple):
        tasks = [*names]
    if not tasks or not all(isinstance(task, str) for task in tasks):
        raise UserError(
            'say which task it is: "task": "SUITE/NAME", or of multi_task a list of them',
        )
    if row.get("strategy") == MULTI_TASK:
        merged(tasks)
    elif not isinstance(names, str):
        raise UserError(
            f"several tasks ({', '.join(tasks)}) are for the strategy {MULTI_TASK}; name one",
        )
    task = task_named(tasks[0])
    if _is_trained(row):
        if "layer" in row:
            raise UserError(
                f'"layer" is of retrieval and mining, and {task.full_name} is fine-tuned; leave'
                " it out",
            )
        return
    given = sorted(field for field in TRAINING if row.get(field))
    if given:
        raise UserError(
            f"{task.full_name} is measured without training: leave {given[0]!r} out",
        )
    if "layer" in row and (type(row["layer"]) is not int or row["layer"] < 0):
        raise UserError(
            f'"layer": {row["layer"]!r} must be the number of a layer, 0 the embeddings',
        )


def _require_layers(table: Table) -> None:
    """Raise UserError where a row reads a layer that its encoder does not have; a model of Hugging
    Face is not looked at before its row."""
    for encoder, name in table.cells():
        source = table.encoders[encoder]
        layer = table.rows[name].get("layer")
        if layer is None or source.startswith("hf:"):
            continue
        model = read_run_record(run_and_checkpoint(source)[0])["model"]
        try:
            chosen_layer(layer, model["layers"])
        except UserError as fault:
            raise UserError(f"table: {encoder}, {name}: {fault}") from None


def run(
    table: Table,
    data: str | Path,
    output: str | Path,
    arguments: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> None:
    """Run the sweeps one after another. data: folder of the benchmarks' files. output: of the
    folders of the sweeps. arguments: given to every command (`--platform cpu`). Raises UserError
    naming the row that failed, before any of them where an encoder lacks the layer that a row
    reads; Stopped after SIGTERM, SIGINT or SIGHUP.
    """
    _require_layers(table)
    for name in table.left_out():
        say(
            "left out, since ENCODERS does not name"
            f" {' or '.join(split_list(table.rows[name]['encoders']))}: {name}",
        )
    stop = Stop("table")
    jobs = []
    for encoder, name in table.cells():
        line = [*table.command(encoder, name, data, output), *arguments]
        jobs.append(Command(f"{encoder}, {name}", line, stop, say))
    with stop.listen():
        run_all(jobs, say=say, stop=stop)
        # A signal that found the last sweep at its end is a request to stop all the same.
        stop.leave_if_requested()
