"""`finetune --task`, `evaluate --suite` and `evaluate --mixture`: the tasks of benchmarks."""

import argparse
import functools
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.cli.jobs import groups_of, jobs_options, run_beside
from xlingjax.cli.machine import machine_of
from xlingjax.cli.types import place, positive
from xlingjax.cli.verb import require_unread, workdir_of
from xlingjax.errors import UserError

OF_TASKS = ("data", "output", "strategy", "languages", "seeds", "grid", "jobs", "worker")
OF_SUITES = (
    *OF_TASKS,
    "tasks",
    "split",
    "layer",
    "pooling",
    "prefix",
    "follow",
    "patience",
    "labels",
)


def sweep_options(parser: argparse.ArgumentParser, group: Any) -> None:
    """RUN, and into `group` what sweeps over tasks read."""
    # No option has a default: what is given and not read is refused.
    text = "the pretrained run; RUN@STEP; hf:FOLDER_OR_ID"
    parser.add_argument("run", nargs="?", metavar="RUN", help=text)
    group.add_argument("--data", metavar="DIR", help="folder of the benchmark's files")
    text = "cells, predictions and the score card; shared by sweeps"
    group.add_argument("--to", dest="output", type=place, metavar="DIR", help=text)
    text = "transfer (default), pivot, translate_train, multi_language ..."
    group.add_argument("--strategy", nargs="+", metavar="NAME", help=text)
    text = (
        "pivots, or targets, of the strategy (default: all); of multi_language sets to train on:"
        " en+de en+de+zh; of a --mixture of text to text the languages of inputs and targets"
    )
    group.add_argument("--languages", nargs="+", metavar="CODE", help=text)
    group.add_argument(
        "--seeds", type=positive, metavar="N", help="trainings of each setting (default 1)"
    )
    group.add_argument(
        "--grid", nargs="+", metavar="MACRO=A,B", help="settings to try, the best chosen on dev"
    )
    jobs_options(group)
    group.add_argument("--allow-missing", action="store_true", help="go on without files that lack")


def require(args: Namespace, *names: str) -> None:
    # argparse cannot require them: the verbs have uses that read none of them.
    given = {"run": args.run, "data": args.data, "output": args.output}
    flags = {"run": "RUN", "data": "--data", "output": "--to"}
    missing = [flags[name] for name in names if not given[name]]
    if missing:
        verb = "are" if len(missing) > 1 else "is"
        raise UserError(f"{args.name}: {' and '.join(missing)} {verb} needed")


def finetune(args: Namespace) -> int:
    """`finetune --task`: a sweep for each strategy, then the score card of the folder."""
    from xlingjax.config.multi_task import merged
    from xlingjax.data.labelled.task import TRAINED
    from xlingjax.tasks import task_named
    from xlingjax.workflows.tasks.request import MULTI_TASK

    require(args, "run", "data", "output")
    # In one order, so that tasks that train together share a cell however they are typed.
    tasks = sorted(map(task_named, args.task), key=lambda task: task.name)
    for task in tasks:
        if task.kind not in TRAINED:
            suite = f"`xlingjax evaluate --mixture {task.suite} --tasks {task.name}` measures it"
            raise UserError(f"--task {task.full_name}: {task.kind} is not fine-tuned; {suite}")
    together = MULTI_TASK in (args.strategy or ())
    if together and len(args.strategy) > 1:
        raise UserError(
            f"--strategy {' '.join(args.strategy)}: {MULTI_TASK} trains all tasks at once; give it"
            " alone"
        )
    if together:
        # Asked for what it refuses.
        merged([task.full_name for task in tasks])
    return _sweeps(args, tasks[:1], beside=tasks[1:])


