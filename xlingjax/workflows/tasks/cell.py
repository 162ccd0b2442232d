"""A cell is trained and scored: begun, or gone on with where nothing that it began with has
changed."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import jax

from xlingjax.config.recipe import bindings, read_recipe
from xlingjax.data.labelled.task import Task, edited, hashes
from xlingjax.errors import UserError
from xlingjax.runtime.files import write_json
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.runtime.records import read_record, read_text
from xlingjax.workflows.jobs.many import Job, Say, difference
from xlingjax.workflows.launch import launch
from xlingjax.workflows.scorecard.cells import SCORES
from xlingjax.workflows.tasks.recipe import recipe_of, rows_apart
from xlingjax.workflows.tasks.request import (
    READ,
    RECIPE,
    START,
    Cell,
    Request,
    files_read,
    values_of,
)
from xlingjax.workflows.tasks.scores import score_cell
from xlingjax.workflows.tasks.sets import counted, trained_on_tests


def has_begun(cell: Cell) -> bool:
    """Whether its training has begun, or ended and its run was deleted."""
    # Scores count, too: whoever deletes a finished run to save space keeps its result.
    return (cell.folder / "run/run.json").is_file() or any(cell.folder.rglob(SCORES))


@dataclasses.dataclass
class CellTraining(Job):
    """Raises UserError where the cell was begun with something else."""

    request: Request
    cell: Cell
    strategy: Path
    more: Callable[[], Mapping[str, str]]
    """The macros that the sweep adds, known when the cell's turn has come."""
    start: str  # the hash of the weights
    machine: RuntimeConfig
    say: Say

    def __post_init__(self):
        self.name = str(self.cell.folder)
        self.folder = self.cell.folder
        self._recipe = self.folder / RECIPE
        self._read = self.folder / READ

    def is_finished(self) -> bool:
        """Whether its scores are there. A cell that has not begun gets its recipe, which says what
        files it reads."""
        text = recipe_of(self.request, self.cell, self.strategy, self.more())
        # Also of a finished cell, which may be that of other settings.
        if has_begun(self.cell) and self._recipe.is_file():
            self._require_same(text)
        else:
            # Settings and files that were refused bind nothing, so the recipe is written anew.
            self.folder.mkdir(parents=True, exist_ok=True)
            self._recipe.write_text(text, encoding="utf-8")
        return all((folder / SCORES).is_file() for folder in self._folders().values())

    def run(self) -> int:
        # From the file: it is what `read_recipe` below trains by.
        bound = self._bound()
        for task in self.request.learnt:
            for line in counted(self.request, task, bound).notes:
                self.say(line)
        for file, message in trained_on_tests(self.request, bound):
            self.say(f"warning: {file}: {message}")
        # Before the training too, so that an edit meanwhile shows when it is gone on with.
        write_json(self._read, {START: self.start, **self._hashes()})
        # Not in the recipe, which is the same on machines of other devices.
        copies = rows_apart(bound, jax.device_count(), jax.process_count())
        recipe = read_recipe([str(self._recipe)], (f"MESH_DATA={copies}",))
        status = launch(recipe, self.folder / "run", "finetune", self.machine)
        # It is scored when it has gone on to its end.
        if status:
            return status
        for task, folder in self._folders().items():
            scores = score_cell(self.request, self.cell, task, folder, bound, self.start)
            # Of test sets without answers there are none.
            figures = scores["test"]["means"] or scores["dev"]["means"]
            shown = ", ".join(f"{name} {value:.2f}" for name, value in figures.items())
            self.say(f"{folder}: {shown}")
        return 0

    def _folders(self) -> dict[Task, Path]:
        """Where the scores of each task go: tasks that are trained together have folders of their
        own."""
        if not self.request.beside:
            return {self.request.task: self.folder}
        return {task: self.folder / task.name for task in self.request.tasks}

    def _bound(self) -> dict:
        return values_of(bindings([str(self._recipe)], ()))

    def _hashes(self) -> dict[str, str]:
        """{name: hash} of the benchmark's files that the cell reads."""
        bound = self._bound()
        digests = {}
        for task in self.request.tasks:
            digests |= hashes(task, self.request.data, files_read(task, self.request.data, bound))
        return digests

    def _require_same(self, text: str) -> None:
        """Raise UserError where the cell began with another recipe than `text`, with other files or
        from other weights."""
        written = read_text(self._recipe, f"delete {self.folder} and start again")
        before = {}
        if self._read.is_file():
            remedy = f"delete {self.folder}: it is trained anew"
            before = read_record(self._read, {str: str}, remedy)
        weights = before.pop(START, self.start)
        # An edited file changes what a recipe counts, so it is the better reason to give.
        how = edited(before, self._hashes()) if before else ""
        other = ""
        if how:
            other = f"files: {how} below {self.request.data}"
        elif written != text:
            # The comment has a hash of all that is bound, by files that are included too.
            theirs, ours = (
                [line for line in recipe.splitlines() if not line.startswith("#")]
                for recipe in (written, text)
            )
            lines = difference(theirs, ours)
            if ours == theirs:
                lines = "a gin file that it includes is another"
            other = f"settings ({lines})"
        elif weights != self.start:
            # A run may be trained on under the same name.
            other = f"weights than {self.request.source} has now"
        if other:
            raise UserError(
                f"{self.folder} was begun with other {other}: give the old again, choose another"
                " --to, or delete that folder"
            )
