"""The commands of a paper's table: trainings by recipes, sweeps, measurements, and commands on what
was trained."""

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xlingjax.runtime.lock import is_held
from xlingjax.runtime.records import read_text
from xlingjax.workflows.jobs.many import AT_WORK, LOCK, Command, Say, Stop
from xlingjax.workflows.jobs.recipe_run import RecipeRun, recipe_in

RECIPE = "recipe"  # a training by a recipe
SWEEP = "sweep"
MEASURE = "measure"
THEN = "then"  # a command on a run that a table has trained, or on an encoder
ON_A_MACHINE = ("evaluate", "finetune", "generate", "mine", "pretrain", "translate")
"""Verbs that take --platform and the like."""


@dataclass(frozen=True)
class TableJob:
    """One command of a table."""

    name: str
    folder: Path  # of its own, but of kind "then" that of its row
    line: Sequence[str]  # the whole command line; behind `python -m xlingjax` the verb
    kind: str
    needs: Sequence[str] = ()  # names of the jobs that come first
    encoder: str = ""  # whose row it is, or which is trained; "": the row is of none
    row: str = ""  # "": an encoder is trained
    printed: Path | None = None
    """Of kind "then": the file of what it printed, which says that it is done."""

    @property
    def verb(self) -> str:
        return self.line[3]

    def recipe(self) -> tuple[list[str], list[str]]:
        """(gin files, NAME=VALUE overrides) of its command line."""
        return recipe_in(self.line)

    def as_typed(self) -> str:
        """Its command line, as a user would type it."""
        return f"$ {shlex.join(('xlingjax', *self.line[3:]))}"


def command_of(job: TableJob, arguments: Sequence[str], stop: Stop, say: Say) -> Command:
    """arguments: of the machine, for every verb that runs on one."""
    line = [*job.line]
    if job.kind != THEN or job.verb in ON_A_MACHINE:
        line += arguments
    shared = {"folder": job.folder, "needs": job.needs}
    if job.kind == RECIPE:
        return RecipeRun(job.name, line, stop, say, **shared, workdir=job.folder)
    if job.kind == THEN:
        assert job.printed is not None
        return Then(job.name, line, stop, say, job.printed.with_suffix(".log"), **shared, job=job)
    if job.kind == SWEEP:
        return Sweep(job.name, line, stop, say, needs=job.needs, cells=job.folder / "cells")
    # It knows itself which of its cells are done.
    return Command(job.name, line, stop, say, **shared)


@dataclass(kw_only=True)
class Sweep(Command):
    """A sweep of which other commands may do cells: this one leaves theirs to them."""

    cells: Path
    passed = (AT_WORK,)

    def __post_init__(self):
        self.line = [*self.line, "--leave"]
        self._was_looked_into = False

    def run(self) -> int:
        # Another look takes a process.
        if self._was_looked_into and any(map(is_held, self.cells.rglob(LOCK))):
            return AT_WORK
        self._was_looked_into = True
        return super().run()


@dataclass(kw_only=True)
class Then(Command):
    """A command whose printed text is kept, below the command line itself."""

    job: TableJob

    def is_finished(self) -> bool:
        printed = printed_by(self.job)
        # With other words it is another command, and is run anew.
        return printed is not None and printed[0] == self.job.as_typed()

    def run(self) -> int:
        assert self.job.printed is not None and self.log is not None
        self.job.folder.mkdir(parents=True, exist_ok=True)
        words = self.job.line
        if self.job.verb == "average":
            # It writes to an empty folder alone, and one that was cut short has left some.
            left = Path(words[words.index("--to") + 1])
            if self.job.folder in left.parents:
                shutil.rmtree(left, ignore_errors=True)
        status = super().run()
        text = self.log.read_text(encoding="utf-8", errors="replace")
        # The log becomes the result only now, when the command has ended well.
        self.log.write_text(f"{self.job.as_typed()}\n{text}", encoding="utf-8")
        self.log.replace(self.job.printed)
        self.say(text.rstrip())
        return status


def printed_by(job: TableJob) -> tuple[str, str] | None:
    """(command line, what it printed) of a job of kind "then"; None: it has not ended."""
    if job.printed is None or not job.printed.is_file():
        return None
    text = read_text(job.printed, "delete the folder of that row, and start again")
    command, _, printed = text.partition("\n")
    return command, printed.rstrip()