def suite(args: Namespace) -> int:
    """`evaluate --suite`: every task whose files are there; what is missing is said."""
    from xlingjax.data.labelled.task import TRAINED, languages_present
    from xlingjax.tasks import suite_tasks

    # One that is none is named first.
    suite_tasks(args.suite)
    require(args, "run", "data", "output")
    require_unread(
        args,
        ("split", "follow", "patience", "labels"),
        "--mixture reads this, and --suite says its splits by --gin.TEST_SPLIT",
    )
    if "multi_task" in (args.strategy or ()):
        raise UserError(
            "--strategy multi_task: name its tasks: `xlingjax finetune --task A B --strategy"
            " multi_task`"
        )
    tasks = _chosen(args, args.suite)
    require_read(args, tasks)
    present = []
    missing = []
    for task in tasks:
        tested = {
            *languages_present(task, args.data, "test"),
            *languages_present(task, args.data, "dev"),
        }
        lacks = []
        # Retrieval and mining have no training sets.
        if task.kind in TRAINED and not languages_present(task, args.data, "train"):
            lacks.append("train")
        if not tested:
            lacks.append("test or dev")
        if lacks:
            missing.append(f"{task.full_name}: no {' and no '.join(lacks)} files")
            continue
        present.append(task)
        untested = [language for language in task.languages if language not in tested]
        if untested:
            missing.append(f"{task.full_name}: no test or dev set of {', '.join(untested)}")
    # Printed before anything runs, so that a user can stop it and get the files.
    if missing:
        print("missing:\n  " + "\n  ".join(missing))
    if missing and not args.allow_missing:
        raise UserError(
            f"{args.data}: files of {len(missing)} tasks are missing (above): get them, or"
            " --allow-missing"
        )
    return _sweeps(args, present)


def _chosen(args: Namespace, suite: str) -> list[Any]:
    """The tasks of a benchmark that --tasks names, or all. Raises UserError."""
    from xlingjax.tasks import suite_tasks

    tasks = suite_tasks(suite)
    names = [task.name for task in tasks]
    unknown = [name for name in args.tasks or () if name not in names]
    if unknown:
        raise UserError(f"--tasks {' '.join(unknown)}: {suite} has {', '.join(names)}")
    return [task for task in tasks if not args.tasks or task.name in args.tasks]


def require_read(args: Namespace, tasks: Sequence[Any]) -> None:
    """Says which of the chosen tasks read --layer, --pooling and --prefix, if not all do. Raises
    UserError where none does, and where mining would read several."""
    from xlingjax.data.labelled.task import TRAINED

    given = []
    several = False
    for option, values in (("--layer", args.layer), ("--pooling", args.pooling)):
        if values:
            given.append(option)
            several = several or len(values) > 1 or values == ["all"]
    # An empty prefix is one, too: it says that none is to be read.
    if args.prefix is not None:
        given.append("--prefix")
    if not given:
        return
    options = " and ".join(given)
    reading = [task for task in tasks if task.kind not in TRAINED]
    if not reading:
        names = ", ".join(task.name for task in tasks)
        raise UserError(
            f"{options}: retrieval and mining alone read this, not {names}; leave it out"
        )
    mined = [task.name for task in reading if task.kind == "mining"]
    if mined and several:
        raise UserError(
            f"{options}: {mined[0]} is mined from one layer and pooling; name the tasks of"
            " retrieval by --tasks"
        )
    if len(reading) < len(tasks):
        print(f"{options}: read by {', '.join(task.name for task in reading)} alone")


