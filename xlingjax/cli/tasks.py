"""`finetune --task`, `evaluate --suite` and `evaluate --mixture`: the tasks of benchmarks."""

import argparse
import functools
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.cli.machine import machine_of
from xlingjax.cli.types import place, positive
from xlingjax.cli.verb import option, require_unread, workdir_of
from xlingjax.errors import UserError

OF_TRAINING = ("data", "strategy", "languages", "seeds", "grid", "leave")
_OF_MIXTURES = ("split", "follow", "patience", "labels")
OF_SUITES = (*OF_TRAINING, "output", *_OF_MIXTURES, "tasks", "layer", "pooling", "prefix")

RUN = option("run", "the pretrained run; RUN@STEP; hf:FOLDER_OR_ID", metavar="RUN", nargs="?")
SCORES = option("--to", "cells, predictions, score card; of all sweeps", place, "DIR")
# No option has a default: what is given and not read is refused.
SWEEP = (
    option("--data", "folder of the benchmark's files", metavar="DIR"),
    option(
        "--strategy", "transfer (default), pivot, translate_train ...", nargs="+", metavar="NAME"
    ),
    option(
        "--languages",
        "pivots, or targets, of the strategy (default: all); of multi_language sets to train on:"
        " en+de en+de+zh; of a --mixture of text to text the languages of inputs and targets",
        nargs="+",
        metavar="CODE",
    ),
    option("--seeds", "trainings of each setting (default 1)", positive, "N"),
    option("--grid", "settings to try, the best chosen on dev", nargs="+", metavar="MACRO=A,B"),
    # Of a table's sweep: it leaves cells that others are at, and prints no card.
    option("--leave", argparse.SUPPRESS, bool, default=None),
    option("--allow-missing", "go on without files that lack", bool),
)


def _require(args: Namespace, *names: str) -> None:
    # argparse cannot require them: the verbs have uses that read none of them.
    flags = {"run": "RUN", "data": "--data", "output": "--to"}
    missing = [flags[name] for name in names if not getattr(args, name)]
    if missing:
        raise UserError(f"{args.name}: give {' and '.join(missing)}")


def finetune(args: Namespace) -> int:
    """`finetune --task`: a sweep for each strategy, then the score card of the folder."""
    from xlingjax.config.multi_task import merged
    from xlingjax.config.task import trained_task
    from xlingjax.workflows.tasks.request import MULTI_TASK

    _require(args, "run", "data", "output")
    # In one order, so that tasks that train together share a cell however they are typed.
    tasks = sorted(map(trained_task, args.task), key=lambda task: task.name)
    if MULTI_TASK in (args.strategy or ()):
        if len(args.strategy) > 1:
            raise UserError("--strategy: multi_task trains all tasks at once; give it alone")
        # Asked for what it refuses.
        merged([task.full_name for task in tasks])
    return _sweeps(args, tasks[:1], beside=tasks[1:])


def suite(args: Namespace) -> int:
    """`evaluate --suite`: every task whose files are there; what is missing is said."""
    from xlingjax.data.labelled.task import TRAINED, languages_present
    from xlingjax.tasks import suite_tasks
    from xlingjax.workflows.tasks.request import MULTI_TASK

    tasks = suite_tasks(args.suite, args.tasks or ())
    _require(args, "run", "data", "output")
    require_unread(args, _OF_MIXTURES, "--mixture reads this, --suite has --gin.TEST_SPLIT")
    if MULTI_TASK in (args.strategy or ()):
        raise UserError(
            "--strategy multi_task: name its tasks: `xlingjax finetune --task A B --strategy"
            " multi_task`"
        )
    require_read(args, tasks)
    present = []
    missing = []
    for task in tasks:
        splits = ("train", "dev", "test")
        train, dev, test = (languages_present(task, args.data, split) for split in splits)
        untested = sorted({*task.languages} - {*dev, *test})
        # Retrieval and mining have no training sets.
        if task.kind in TRAINED and not train:
            missing.append(f"{task.full_name}: no train files")
        elif not dev and not test:
            missing.append(f"{task.full_name}: no test or dev files")
        else:
            present.append(task)
            if untested:
                missing.append(f"{task.full_name}: no test or dev set of {', '.join(untested)}")
    # Printed before anything runs, so that a user can stop it and get the files.
    if missing:
        print("missing:\n  " + "\n  ".join(missing))
        if not args.allow_missing:
            raise UserError(f"{args.data}: files are missing (above): get them, or --allow-missing")
    return _sweeps(args, present)


def require_read(args: Namespace, tasks: Sequence[Any]) -> None:
    """Raises UserError where --layer, --pooling or --prefix is given and none of the tasks reads
    it, and where mining would read several."""
    from xlingjax.data.labelled.task import TRAINED

    names = ("layer", "pooling", "prefix")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    options = " and ".join(f"--{name}" for name in given)
    reading = [task for task in tasks if task.kind not in TRAINED]
    if given and not reading:
        raise UserError(f"{options}: only retrieval and mining read this; leave it out")
    given.pop("prefix", None)
    for task in reading:
        if task.kind == "mining" and any(len(v) > 1 or v == ["all"] for v in given.values()):
            raise UserError(
                f"{options}: {task.name} is mined from one layer and pooling; name the tasks of"
                " retrieval by --tasks"
            )


