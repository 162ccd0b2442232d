"""The runs behind a table of a paper: a sweep of fine-tuning (`xlingjax finetune --task`) for each row and encoder.

Each sweep is a process with a folder of its own, ENCODER/ROW, and runs no cell twice; so a table that was stopped goes
on with the same command.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlingjax.bakeoff import slug
from xlingjax.data.benchmark import TRAINED
from xlingjax.errors import Stopped, UserError
from xlingjax.probes import words
from xlingjax.signals import asked_to_stop
from xlingjax.tasks import task_named

FIELDS = {"task", "strategy", "settings", "grid", "languages", "encoders"}


@dataclass(frozen=True)
class Table:
    rows: Mapping[str, Mapping[str, Any]]
    """Name -> "task" (SUITE/NAME) and, where they differ from those of `finetune --task`, "strategy", "settings" (gin
    files and NAME=VALUE, in the order they are read), "grid" ({macro: "A,B"}), "languages" (pivots or targets);
    "encoders": those that the row is for, default: all."""
    encoders: Mapping[str, str]
    """Name -> the pretrained run."""
    seeds: int = 1
    select: str | None = None
    """SELECT of every row; None: that of its strategy."""

    def __post_init__(self):
        for name, row in self.rows.items():
            if strange := sorted({*row} - FIELDS):
                raise UserError(f"table, row {name!r}: {strange[0]!r} is not one of {', '.join(sorted(FIELDS))}")
            if "task" not in row:
                raise UserError(f'table, row {name!r}: say which task it is: "task": "SUITE/NAME"')
        if not self.encoders or not isinstance(self.encoders, Mapping):
            raise UserError(f'ENCODERS={self.encoders!r}: give {{name: pretrained run}}, \'{{"base": "runs/x"}}\'')
        if self.seeds < 1:
            raise UserError(f"SEEDS={self.seeds} must be at least 1")
        folders = [slug(f"{encoder} {row}") for encoder, row in self.cells()]
        if len({*folders}) != len(folders):
            raise UserError(f"table: two rows or encoders would share a folder: {', '.join(folders)}; rename one")

    def cells(self) -> list[tuple[str, str]]:
        """(encoder, row) of every sweep. Raises UserError where there is none."""
        found = [
            (encoder, name)
            for encoder in self.encoders
            for name, row in self.rows.items()
            if encoder in words(row.get("encoders")) or not row.get("encoders")
        ]
        if not found:
            named = sorted({name for row in self.rows.values() for name in words(row.get("encoders"))})
            raise UserError(
                f"ENCODERS has {', '.join(self.encoders)} and the rows are for {', '.join(named) or 'none'}: name those"
            )
        return found

    def left_out(self) -> list[str]:
        """Rows whose encoders are not given."""
        run = {name for _, name in self.cells()}
        return [name for name in self.rows if name not in run]

    def folders(self, output: str | Path) -> list[Path]:
        """Of the sweeps."""
        return [Path(output) / slug(encoder) / slug(name) for encoder, name in self.cells()]

    def command(self, encoder: str, name: str, data: str | Path, output: str | Path) -> list[str]:
        """The command line of one sweep."""
        row = self.rows[name]
        suite, _, task = row["task"].partition("/")
        trained = task_named(row["task"]).kind in TRAINED
        what = ["finetune", "--task", row["task"]] if trained else ["evaluate", "--mixture", suite, "--tasks", task]
        line = [sys.executable, "-m", "xlingjax.cli", *what, "--from", self.encoders[encoder]]
        line += ["--data", str(data), "--to", str(Path(output) / slug(encoder) / slug(name))]
        if not trained:
            return [*line, "--allow-missing"]
        line += ["--strategy", row.get("strategy", "transfer"), "--seeds", str(self.seeds)]
        if row.get("languages"):
            line += ["--languages", *words(row["languages"])]
        if row.get("grid"):
            line += ["--grid", *(f"{macro}={values}" for macro, values in row["grid"].items())]
        line += [f"--gin.SELECT={self.select!r}"] if self.select else []
        for word in row.get("settings", ()):
            line += [f"--gin.{word}"] if "=" in word else ["--gin_file", word]
        return line


def run(
    table: Table,
    data: str | Path,
    output: str | Path,
    arguments: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> None:
    """Run the sweeps one after another. data: folder of the benchmarks' files. output: of the folders of the sweeps.
    arguments: given to every command (`--platform cpu`). Raises UserError naming the row that failed; Stopped after
    SIGTERM, SIGINT or SIGHUP."""
    for name in table.left_out():
        say(f"left out, since ENCODERS does not name {' or '.join(words(table.rows[name]['encoders']))}: {name}")
    stop = threading.Event()
    with asked_to_stop(stop, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        for encoder, name in table.cells():
            line = [*table.command(encoder, name, data, output), *arguments]
            say(f"{encoder}, {name}: {' '.join(line[3:])}")
            # In a group of its own: Ctrl-C reaches the table alone, which has its sweep save.
            child = subprocess.Popen(line, stdin=subprocess.DEVNULL, process_group=0)
            while child.poll() is None and not stop.wait(0.5):
                pass
            if child.poll() is None:
                child.terminate()
            status = child.wait()
            if stop.is_set():
                raise Stopped("table: stopped; the same command goes on")
            if status:
                raise UserError(f"table: {encoder}, {name} ended with status {status}; what it said stands above")