def _sweeps(args: Namespace, tasks: Sequence[Any], beside: Sequence[Any] = ()) -> int:
    """Measure or train each task, then print the card. Of a suite a task that fails leaves the
    others: its error is printed, and it is named at the end."""
    from xlingjax.data.labelled.task import TRAINED
    from xlingjax.evaluation.tatoeba import chosen_layer
    from xlingjax.runtime.machine import start
    from xlingjax.training.run_record import read_run_record
    from xlingjax.workflows.jobs.many import AT_WORK, Call, run_all
    from xlingjax.workflows.scorecard.page import show
    from xlingjax.workflows.tasks.measure import measure
    from xlingjax.workflows.tasks.strategies import Unsuited
    from xlingjax.workflows.tasks.sweep import check, run

    groups = groups_of(args)
    machine = machine_of(args)
    start(machine)
    source = workdir_of(args.run)
    # A layer that the run lacks is refused before anything is trained.
    for layer in getattr(args, "layer", None) or ():
        if layer != "all":
            chosen_layer(layer, read_run_record(source)["model"]["layers"])
    # Once, though a task may fail by several strategies.
    failed: dict[str, None] = {}

    def note(name: str, error: UserError) -> None:
        if len(tasks) == 1:
            raise error
        print(f"{name}: {error}")
        failed[name] = None

    # All are checked before the first one trains.
    devices = groups[0].devices if groups else None
    requests: dict[Any, list[Any]] = {task: [] for task in tasks}
    for task in tasks:
        strategies = args.strategy or ["transfer"]
        for strategy in strategies if task.kind in TRAINED else ():
            request = _request(args, task, source, strategy, beside)
            try:
                check(request, devices=devices)
                requests[task].append(request)
            except UserError as error:
                # Of a single task a strategy that is none for it is a fault.
                if isinstance(error, Unsuited) and len(tasks) > 1:
                    print(f"{task.full_name}: passed over, {strategy}: {error}")
                else:
                    note(task.full_name, error)

    def measure_or_train(task: Any) -> int:
        if task.kind not in TRAINED:
            return measure(_measurement(args, source, task.suite, [task.name]))
        left = 0
        for request in requests[task]:
            status = run(request, machine, wait=args.worker != "leave")
            # The machine wants it to stop, and would stop the next sweep as well.
            if status not in (0, AT_WORK):
                return status
            left = left or status
        return left

    if groups:
        status = run_beside(args, groups)
    else:
        jobs = [Call(task.full_name, functools.partial(measure_or_train, task)) for task in tasks]
        status = run_all(jobs, on_error=note, wait=False)
    if status:
        return status
    if not args.worker:
        print(show(args.output))
    if failed:
        raise UserError(
            f"{', '.join(failed)} could not be measured (above); the card is of the others"
        )
    return 0


def _request(args: Namespace, task: Any, source: str, strategy: str, beside: Sequence[Any]) -> Any:
    from xlingjax.config.gin_files import gin_values
    from xlingjax.workflows.tasks.request import Request

    return Request(
        task,
        source,
        args.data,
        args.output,
        strategy,
        args.seeds or 1,
        grid(args.grid or ()),
        tuple(args.languages or ()),
        tuple(args.gin_file),
        tuple(gin_values(args.overrides)),
        bool(args.allow_missing),
        beside=tuple(beside),
    )


