"""A cell is trained: begun, or gone on with where nothing that it began with has changed."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from xlingjax.config.recipe import bindings, read_recipe
from xlingjax.data.labelled.records import is_lost
from xlingjax.data.labelled.task import Task, edited, find, hashes, read
from xlingjax.errors import UserError
from xlingjax.runtime.files import write_json
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.runtime.records import read_record, read_text
from xlingjax.workflows.cell import READ, RECIPE, START, Cell, Request, files_read, values_of
from xlingjax.workflows.cell_examples import counted, lost_rows
from xlingjax.workflows.cell_mesh import rows_apart
from xlingjax.workflows.cell_recipe import recipe_of
from xlingjax.workflows.cell_scores import scores_of
from xlingjax.workflows.launch import launch
from xlingjax.workflows.many import difference
from xlingjax.workflows.scorecard.cells import SCORES, scores_in
from xlingjax.workflows.sharing import SharedJob

PREDICTED = ("dev", "test", "translate_dev", "translate_test")
"""Splits that are read to be predicted, not to be trained on."""


@dataclasses.dataclass(frozen=True)
class _Beginning:
    """What a training began with."""

    weights: str
    """Their hash."""
    files: Mapping[str, str]
    """{name: hash} of the benchmark's files."""


def has_begun(cell: Cell) -> bool:
    """Whether its training has begun, or ended and its run was deleted."""
    # Scores count, too: whoever deletes a finished run to save space keeps its result.
    for pattern in ("run/run.json", SCORES, f"*/{SCORES}"):
        if any(cell.folder.glob(pattern)):
            return True
    return False


@dataclasses.dataclass
class CellTraining(SharedJob):
    """A cell is trained and scored. Raises UserError where it was begun with something else."""

    request: Request
    cell: Cell
    strategy: Path
    more: Callable[[], Mapping[str, str]]
    """The macros that the sweep adds, known when the cell's turn has come."""
    start: str
    """The hash of the weights."""
    machine: RuntimeConfig
    say: Callable[[str], None]

    def __post_init__(self):
        self.name = str(self.cell.folder)
        self.folder = self.cell.folder

    def is_finished(self) -> bool:
        """Whether its scores are there. A cell that has not begun gets its recipe, which says what
        files it reads."""
        # Also of a finished cell, which may be that of other settings.
        recipe = self._write_recipe()
        bound = values_of(bindings([str(recipe)], ()))
        folders = _folders(self.request, self.cell)
        finished = all((folder / SCORES).is_file() for folder in folders.values())
        now = _Beginning(self.start, _hashes(self.request, bound))
        if finished:
            before = _finished_with(self.cell, folders[self.request.task], now)
        else:
            before = _begun_with(self.cell, now)
        # A run may be trained on under the same name.
        if before.weights != now.weights:
            raise UserError(
                f"{self.cell.folder} started from other weights than {self.request.source} has"
                " now: choose another --to, or delete that folder"
            )
        _refuse_edited(self.request, self.cell, before.files, now.files)
        return finished

    def _write_recipe(self) -> Path:
        """The recipe, which is the one that a begun cell has. Raises UserError where it is not."""
        text = recipe_of(self.request, self.cell, self.strategy, self.more())
        recipe = self.cell.folder / RECIPE
        if has_begun(self.cell) and recipe.is_file():
            _require_same_recipe(self.request, self.cell, text)
            return recipe
        # Settings and files that were refused bind nothing, so the recipe is written anew.
        self.cell.folder.mkdir(parents=True, exist_ok=True)
        recipe.write_text(text, encoding="utf-8")
        return recipe

    def run(self) -> int:
        recipe = self.cell.folder / RECIPE
        # From the file: it is what `read_recipe` below trains by.
        bound = values_of(bindings([str(recipe)], ()))
        # Before the training, so that a fault of a test set is not found only after it.
        _read_predicted(self.request, bound, self.say)
        for task in self.request.learnt:
            count = counted(self.request, task, bound)
            for line in (*lost_rows(task, count.lost), *count.unpaired):
                self.say(line)
        # Before the training too, so that an edit meanwhile shows when it is gone on with.
        files = _hashes(self.request, bound)
        write_json(self.cell.folder / READ, {START: self.start, **files})
        # Not in the recipe, which is the same on machines of other devices.
        copies = rows_apart(bound, jax.device_count(), jax.process_count())
        status = launch(
            read_recipe([str(recipe)], (f"MESH_DATA={copies}",)),
            self.cell.folder / "run",
            "finetune",
            self.machine,
        )
        # It is scored when it has gone on to its end.
        if status:
            return status
        # Scores come last, in one write: a cell that has them is finished.
        for task, folder in _folders(self.request, self.cell).items():
            folder.mkdir(exist_ok=True)
            scores = scores_of(self.request, self.cell, task, folder, bound, self.start)
            write_json(folder / SCORES, {**scores, "files": files})
            # Of test sets without answers there are none.
            figures = scores["test"]["means"] or scores["dev"]["means"]
            shown = ", ".join(f"{name} {value:.2f}" for name, value in figures.items())
            self.say(f"{folder}: {shown}")
        return 0


