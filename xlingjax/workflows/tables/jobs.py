"""The jobs of a table of a paper, and which of them are done: trainings by recipes, sweeps,
measurements, and commands on what was trained."""

import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from xlingjax.config.recipe import read_recipe
from xlingjax.errors import UserError
from xlingjax.runtime.records import read_text
from xlingjax.workflows.jobs.many import Command, Stop, difference
from xlingjax.workflows.jobs.recipe_run import finished

PRETRAIN = "pretrain"
FINETUNE_RECIPE = "finetune-recipe"
SWEEP = "sweep"
MEASURE = "measure"
THEN = "then"
"""A command on a run that a table has trained, or on an encoder."""
TRAINED_BY_RECIPE = (PRETRAIN, FINETUNE_RECIPE)
SETTINGS = "table.settings"
"""Beside a run that a table trained: the operative configuration of its recipe."""
ON_A_MACHINE = ("evaluate", "finetune", "generate", "mine", "pretrain", "translate")
"""Verbs that take --platform and the like."""


@dataclass(frozen=True)
class TableJob:
    """One command of a table."""

    name: str
    folder: Path
    """Of its own, but of kind "then" that of its row."""
    line: tuple[str, ...]
    """The whole command line; behind `python -m xlingjax` the verb."""
    kind: str
    needs: tuple[str, ...] = ()
    """Names of the jobs that come first."""
    encoder: str = ""
    """Whose row it is, or which is trained; "": the row is of none."""
    row: str = ""
    """ "": an encoder is trained."""
    printed: Path | None = None
    """Of kind "then": the file of what it printed, which says that it is done."""

    @property
    def verb(self) -> str:
        return self.line[3]

    @property
    def log(self) -> Path | None:
        """What a command of kind "then" has printed so far."""
        if self.printed is None:
            return None
        return self.printed.with_suffix(".log")

    def recipe(self) -> tuple[list[str], list[str]]:
        """(gin files, NAME=VALUE overrides) of its command line."""
        files = []
        overrides = []
        for word, following in pairwise([*self.line, ""]):
            if word == "--gin_file":
                files.append(following)
            elif word.startswith("--gin."):
                overrides.append(word.removeprefix("--gin."))
        return files, overrides


def command_line(verb: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "xlingjax", verb, *words)


def command_of(
    job: TableJob, arguments: Sequence[str], stop: Stop, say: Callable[[str], None]
) -> Command:
    """arguments: of the machine, for every verb that runs on one."""
    line = [*job.line]
    if job.kind != THEN or job.verb in ON_A_MACHINE:
        line += arguments
    if job.kind in TRAINED_BY_RECIPE:
        return RecipeRun(job.name, line, stop, say, job=job)
    if job.kind == THEN:
        return Then(job.name, line, stop, say, job.log, job=job)
    # Sweeps and measurements know themselves which of their cells are done.
    return Command(job.name, line, stop, say)


_DELETE = "delete the folder of that row, and start again"
# gin has one configuration per process, and jobs may be looked at in threads.
_GIN = threading.Lock()


@dataclass(kw_only=True)
class RecipeRun(Command):
    """A training by a recipe, whose settings stand in its folder from its start on."""

    job: TableJob

    def is_finished(self) -> bool:
        """Raises UserError where the folder holds a finished run of other settings."""
        if not finished(self.job.folder):
            return False
        settings = self._settings()
        written = settings
        if self._record.is_file():
            written = read_text(self._record, _DELETE)
        if written == settings:
            return True
        lines = difference(written.splitlines(), settings.splitlines())
        raise UserError(
            f"table: {self.job.folder} was trained with other settings ({lines}): choose another"
            " --to, or delete that folder and those of the rows that start from it"
        )

    def run(self) -> int:
        settings = self._settings()
        self.job.folder.mkdir(parents=True, exist_ok=True)
        # Before the start: a run that was cut short has its settings, too.
        self._record.write_text(settings, encoding="utf-8")
        return super().run()

    @property
    def _record(self) -> Path:
        return self.job.folder / SETTINGS

    def _settings(self) -> str:
        # The operative configuration and not the words: a gin file may have been edited meanwhile.
        with _GIN:
            return read_recipe(*self.job.recipe()).config


@dataclass(kw_only=True)
class Then(Command):
    """A command whose printed text is kept, below the command line itself."""

    job: TableJob

    def is_finished(self) -> bool:
        printed = printed_by(self.job)
        # With other words it is another command, and is run anew.
        return printed is not None and printed[0] == as_typed(self.job)

    def run(self) -> int:
        assert self.job.printed is not None
        assert self.log is not None
        self.job.folder.mkdir(parents=True, exist_ok=True)
        self._clear()
        status = super().run()
        text = self.log.read_text(encoding="utf-8", errors="replace")
        # The log becomes the result only now, when the command has ended well.
        self.log.write_text(f"{as_typed(self.job)}\n{text}", encoding="utf-8")
        self.log.replace(self.job.printed)
        self.say(text.rstrip())
        return status

    def _clear(self) -> None:
        """Deletes what an average that was cut short has left in the row's folder: it writes to an
        empty folder alone."""
        words = self.job.line
        if self.job.verb != "average" or "--output" not in words[:-1]:
            return
        left = Path(words[words.index("--output") + 1])
        if left.is_dir() and self.job.folder in left.parents:
            shutil.rmtree(left)


def as_typed(job: TableJob) -> str:
    """The command line of a job, as a user would type it."""
    return f"$ {shlex.join(('xlingjax', *job.line[3:]))}"


def printed_by(job: TableJob) -> tuple[str, str] | None:
    """(command line, what it printed) of a job of kind "then"; None: it has not ended."""
    if job.printed is None or not job.printed.is_file():
        return None
    text = read_text(job.printed, _DELETE)
    command, _, printed = text.partition("\n")
    return command, printed.rstrip()
