"""`xlingjax finetune --task`: one task, one strategy, several seeds and settings from one
checkpoint, and their table.

A cell is one training: its recipe, its run, what the checkpoint that dev chose predicts for the
test sets, its scores. A finished cell is not run again, so a sweep that was stopped goes on with
the same command, and sweeps of several tasks and strategies may share a folder.
"""

import dataclasses
import functools
import itertools
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax

from xlingjax.config.gin_files import find_gin
from xlingjax.config.recipe import Recipe, bindings, config_lines, read_recipe
from xlingjax.config.shared_training import require_alike
from xlingjax.data.labelled.records import is_lost
from xlingjax.data.labelled.task import Task, find, languages_present, read
from xlingjax.data.labelled.teacher import labelled_path, write_labelled
from xlingjax.errors import UserError, meant
from xlingjax.inference.run import open_run, parameters_hash
from xlingjax.model.partition import mesh_of_all
from xlingjax.preprocessors.beside import standing_beside
from xlingjax.runtime.machine import RuntimeConfig
from xlingjax.runtime.records import read_record, read_text
from xlingjax.training.initialisation import require_labels
from xlingjax.workflows.jobs.many import Say, run_all
from xlingjax.workflows.scorecard.cells import SCORES
from xlingjax.workflows.tasks.baselines import BASELINES, score_baseline
from xlingjax.workflows.tasks.cell import CellTraining, has_begun
from xlingjax.workflows.tasks.recipe import recipe_of, rows_apart
from xlingjax.workflows.tasks.request import (
    LABELLED,
    MULTI_TASK,
    RECIPE,
    TEACHER,
    TRAINED_ON,
    Bound,
    Cell,
    Request,
    files_read,
    macros_given,
    measured,
    reading_of,
    values_of,
)
from xlingjax.workflows.tasks.scores import predictor
from xlingjax.workflows.tasks.strategies import TAUGHT, Unsuited, is_tested, variants

Variants = list[dict[str, str]]


def require_folder(output: str) -> None:
    """Raise UserError where `output` is a file."""
    if Path(output).exists() and not Path(output).is_dir():
        raise UserError(f"--to {output}: it is a file; give a folder")


def run(request: Request, machine: RuntimeConfig, say: Say = print, wait: bool = True) -> int:
    """Run the cells that are missing, but for those that other processes are at. The exit status:
    0, that of a training that was asked to stop, or, unless it is to wait for the others, `AT_WORK`
    (see `run_all`). Raises UserError; `check` raises most of them before any training."""
    require_folder(request.output)
    if request.strategy in BASELINES:
        score_baseline(request, say)
        return 0
    # `check` has said what is passed over.
    plan = _planned(request, say=lambda line: None)
    settings = itertools.product(plan.variants, _grid(request), range(request.seeds))
    cells = [Cell.of(request, plan.strategy.stem, *of_cell) for of_cell in settings]
    say(f"{request.called}, {plan.strategy.stem}: {len(cells)} cells")
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
    for cell in cells:
        # Called when the cell's turn has come: labelling predicts whole training sets.
        more = functools.partial(_added, request, plan, cell)
        jobs.append(CellTraining(request, cell, plan.strategy, more, start, machine, say))
    return run_all(jobs, say=say, wait=wait)


def _added(request: Request, plan: "_Plan", cell: Cell) -> dict[str, str]:
    """The macros that a cell has beside those of its request: the sets that a teacher labels. Its
    seed and settings are the student's."""
    if not plan.taught:
        return {}
    teacher = Cell.of(request, TEACHER, {}, cell.settings, cell.seed)
    return {LABELLED: repr(str(label(request, teacher, cell)))}


