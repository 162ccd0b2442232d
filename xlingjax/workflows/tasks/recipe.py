"""The recipe of a cell: all that is decided before the training; and its mesh, which is not part of
it, so that the recipe is the same on machines of other devices."""

import ast
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from xlingjax.config.gin_files import find_gin, macros_set
from xlingjax.config.recipe import bindings
from xlingjax.config.shared_training import require_one_training
from xlingjax.data.labelled.task import find
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError, require_numbers, require_whole
from xlingjax.evaluation.task.scores import chosen_languages, require_tested
from xlingjax.model.partition import MeshConfig, check_shares, mesh_sizes
from xlingjax.report import html
from xlingjax.training.run_record import run_and_checkpoint
from xlingjax.workflows.tasks.request import (
    FILES,
    SHARED,
    Bound,
    Cell,
    Request,
    chosen_by,
    macros_given,
    training_of,
    typed,
    values_of,
)
from xlingjax.workflows.tasks.sets import (
    Count,
    counted,
    known_languages,
    require_apart,
    require_sound,
    splits_of,
)
from xlingjax.workflows.tasks.strategies import OVER, trained_languages

_OPTIONS = {"TASK": "--task", "DATA": "--data", "INIT_FROM": "RUN", "SEED": "--seeds"}
"""Macros that an option of the command line says."""


def recipe_of(request: Request, cell: Cell, strategy: Path, more: Mapping[str, str]) -> str:
    """The gin file of the cell: all that was decided, to be read and run again. more: macros that
    the sweep adds, as gin reads them. Raises UserError for all that can be known before the
    training."""
    # What the sweep decides below, it decides only where nobody has.
    given = {*macros_given(request), *cell.settings}
    _require_one_source(request, cell, given)
    files = _gin_files(request, strategy)
    values = _macros(request, cell, more)
    bound = _bound(request, strategy, files, values, given)
    require_sound(request, bound)
    if request.shares:
        require_one_training(request.tasks, request.data, training_of(bound))
    # Which sets there are decides what can choose, so it comes before anything is counted.
    sets = _sets(request, cell, given, bound)
    values |= {name: repr(value) for name, value in sets.items()}
    bound |= sets
    # Before examples are counted, which tokenises all of them.
    require_apart(request, bound)

    counts = {task.name: counted(request, task, bound) for task in request.learnt}
    lengths = _lengths(request, given, bound, counts)
    # What was typed wins over what is counted.
    values = {name: str(value) for name, value in lengths.items() if name not in given} | values
    values |= _selection(request, bound)
    return _text(request, cell, files, values, counts)


# ---- what was given ------------------------------------------------------------------------------


def _require_one_source(request: Request, cell: Cell, given: Collection[str]) -> None:
    """Raise UserError for a macro that two options set."""
    for name in sorted(typed(request) & {*cell.settings}):
        raise UserError(f"{name}: --gin.{name} and --grid both set it: give one of them")
    for name, option in _OPTIONS.items():
        if name in given:
            raise UserError(
                f"{name}: a sweep has it from {option}: say it there, and leave {name} out"
            )


def _gin_files(request: Request, strategy: Path) -> list[str]:
    """What the recipe includes; the strategy is last."""
    files = [*FILES]
    if request.shares:
        files.append(SHARED)
    for name in request.files:
        # So that the recipe is read from anywhere.
        if Path(name).is_file():
            name = str(Path(name).absolute())
        files.append(name)
    # By its short name where it is one of ours, so that a recipe can be read on another machine.
    if find_gin(f"strategies/{strategy.name}") == strategy:
        files.append(f"strategies/{strategy.name}")
    else:
        files.append(str(strategy.absolute()))
    return files


def _macros(request: Request, cell: Cell, more: Mapping[str, str]) -> dict[str, str]:
    """{macro: value as gin reads it} of the options, the variant and the settings of the cell."""
    folder, which = run_and_checkpoint(request.source)
    run = str(folder.absolute())
    if which:
        run += f"@{which}"
    values = {
        "TASK": repr(" ".join(task.full_name for task in request.learnt)),
        "DATA": repr(str(Path(request.data).absolute())),
        "INIT_FROM": repr(run),
        "SEED": str(cell.seed),
    }
    if request.shares:
        values["SHARED"] = repr(request.called)
    for override in request.overrides:
        name, value = override.split("=", 1)
        values[name] = value
    for name, value in cell.variant.items():
        if name in OVER:
            values[name] = repr(value)
    for name, value in cell.settings.items():
        values[name] = _literal(value)
    values |= more
    return values | trained_languages(cell.variant, request.task, request.data)


def _literal(text: str) -> str:
    """A value of --grid as gin reads it: what is no literal is a string."""
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return repr(text)
    return text


def _bound(
    request: Request,
    strategy: Path,
    files: Sequence[str],
    values: dict[str, str],
    given: Collection[str],
) -> dict:
    """{macro: value} of what the files and `values` bind. Raises UserError where the files
    contradict each other."""
    # As overrides, which are stronger than every file.
    placed = [f"{name}={value}" for name, value in values.items()]
    # gin requires it, and it is counted only later.
    if "TRAIN_STEPS" not in given:
        placed.append("TRAIN_STEPS=1")
    parsed = bindings(files, placed)
    set_twice = macros_set(request.files) & macros_set([str(strategy)])
    for name in sorted(set_twice - {*values}):
        # The strategy is the last file, whose value would win unseen.
        before = bindings(files[:-1], placed)[name]
        if before != parsed[name]:
            raise UserError(
                f"{name}: {' '.join(request.files)} and strategy {strategy.stem} set it, to"
                f" {before} and {parsed[name]}: say which by --gin.{name}"
            )
    return values_of(parsed)