def grid(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """{macro: values} of "LEARNING_RATE=1e-5,2e-5". Raises UserError."""
    values_of = {}
    for word in words:
        name, equals, text = word.partition("=")
        values = tuple(text.split(","))
        # Macros are in capitals: a parameter is set for a whole sweep, by --gin.
        if not equals or not all(values) or not name.isupper():
            raise UserError(f"--grid {word}: write MACRO=A,B, as in LEARNING_RATE=1e-5,2e-5")
        if name in values_of:
            raise UserError(f"--grid {word}: {name} stands there twice; give all its values in one")
        # As numbers, since 1e-5 and 0.00001 are one value.
        if len(set(map(_number, values))) < len(values):
            raise UserError(f"--grid {word}: a value stands there twice")
        values_of[name] = values
    return values_of


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


# ---- a checkpoint as it is -----------------------------------------------------------------------


def mixture(args: Namespace) -> int:
    """`evaluate --mixture`: a checkpoint as it is, or with --follow every checkpoint of a run, on
    the tasks of a benchmark or of SeqIO."""
    from xlingjax.tasks import suites

    benchmark = args.mixture in suites()
    # Before the imports, which take seconds: without a module no other mixture is registered.
    if not args.tasks and not benchmark:
        raise UserError(
            f"--mixture {args.mixture}: no benchmark ({', '.join(suites())}) and no SeqIO task or"
            " mixture that is registered: name the Python module that registers it by --tasks"
        )
    from xlingjax.runtime.machine import start
    from xlingjax.workflows.scorecard.cells import SCORES
    from xlingjax.workflows.scorecard.page import show
    from xlingjax.workflows.tasks.follow import follow
    from xlingjax.workflows.tasks.measure import measure

    if args.follow and args.run:
        raise UserError(f"--follow names the run; leave {args.run} out")
    needed = ["output"]
    if not args.follow:
        require_unread(args, ("patience",), "only --follow reads this")
        needed.append("run")
    require_unread(args, ("strategy", "seeds", "grid"), "--mixture trains nothing")
    if benchmark:
        require(args, "data", *needed)
        require_unread(args, ("languages",), "--mixture trains nothing")
        # Those whose head does not fit are passed over later.
        require_read(args, _chosen(args, args.mixture))
    else:
        require(args, *needed)
        require_unread(
            args,
            ("data",),
            f"only a benchmark has files, and --mixture {args.mixture} is none: it reads what its"
            " tasks say",
        )
        if len(args.languages or ()) > 2:
            raise UserError(
                f"--languages {' '.join(args.languages)}: give that of inputs and targets, or both"
                " in this order"
            )
    start(machine_of(args))
    source = args.follow or workdir_of(args.run)
    measurement = _measurement(args, source, args.mixture, args.tasks or ())
    # Read when it is needed: a run that is followed may not have begun.
    recipe = functools.partial(_recipe_of, args, source)
    try:
        if not args.follow:
            return measure(measurement, recipe)
        patience = 60.0 if args.patience is None else args.patience
        return follow(measurement, args.follow, recipe, patience=patience)
    finally:
        # What was measured stands in the card, however the run ended.
        if next(Path(args.output).glob(f"cells/**/{SCORES}"), None):
            print(show(args.output))


def _recipe_of(args: Namespace, source: str) -> dict[str, Any]:
    """{macro: value} of a run's own recipe and what is given beside it; of a run without one of
    those that are read."""
    from xlingjax.config.gin_files import gin_values
    from xlingjax.config.recipe import bindings
    from xlingjax.training.run_record import run_and_checkpoint
    from xlingjax.workflows.tasks.request import FILES, READING, values_of

    overrides = gin_values(args.overrides)
    files = list(args.gin_file)
    config = run_and_checkpoint(source)[0] / "config.gin"
    if config.is_file():
        # First, so that what is given wins over the run's own recipe.
        files.insert(0, str(config))
    if files:
        return values_of(bindings(files, overrides))
    read = (*READING, "DTYPE")
    for override in overrides:
        name, _, _ = override.partition("=")
        if name not in read:
            raise UserError(
                f"--gin.{name}: --mixture trains nothing, and reads {', '.join(read)} alone"
            )
    # The files leave these open, and what is read does not depend on them.
    stand_ins = ["TASK=''", "DATA=''", "INIT_FROM=''", "TRAIN_STEPS=1"]
    bound = values_of(bindings(FILES, [*stand_ins, *overrides]))
    return {name: bound[name] for name in read}


def _measurement(args: Namespace, source: str, suite: str, tasks: Sequence[str]) -> Any:
    from xlingjax.tasks import suites
    from xlingjax.workflows.tasks.measure import Measurement

    named: dict[str, Any] = {"tasks": tuple(tasks)}
    if suite not in suites():
        # No benchmark: the modules that register its mixture stand where a benchmark's tasks do.
        named = {"modules": tuple(tasks), "languages": tuple(args.languages or ())}
    return Measurement(
        suite,
        source,
        args.data or "",
        args.output,
        split=args.split or "",
        allow_missing=bool(args.allow_missing),
        layers=tuple(args.layer or ()),
        poolings=tuple(args.pooling or ()),
        labels=tuple(args.labels or ()),
        prefix=args.prefix,
        **named,
    )
