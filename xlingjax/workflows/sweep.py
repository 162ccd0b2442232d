"""`xlingjax finetune --task`: one task, one strategy, several seeds and settings from one
checkpoint, and their table.

A cell is one training: its recipe, its run, what the checkpoint that dev chose predicts for the
test sets, its scores. A finished cell is not run again, so a sweep that was stopped goes on with
the same command, and sweeps of several tasks and strategies may share a folder.
"""

import dataclasses
import functools
import hashlib
import itertools
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xlingjax.config.gin_files import find_gin
from xlingjax.config.recipe import Recipe, config_lines, read_recipe
from xlingjax.config.shared_training import require_alike
from xlingjax.data.labelled.task import Task, find, read
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError
from xlingjax.evaluation.task.tested import chosen_languages
from xlingjax.inference.run import open_run
from xlingjax.model.params import flattened
from xlingjax.preprocessors.beside import standing_beside
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.runtime.records import read_text
from xlingjax.training.first_state import require_labels
from xlingjax.workflows.baselines import BASELINES, score_baseline
from xlingjax.workflows.cell import (
    LABELLED,
    MEASURED,
    MULTI_TASK,
    RECIPE,
    TEACHER,
    Cell,
    Request,
    files_read,
    macros_given,
    values_of,
)
from xlingjax.workflows.cell_mesh import idle, rows_apart
from xlingjax.workflows.cell_recipe import recipe_of
from xlingjax.workflows.cell_training import PREDICTED, CellTraining
from xlingjax.workflows.sharing import share_all
from xlingjax.workflows.strategies import TAUGHT, is_tested, variants
from xlingjax.workflows.teacher import label


def require_folder(output: str) -> None:
    """Raise UserError where `output` is a file."""
    if Path(output).exists() and not Path(output).is_dir():
        raise UserError(f"--to {output}: it is a file; give a folder")


def check(
    request: Request, say: Callable[[str], None] = print, devices: int | None = None, jobs: int = 1
) -> None:
    """Raise UserError for all that can be known before any training of the sweep: settings, files,
    their faults, batches that no devices share out. devices: that a cell trains on, None: all of
    this process; jobs: cells side by side."""
    require_folder(request.output)
    # A baseline trains nothing, and its faults are said when it is scored.
    if request.strategy in BASELINES:
        return
    if devices is None:
        devices = jax.device_count()
    told: set[str] = set()
    sound: Sound = set()
    for cell in planned_cells(request, say):
        rows_apart(cell.bound, devices, jax.process_count())
        line = idle(cell.bound, devices, jobs)
        if line and line not in told:
            say(f"{request.called}: {line}")
            told.add(line)
        require_sets(request, cell, sound, told, say)


Sound = set[tuple[Task, str, str]]
"""(task, split, language) of sets that were read."""


@dataclasses.dataclass(frozen=True)
class PlannedCell:
    """A cell before it is trained; one for all seeds, which bind the same files."""

    name: str
    recipe: Recipe
    bound: Mapping[str, Any]
    """{macro: value}"""
    reads: str
    """What it is trained on, and how many sets choose and test."""


def planned_cells(request: Request, say: Callable[[str], None] = print) -> Iterator[PlannedCell]:
    """The cells of a sweep. What a student is trained on is there only when the teacher has
    labelled it: of these the teacher's. Raises UserError for all that their recipes are refused
    for."""
    plan = _planned(request, say)
    if plan.taught:
        say(
            f"{request.called}, {request.strategy}: students are trained on what the teacher"
            " labels, which is not counted here"
        )
        teacher = dataclasses.replace(request, strategy=TEACHER)
        yield from planned_cells(teacher, say)
        return
    for variant, settings in itertools.product(plan.variants, _grid(request)):
        cell = Cell.of(request.output, request.task, plan.strategy.stem, variant, settings, 0)
        text = recipe_of(request, cell, plan.strategy, {})
        recipe, bound = _tried(text)
        folder = Path(request.output).absolute() / "cells"
        yield PlannedCell(
            str(cell.folder.parent.relative_to(folder)),
            recipe,
            bound,
            _read_by(request, text, bound),
        )