# ---- what chooses and what tests -----------------------------------------------------------------


def _sets(request: Request, cell: Cell, given: Collection[str], bound: Bound) -> dict[str, str]:
    """{macro: value} of the sets and languages that differ from what the recipe binds."""
    splits = splits_of(request, given, bound)
    target = cell.variant.get("TARGET")
    if target and "DEV_LANGUAGES" not in given:
        dev = splits.get("DEV_SPLIT", bound["DEV_SPLIT"])
        if not find(request.task, request.data, dev, target):
            # XQuAD, for one, has SQuAD's dev set alone.
            splits["DEV_LANGUAGES"] = request.task.trained_on
    return splits | known_languages(request, {**bound, **splits})


def _selection(request: Request, bound: Bound) -> dict[str, str]:
    """The macros that say which checkpoint is kept. Raises UserError where none can be chosen, and
    where the dev or the test set of a task is missing."""
    select = bound["SELECT"]
    dev_languages = []
    for task in request.tasks:
        requested = split_list(bound["DEV_LANGUAGES"])
        dev_languages.append(chosen_languages(task, request.data, bound["DEV_SPLIT"], requested))
        tested = split_list(bound["TEST_LANGUAGES"])
        require_tested(task, request.data, bound["TEST_SPLIT"], tested, request.allow_missing)
    if select == "last":
        return {"KEEP_BEST": "0", "BEST_METRIC": "''"}
    if bound["KEEP_BEST"] < 1 or bound["BEST_MODE"] != "max":
        raise UserError(
            f"KEEP_BEST, BEST_MODE: SELECT={select} takes the checkpoint that is best on dev; leave"
            " them out, or give --gin.SELECT=last"
        )
    trained_on = request.task.trained_on
    if select not in ("mean", trained_on):
        raise UserError(f"SELECT={select}: choose mean, {trained_on} or last")
    for languages in dev_languages:
        if select != "mean" and select not in languages:
            raise UserError(
                f"SELECT={select}: dev is of {', '.join(languages)} alone; give --gin.SELECT=mean"
            )
    metrics = [chosen_by(request, task, select) for task in request.tasks]
    return {"BEST_METRIC": repr(" ".join(dict.fromkeys(metrics)))}


# ---- how long it trains --------------------------------------------------------------------------


def _lengths(
    request: Request, given: Collection[str], bound: Bound, counts: Mapping[str, Count]
) -> dict:
    """{macro: value}: how many steps, how often it is measured and saved, and how often each of
    several tasks has its turn."""
    require_whole(bound, "(0, inf)", "BATCH EVALUATIONS")
    require_numbers(bound, "(0, inf)", "EPOCHS")
    batch = bound["BATCH"]
    # Not rounded: a set of a few batches would train for too long or too short.
    epoch = sum(count.rows for count in counts.values()) / batch
    steps = max(1, round(bound["EPOCHS"] * epoch))
    if "TRAIN_STEPS" in given:
        steps = bound["TRAIN_STEPS"]
    # At least one evaluation falls within the training, or nothing could be chosen.
    every = min(steps, max(1, round(epoch / bound["EVALUATIONS"])))
    lengths = {"TRAIN_STEPS": steps, "EVAL_EVERY": every, "CHECKPOINT_EVERY": every}
    if len(request.learnt) > 1:
        # Each example has its turn once in an epoch, as if the sets of the tasks were one.
        lengths["TASK_WEIGHTS"] = {
            name: max(1, round(count.rows / batch)) for name, count in counts.items()
        }
    return lengths


# ---- its text ------------------------------------------------------------------------------------


def _text(
    request: Request,
    cell: Cell,
    files: Sequence[str],
    values: Mapping[str, str],
    counts: Mapping[str, Count],
) -> str:
    """The gin file. Its first line tells the settings by a hash of all that they bind, so that a
    gin file which changed on the disk shows as another recipe."""
    placed = [f"{name}={value}" for name, value in values.items()]
    # Sorted, since the order in which gin lists bindings says nothing of them.
    everything = json.dumps(sorted(bindings(files, placed).items()))
    digest = hashlib.sha256(everything.encode()).hexdigest()[:16]
    return html.render(
        "cell.gin",
        request=request,
        cell=cell,
        examples=sum(count.examples for count in counts.values()),
        digest=digest,
        files=files,
        values=values,
    )


# ---- its mesh ------------------------------------------------------------------------------------


def rows_apart(bound: Bound, devices: int, processes: int = 1) -> int:
    """MESH_DATA of a cell: where it is -1, the most copies of the model on `devices` whose rows of
    a microbatch are as many each; of several processes all devices have to be used. Raises
    UserError where none are."""
    mesh = MeshConfig(bound["MESH_DATA"], bound["MESH_FSDP"], bound["MESH_TENSOR"])
    batch = bound["BATCH"]
    parts = bound["MICROBATCHES"]
    data, fsdp, _ = mesh_sizes(mesh, devices, processes)
    if mesh.data != -1 or processes > 1:
        check_shares(data, fsdp, batch, parts, f"BATCH={batch}")
        return mesh.data
    for copies in range(data, 0, -1):
        if batch % (copies * fsdp * parts) == 0:
            return copies
    raise UserError(
        f"BATCH={batch} does not divide by MESH_FSDP={fsdp} devices x MICROBATCHES={parts}: choose"
        " others"
    )
