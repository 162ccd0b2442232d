"""A training by a recipe as a job: a command in a workdir, which holds its settings at once."""

import dataclasses
import re
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from xlingjax.config.recipe import read_recipe
from xlingjax.errors import UserError
from xlingjax.runtime.records import read_text
from xlingjax.training.run_record import read_result
from xlingjax.workflows.jobs.many import Command, difference

SETTINGS = "recipe.settings"  # in the workdir: the operative configuration
# gin has one configuration per process, and jobs are looked at in threads.
_GIN = threading.Lock()


def slug(name: str) -> str:
    """A name as a folder is called."""
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").lower()


def finished(workdir: Path) -> bool:
    """Whether a run has ended; one that was stopped has a result, too."""
    return read_result(workdir).get("exit_reason") == "finished"


def command_line(verb: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "xlingjax", verb, *words]


def recipe_in(line: Sequence[str]) -> tuple[list[str], list[str]]:
    """(gin files, NAME=VALUE overrides) of a command line, as its process will read them."""
    files = [following for word, following in pairwise(line) if word == "--gin-file"]
    overrides = [word.removeprefix("--gin.") for word in line if word.startswith("--gin.")]
    return files, overrides


def settings_of(line: Sequence[str]) -> str:
    """The operative configuration of a command line: a gin file may have been edited meanwhile."""
    with _GIN:
        return read_recipe(*recipe_in(line)).config


@dataclasses.dataclass(kw_only=True)
class RecipeRun(Command):
    workdir: Path
    encoder: "RecipeRun | None" = None
    """The run that it starts from, done first: with another of these, this is another run."""
    settings: str = ""  # known once `is_finished` was called

    def is_finished(self) -> bool:
        """Raises UserError where the workdir is of a run of other settings."""
        self.settings = settings_of(self.line)
        if self.encoder is not None:
            self.settings = self.encoder.settings + self.settings
        record = self.workdir / SETTINGS
        if record.is_file():
            remedy = "choose another folder, or delete that one"
            written = read_text(record, remedy)
            if written != self.settings:
                lines = difference(written.splitlines(), self.settings.splitlines())
                raise UserError(
                    f"{self.stop.verb}: {self.workdir} was run with other settings ({lines}):"
                    f" {remedy}"
                )
        return finished(self.workdir)

    def run(self) -> int:
        self.workdir.mkdir(parents=True, exist_ok=True)
        # Before the start, so that a run that was cut short is told from one with other settings.
        (self.workdir / SETTINGS).write_text(self.settings, encoding="utf-8")
        return super().run()