def require_sets(
    request: Request,
    cell: PlannedCell,
    sound: Sound,
    told: set[str],
    say: Callable[[str], None] = print,
) -> None:
    """Raise UserError for a fault of a set that chooses or tests, and where what stands beside it
    does not correspond. sound, told: what was read and said, which are added to: cells of a sweep
    share most of them."""
    for task in request.tasks:
        _require_readable(task, request.data, cell.bound, sound)
        if cell.bound["CLASSIFIER"] == "plug_in":
            _require_beside(request, task, cell.bound, sound, told, say)


def _read_by(request: Request, recipe: str, bound: Mapping[str, Any]) -> str:
    """What a cell reads, in words."""
    # Its first line counts the examples.
    _, _, counted = recipe.splitlines()[0].partition(", seed 0: ")
    trained, _, _ = counted.partition("; ")
    sets = []
    for split_macro, languages_macro in MEASURED:
        split = bound[split_macro]
        count = 0
        for task in request.tasks:
            languages = split_list(bound[languages_macro])
            found = chosen_languages(task, request.data, split, languages)
            count += len(found)
        sets.append(f"{split} of {count}")
    return f"{trained}, {', '.join(sets)}"


def run(
    request: Request, machine: RuntimeConfig, say: Callable[[str], None] = print, wait: bool = True
) -> int:
    """Run the cells that are missing, but for those that other processes are at. The exit status:
    0, that of a training that was asked to stop, or, unless it is to wait for the others, `AT_WORK`
    (see `share_all`). Raises UserError; `check` raises most of them before any training."""
    require_folder(request.output)
    if request.strategy in BASELINES:
        score_baseline(request, say)
        return 0
    # `check` has said what is passed over.
    plan = _planned(request, say=lambda line: None)
    grid = _grid(request)
    count = len(plan.variants) * len(grid) * request.seeds
    say(f"{request.called}, {plan.strategy.stem}: {count} cells")
    if plan.random:
        start = "random"
    else:
        # By their content: a run's folder may be trained on under the same name.
        start = parameters_hash(open_run(request.source).params)
    if plan.taught:
        # A teacher labels what the student of its seed and settings trains on.
        # Teachers are cells of `transfer`: those that are finished are not trained again.
        status = run(dataclasses.replace(request, strategy=TEACHER), machine, say, wait)
        if status:
            return status
    jobs = []
    for variant, settings, seed in itertools.product(plan.variants, grid, range(request.seeds)):
        cell = Cell.of(request.output, request.task, plan.strategy.stem, variant, settings, seed)
        # Called when the cell's turn has come: labelling predicts whole training sets.
        more = functools.partial(_added, request, plan, cell)
        jobs.append(CellTraining(request, cell, plan.strategy, more, start, machine, say))
    return share_all(jobs, say, wait)


def _added(request: Request, plan: "_Plan", cell: Cell) -> dict[str, str]:
    """The macros that a cell has beside those of its request: the sets that a teacher labels. Its
    seed and settings are the student's."""
    if not plan.taught:
        return {}
    teacher = Cell.of(request.output, request.task, TEACHER, {}, cell.settings, cell.seed)
    return {LABELLED: repr(str(label(request, teacher, cell)))}


def _grid(request: Request) -> list[dict[str, str]]:
    """Every combination of the settings."""
    settings = []
    for values in itertools.product(*request.grid.values()):
        settings.append(dict(zip(request.grid, values, strict=True)))
    return settings


# ---- what the strategy needs ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Plan:
    strategy: Path
    variants: list[dict[str, str]]
    taught: bool
    """A teacher labels the translations first."""
    random: bool
    """It starts from random weights."""


def _planned(request: Request, say: Callable[[str], None]) -> _Plan:
    """What the strategy's gin file asks for. Raises UserError where it does not suit the tasks."""
    if request.strategy == MULTI_TASK and not request.beside:
        raise UserError(
            f"--strategy {request.strategy}: several tasks are for {MULTI_TASK}, which needs two or"
            " more"
        )
    if request.shares:
        require_alike(request.tasks)
    strategy = _strategy_file(request.strategy)
    text = read_text(strategy, "give a gin file, in UTF-8")
    # Read as text: it cannot be bound before a cell fills in what it leaves open.
    required = {*re.findall(r"^([A-Z_]+)\s*=\s*%gin\.REQUIRED", text, re.MULTILINE)}
    taught = LABELLED in required
    if taught and request.task.kind not in TAUGHT:
        raise UserError(
            f"--strategy {request.strategy}: a teacher labels classes, ranks and tags, and"
            f" {request.task.full_name} is of {request.task.kind}; multi_language trains on the"
            " translations' own answers"
        )
    if request.shares and (taught or "TARGET" in required):
        raise UserError(
            f"--strategy {request.strategy}: its trainings are of one task each; name one"
        )
    over = variants(
        request.strategy,
        required,
        request.learnt,
        request.data,
        request.languages,
        macros_given(request),
    )
    if "TARGET" in required and request.allow_missing and not request.languages:
        over = _tested_targets(request, strategy.stem, over, say)
    if request.shares:
        together = "+".join(task.name for task in request.tasks)
        over = [{"TASKS": together, **variant} for variant in over]
    random = "train.init_from = None" in text
    if not random:
        for task in request.tasks:
            head = None
            # Each of several tasks has a head of its own.
            if len(request.learnt) > 1:
                head = task.name
            require_labels(request.source, request.source, task.labels, head)
    return _Plan(strategy, over, taught, random)