def label(request: Request, teacher: Cell, cell: Cell) -> Path:
    """The folder of the translated training sets as the teacher's model labels them."""
    folder = cell.folder / "labelled"
    task = request.task
    # Labelled anew, a training would read other examples.
    if folder.is_dir() and has_begun(cell):
        return folder
    remedy = "delete it and start again: it is measured anew"
    scores = read_record(teacher.folder / SCORES, {"select": {"step": int}}, remedy)
    # The checkpoint that the teacher's scores are of.
    run = f"{teacher.folder / 'run'}@{scores['select']['step']}"
    trained = open_run(run, mesh=mesh_of_all())
    reading = reading_of(values_of(bindings([str(teacher.folder / RECIPE)], ())))
    predict_records = predictor(trained, task, request.data, reading)
    languages = languages_present(task, request.data, "translate_train")
    # Whole or not at all: a student would train on what a stopped teacher left.
    partial = folder.with_name("labelled.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for language in languages:
        records = read(task, request.data, "translate_train", language)
        labelled = []
        predicted = predict_records(records, "translate_train", language)
        for record, output in zip(records, predicted, strict=True):
            answer = {"tags": tuple(output)} if task.kind == "tagging" else {"label": output}
            labelled.append(dataclasses.replace(record, **answer))
        write_labelled(labelled_path(partial, task, language), labelled)
    shutil.rmtree(folder, ignore_errors=True)  # of a cell that was not trained
    partial.rename(folder)
    return folder


def _grid(request: Request) -> Variants:
    """Every combination of the settings."""
    combinations = itertools.product(*request.grid.values())
    return [dict(zip(request.grid, values, strict=True)) for values in combinations]


# ---- before any training -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class PlannedCell:
    """A cell before it is trained; one for all seeds, which bind the same files."""

    name: str
    recipe: Recipe
    bound: Bound  # {macro: value}


def check(request: Request, say: Say = print, devices: int | None = None) -> list[PlannedCell]:
    """The cells of a sweep. Raises UserError for all that can be known before any training:
    settings, files, their faults, batches that no devices share out. devices: that a cell trains
    on, None: all of this process."""
    require_folder(request.output)
    # A baseline trains nothing, and its faults are said when it is scored.
    if request.strategy in BASELINES:
        _, kinds = BASELINES[request.strategy]
        if request.task.kind not in kinds:
            raise Unsuited(
                f"{request.called}: {request.strategy} is for {', '.join(kinds)}, and this is"
                f" {request.task.kind}"
            )
        return []
    said = set()

    def say_once(line: str) -> None:
        if line and line not in said:
            say(line)
        said.add(line)

    # What was read: cells of a sweep share most of it.
    sound = set()
    cells = []
    for cell in _planned_cells(request, say_once):
        rows_apart(cell.bound, devices or jax.device_count(), jax.process_count())
        for task in request.tasks:
            _require_sets(request, task, cell.bound, sound, say_once)
        cells.append(cell)
    return cells


def _planned_cells(request: Request, say: Say) -> Iterator[PlannedCell]:
    """What a student is trained on is there only when the teacher has
    labelled it: of these the teacher's. Raises UserError for all that their recipes are refused
    for."""
    plan = _planned(request, say)
    if plan.taught:
        say(
            f"{request.called}, {request.strategy}: students are trained on what the teacher"
            " labels, which is not counted here"
        )
        yield from _planned_cells(dataclasses.replace(request, strategy=TEACHER), say)
        return
    for variant, settings in itertools.product(plan.variants, _grid(request)):
        cell = Cell.of(request, plan.strategy.stem, variant, settings, 0)
        text = recipe_of(request, cell, plan.strategy, {})
        # Elsewhere than in its cell, so that a refused sweep leaves no folder behind.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / RECIPE
            file.write_text(text, encoding="utf-8")
            # Builds all parts and opens nothing, so types and missing bindings show.
            recipe = read_recipe([str(file)], ())
            recipe.require_decay()
            # Of what it has just bound: to read it again takes as long as all the rest.
            bound = values_of(config_lines())
        name = cell.folder.parent.relative_to(Path(request.output).absolute() / "cells")
        yield PlannedCell(str(name), recipe, bound)


def _require_sets(
    request: Request, task: Task, bound: Bound, sound: set[tuple[Task, str, str]], say: Say
) -> None:
    """Raise UserError for a fault of a set that chooses or tests, and where what a plugged-in model
    reads beside it does not correspond. sound: the sets that were read, which is added to."""
    for split, language in files_read(task, request.data, bound):
        files = find(task, request.data, split, language)
        # What is trained on was read when its examples were counted.
        if split in TRAINED_ON or not files or (task, split, language) in sound:
            continue
        records = read(task, request.data, split, language)
        sound.add((task, split, language))
        if lost := sum(map(is_lost, records)):
            say(
                f"{files.paths[0]}, {language}: {lost:,} of {len(records):,} rows lack a text; they"
                " are predicted without it"
            )
    if bound["CLASSIFIER"] != "plug_in":
        return
    for split, languages in measured(task, request.data, bound):
        for language in languages:
            part = (task, f"beside {split}", language)
            if part not in sound:
                sound.add(part)
                _, unpaired = standing_beside(task, request.data, split, language)
                if unpaired:
                    say(unpaired)


# ---- what the strategy needs ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Plan:
    strategy: Path
    variants: Variants
    taught: bool  # a teacher labels the translations first
    random: bool  # it starts from random weights


def _planned(request: Request, say: Say) -> _Plan:
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
    translated = languages_present(request.task, request.data, "translate_train")
    if taught and not translated:
        raise Unsuited(
            f"{request.task.full_name}: no translated training sets below {request.data} for the"
            " teacher to label"
        )
    if taught and request.task.kind not in TAUGHT:
        raise Unsuited(
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
    if "TARGET" in required and not request.languages:
        over = _tested_targets(request, strategy.stem, over, say)
    if request.shares:
        together = "+".join(task.name for task in request.tasks)
        over = [{"TASKS": together, **variant} for variant in over]
    random = "train.init_from = None" in text
    if not random:
        for task in request.tasks:
            # Each of several tasks has a head of its own.
            head = task.name if len(request.learnt) > 1 else None
            require_labels(request.source, request.source, task.labels, head)
    return _Plan(strategy, over, taught, random)


def _strategy_file(name: str) -> Path:
    """The gin file of a strategy. Raises UserError where there is none of that name."""
    # A user's own file is a strategy as ours are.
    strategy = find_gin(f"strategies/{name}.gin") or find_gin(name)
    if strategy is None:
        folder = find_gin("strategies/transfer.gin").parent
        known = sorted(path.stem for path in folder.glob("*.gin"))
        near = meant(name, [*known, *BASELINES])
        raise UserError(f"--strategy {name}: no strategy{near} (or name a gin file)")
    return strategy


def _tested_targets(request: Request, strategy: str, over: Variants, say: Say) -> Variants:
    """With --allow-missing the variants whose target has a dev or test set: a training whose target
    has neither would choose and show nothing. Raises Unsuited where none has."""
    tested = [one for one in over if is_tested(request.task, request.data, one["TARGET"])]
    if not tested:
        raise Unsuited(f"{request.task.full_name}: {strategy} has no language to be tested in")
    if not request.allow_missing:
        return over
    passed_over = [one["TARGET"] for one in over if one not in tested]
    if passed_over:
        say(
            f"{request.called}, {strategy}: passed over, without a dev or test set:"
            f" {', '.join(passed_over)}"
        )
    return tested