def _folders(request: Request, cell: Cell) -> dict[Task, Path]:
    """Where the scores of each task go: tasks that are trained together have folders of their
    own."""
    if not request.beside:
        return {request.task: cell.folder}
    return {task: cell.folder / task.name for task in request.tasks}


def _read_predicted(request: Request, bound: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Reads the sets that choose and test, and says which rows lack a text. Raises UserError for
    their faults."""
    for task in request.tasks:
        for split, language in files_read(task, request.data, bound):
            if split not in PREDICTED:
                continue
            files = find(task, request.data, split, language)
            if not files:
                continue
            records = read(task, request.data, split, language)
            lost = sum(is_lost(record) for record in records)
            if lost:
                say(
                    f"{files.paths[0]}, {language}: {lost:,} of {len(records):,} rows lack a text;"
                    " they are predicted without it"
                )


# ---- a cell that was begun -----------------------------------------------------------------------


def _require_same_recipe(request: Request, cell: Cell, text: str) -> None:
    """Raise UserError where the recipe of a cell is another than `text`."""
    recipe = cell.folder / RECIPE
    before = read_text(recipe, f"delete {cell.folder} and start again")
    if before == text:
        return
    if (cell.folder / READ).is_file():
        # An edited file changes what a recipe counts, so it is the better reason to give.
        files = _hashes(request, values_of(bindings([str(recipe)], ())))
        _refuse_edited(request, cell, _without_start(_read_before(cell)), files)
    raise UserError(
        f"{cell.folder} was begun with other settings ({_difference(before, text)}): give them"
        " again, choose another --to, or delete that folder"
    )


def _difference(before: str, now: str) -> str:
    """The first line of either recipe that the other has not."""
    theirs = _bindings_of(before)
    ours = _bindings_of(now)
    # The comment has a hash of all that is bound, by files that are included too.
    if ours == theirs:
        return "a gin file that it includes is another"
    return difference(theirs, ours)


def _bindings_of(text: str) -> list[str]:
    """The lines of a recipe without its comment."""
    return [line for line in text.splitlines() if not line.startswith("#")]


def _begun_with(cell: Cell, now: _Beginning) -> _Beginning:
    """What a training began with that has not ended; `now` where it has not begun."""
    if not has_begun(cell) or not (cell.folder / READ).is_file():
        return now
    record = _read_before(cell)
    return _Beginning(record.get(START, now.weights), _without_start(record))


def _finished_with(cell: Cell, folder: Path, now: _Beginning) -> _Beginning:
    """What a finished training began with, by its scores. Those that do not tell its files leave
    them to what it wrote when it began."""
    scores = scores_in(folder / SCORES)
    files = scores.get("files", _begun_with(cell, now).files)
    return _Beginning(scores["start"]["sha256"], files)


def _read_before(cell: Cell) -> dict[str, str]:
    remedy = f"delete {cell.folder}: it is trained anew"
    return read_record(cell.folder / READ, {str: str}, remedy)


def _without_start(record: Mapping[str, str]) -> dict[str, str]:
    return {name: digest for name, digest in record.items() if name != START}


def _hashes(request: Request, bound: Mapping[str, Any]) -> dict[str, str]:
    """{name: hash} of the benchmark's files that a cell reads."""
    digests = {}
    for task in request.tasks:
        digests |= hashes(task, request.data, files_read(task, request.data, bound))
    return digests


def _refuse_edited(
    request: Request, cell: Cell, before: Mapping[str, str], now: Mapping[str, str]
) -> None:
    """Raise UserError where a file that a cell was begun with is another now."""
    how = edited(before, now)
    if how:
        raise UserError(
            f"{cell.folder} was begun with other files: {how} below {request.data}: put it back,"
            " choose another --to, or delete that folder"
        )