def _strategy_file(name: str) -> Path:
    """The gin file of a strategy. Raises UserError where there is none of that name."""
    # A user's own file is a strategy as ours are.
    strategy = find_gin(f"strategies/{name}.gin") or find_gin(name)
    if strategy is None:
        folder = find_gin("strategies/transfer.gin").parent
        known = sorted(path.stem for path in folder.glob("*.gin"))
        raise UserError(
            f"--strategy {name}: there are {', '.join([*known, *BASELINES])}, or name a gin file"
        )
    return strategy


def _tested_targets(
    request: Request, strategy: str, over: list[dict[str, str]], say: Callable[[str], None]
) -> list[dict[str, str]]:
    """The variants whose target has a dev or test set. A training whose target has neither would
    choose and show nothing. Raises UserError where there is none."""
    tested = []
    passed_over = []
    for variant in over:
        target = variant["TARGET"]
        if is_tested(request.task, request.data, target):
            tested.append(variant)
        else:
            passed_over.append(target)
    if passed_over:
        say(
            f"{request.called}, {strategy}: passed over, without a dev or test set:"
            f" {', '.join(passed_over)}"
        )
    if not tested:
        raise UserError(f"{request.task.full_name}: {strategy} has no language to be tested in")
    return tested


# ---- what is checked before any training ---------------------------------------------------------


def _tried(text: str) -> tuple[Recipe, dict[str, Any]]:
    """(the recipe of this text, {macro: value} of it). Raises UserError for what it is refused
    for."""
    # Elsewhere than in its cell, so that a refused sweep leaves no folder behind.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / RECIPE
        file.write_text(text, encoding="utf-8")
        # Builds all parts and opens nothing, so types and missing bindings show.
        recipe = read_recipe([str(file)], ())
        recipe.require_decay()
        # Of what it has just bound: to read it again takes as long as all the rest.
        return recipe, values_of(config_lines())


def _require_readable(task: Task, data: str, bound: Mapping[str, Any], sound: Sound) -> None:
    """Raise UserError for a fault of a set that chooses or tests. sound: the sets that were read,
    which is added to: cells of a sweep share most of them."""
    for split, language in files_read(task, data, bound):
        # What is trained on was read when its examples were counted.
        if split not in PREDICTED or (task, split, language) in sound:
            continue
        if find(task, data, split, language):
            read(task, data, split, language)
        sound.add((task, split, language))


def _require_beside(
    request: Request,
    task: Task,
    bound: Mapping[str, Any],
    sound: Sound,
    told: set[str],
    say: Callable[[str], None],
) -> None:
    """Raise UserError where what a plugged-in model reads beside the examples does not correspond
    to them. sound, told: what was read and the lines that were said, which are added to: cells
    share most sets."""
    data = request.data
    for split_macro, languages_macro in MEASURED:
        split = bound[split_macro]
        for language in chosen_languages(task, data, split, split_list(bound[languages_macro])):
            read_beside = (task, f"beside {split}", language)
            if read_beside in sound:
                continue
            found = standing_beside(task, data, split, language)
            sound.add(read_beside)
            if found.unpaired and found.unpaired not in told:
                say(found.unpaired)
            told.add(found.unpaired)


def parameters_hash(params: Any) -> str:
    """sha256 (hex) of all parameters, in the order of their names."""
    digest = hashlib.sha256()
    for name, value in sorted(flattened(params).items()):
        # With the names, or two tables of one shape could change places.
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(jax.device_get(value)).tobytes())
    return digest.hexdigest()