def _sweeps(args: Namespace, tasks: Sequence[Any], beside: Sequence[Any] = ()) -> int:
    """Measure or train each task, then print the card. Of a suite a task that fails leaves the
    others: its error is printed, and it is named at the end."""
    from xlingjax.data.labelled.task import TRAINED
    from xlingjax.evaluation.tatoeba import chosen_layer
    from xlingjax.runtime.machine import start
    from xlingjax.training.run_record import model_of
    from xlingjax.workflows.jobs.many import AT_WORK, Call, run_all
    from xlingjax.workflows.scorecard.card import show
    from xlingjax.workflows.tasks.measure import measure
    from xlingjax.workflows.tasks.strategies import Unsuited
    from xlingjax.workflows.tasks.sweep import check, run

    machine = machine_of(args)
    start(machine)
    source = workdir_of(args.run)
    # A layer that the run lacks is refused before anything is trained.
    for layer in getattr(args, "layer", None) or ():
        if layer != "all":
            chosen_layer(layer, model_of(source).layers)
    # Once, though a task may fail by several strategies.
    failed: dict[str, None] = {}

    def note(name: str, error: UserError) -> None:
        if len(tasks) == 1:
            raise error
        print(f"{name}: {error}")
        failed[name] = None

    # All are checked before the first one trains.
    requests: dict[Any, list[Any]] = {task: [] for task in tasks}
    for task in tasks:
        strategies = args.strategy or ["transfer"]
        for strategy in strategies if task.kind in TRAINED else ():
            request = _request(args, task, source, strategy, beside)
            try:
                check(request)
                requests[task].append(request)
            except UserError as error:
                # Of a single task a strategy that is none for it is a fault.
                if isinstance(error, Unsuited) and len(tasks) > 1:
                    print(f"{task.full_name}: passed over, {strategy}: {error}")
                else:
                    note(task.full_name, error)

    def measure_or_train(task: Any) -> int:
        if task.kind not in TRAINED:
            name = task.full_name.partition("/")[2]
            return measure(_measurement(args, source, task.suite, [name]))
        left = 0
        for request in requests[task]:
            status = run(request, machine, wait=not args.leave)
            # The machine wants it to stop, and would stop the next sweep as well.
            if status not in (0, AT_WORK):
                return status
            left = left or status
        return left

    jobs = [Call(task.full_name, functools.partial(measure_or_train, task)) for task in tasks]
    status = run_all(jobs, on_error=note, wait=False)
    if status:
        return status
    if not args.leave:
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
        args.allow_missing,
        beside=tuple(beside),
    )


def grid(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """{macro: values} of "LEARNING_RATE=1e-5,2e-5". Raises UserError."""
    values_of: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, _, text = word.partition("=")
        values = tuple(text.split(","))
        # Macros are in capitals: a parameter is set for a whole sweep, by --gin.
        if not all(values) or not name.isupper() or name in values_of:
            raise UserError(
                f"--grid {word}: write MACRO=A,B, as in LEARNING_RATE=1e-5,2e-5, once for each"
            )
        values_of[name] = values
    return values_of


def mixture(args: Namespace) -> int:
    """`evaluate --mixture`: a checkpoint, or with --follow all of a run's, on a mixture's tasks."""
    from xlingjax.tasks import suite_tasks, suites

    benchmark = args.mixture in suites()
    # Before the imports, which take seconds: without a module no other mixture is registered.
    if not args.tasks and not benchmark:
        raise UserError(
            f"--mixture {args.mixture}: no benchmark ({', '.join(suites())}) and no SeqIO task or"
            " mixture that is registered: name the Python module that registers it by --tasks"
        )
    from xlingjax.runtime.machine import start
    from xlingjax.workflows.scorecard.card import show
    from xlingjax.workflows.scorecard.cells import SCORES
    from xlingjax.workflows.tasks.follow import follow
    from xlingjax.workflows.tasks.measure import measure

    require_unread(args, ("strategy", "seeds", "grid"), "--mixture trains nothing")
    if args.follow:
        require_unread(args, ("run",), "--follow names the run")
    else:
        require_unread(args, ("patience",), "only --follow reads this")
        _require(args, "run")
    _require(args, "output", *(["data"] if benchmark else []))
    if benchmark:
        require_unread(args, ("languages",), "--mixture trains nothing")
        # Those whose head does not fit are passed over later.
        require_read(args, suite_tasks(args.mixture, args.tasks or ()))
    else:
        require_unread(args, ("data",), "a mixture of SeqIO reads what its tasks say")
        if len(args.languages or ()) > 2:
            raise UserError("--languages: give that of inputs and targets, or both in this order")
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
    """{macro: value} of a run's own recipe (else those read), and of what is given beside it."""
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
        name = override.partition("=")[0]
        if name not in read:
            raise UserError(f"--gin.{name}: --mixture trains nothing; it reads {', '.join(read)}")
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
        allow_missing=args.allow_missing,
        layers=tuple(args.layer or ()),
        poolings=tuple(args.pooling or ()),
        labels=tuple(args.labels or ()),
        prefix=args.prefix,
        **named,
    )
