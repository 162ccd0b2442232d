"""What `finetune --task`, `evaluate --suite` and `evaluate --mixture` share: the tasks of
benchmarks."""

import argparse
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.cli.machine import machine_of
from xlingjax.cli.types import positive
from xlingjax.cli.verb import given_run, named_run, require_unread, run_option
from xlingjax.errors import UserError

OF_TASKS = ("data", "output", "strategy", "languages", "seeds", "grid")
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
    run_option(parser, "the pretrained run; RUN@STEP; hf:FOLDER_OR_ID")
    text = "folder of the benchmark's files; tfds:DIR, sets that TensorFlow Datasets prepared there"
    group.add_argument("--data", metavar="DIR", help=text)
    text = "cells, predictions and the score card; shared by sweeps"
    group.add_argument("--to", dest="output", metavar="DIR", help=text)
    text = "transfer (default), pivot, translate_train, multi_language ..."
    group.add_argument("--strategy", nargs="+", metavar="NAME", help=text)
    text = (
        "pivots, or targets, of the strategy (default: all); of multi_language sets to train on:"
        " en+de en+de+zh"
    )
    group.add_argument("--languages", nargs="+", metavar="CODE", help=text)
    group.add_argument(
        "--seeds", type=positive, metavar="N", help="trainings of each setting (default 1)"
    )
    group.add_argument(
        "--grid", nargs="+", metavar="MACRO=A,B", help="settings to try, the best chosen on dev"
    )
    group.add_argument("--allow-missing", action="store_true", help="go on without files that lack")


def _require(args: Namespace, *names: str) -> None:
    given = {"run": given_run(args), "data": args.data, "output": args.output}
    flags = {"run": "RUN", "data": "--data", "output": "--to"}
    if missing := [flags[name] for name in names if not given[name]]:
        raise UserError(
            f"{args.name}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} needed"
        )


def finetune(args: Namespace) -> int:
    """`finetune --task`: a sweep for each strategy, then the score card of the folder."""
    from xlingjax.config.multi_task import merged
    from xlingjax.data.labelled.task import TRAINED
    from xlingjax.tasks import task_named
    from xlingjax.workflows.cell import MULTI_TASK

    _require(args, "run", "data", "output")
    tasks = sorted((task_named(name) for name in args.task), key=lambda task: task.name)
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
        merged([task.full_name for task in tasks])
    elif len(tasks) > 1:
        raise UserError(
            f"--task {' '.join(args.task)}: --strategy {MULTI_TASK} alone takes several; name one"
        )
    return _sweeps(args, tasks[:1], beside=tasks[1:])


def suite(args: Namespace) -> int:
    """`evaluate --suite`: every task whose files are there; what is missing is said."""
    from xlingjax.data.labelled.task import languages_present
    from xlingjax.tasks import suite_tasks

    _require(args, "run", "data", "output")
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
    tasks = suite_tasks(args.suite)
    if strange := [name for name in args.tasks or () if name not in {task.name for task in tasks}]:
        raise UserError(
            f"--tasks {' '.join(strange)}: {args.suite} has"
            f" {', '.join(task.name for task in tasks)}"
        )
    tasks = [task for task in tasks if not args.tasks or task.name in args.tasks]
    require_read(args, tasks)
    present, missing = [], []
    for task in tasks:
        lacks = [split for split in _needed(task) if not languages_present(task, args.data, split)]
        there = _tested(task, args.data)
        lacks += [] if there else ["test or dev"]
        told = [language for language in task.languages if language not in there]
        if lacks:
            missing.append(f"{task.full_name}: no {' and no '.join(lacks)} files")
            continue
        present.append(task)
        if told:
            missing.append(f"{task.full_name}: no test or dev set of {', '.join(told)}")
    if missing:
        print("missing:\n  " + "\n  ".join(missing))
    if missing and not args.allow_missing:
        raise UserError(
            f"{args.data}: files of {len(missing)} tasks are missing (above): get them, or"
            " --allow-missing"
        )
    return _sweeps(args, present)


def require_read(args: Namespace, tasks: Sequence[Any]) -> None:
    """Says which of the chosen tasks read --layer, --pooling and --prefix, if not all do. Raises
    UserError where none does, and where mining would read several."""
    from xlingjax.data.labelled.task import TRAINED

    given = {
        f"--{name}": values for name in ("layer", "pooling") if (values := getattr(args, name))
    }
    given |= {"--prefix": [args.prefix]} if args.prefix is not None else {}
    if not given:
        return
    options, read = " and ".join(given), [task for task in tasks if task.kind not in TRAINED]
    if not read:
        names = ", ".join(task.name for task in tasks)
        raise UserError(
            f"{options}: retrieval and mining alone read this, not {names}; leave it out"
        )
    mined = [task.name for task in read if task.kind == "mining"]
    if mined and any(
        len(values) > 1 or values == ["all"] for name, values in given.items() if name != "--prefix"
    ):
        raise UserError(
            f"{options}: {mined[0]} is mined from one layer and pooling; name the tasks of"
            " retrieval by --tasks"
        )
    if len(read) < len(tasks):
        print(f"{options}: read by {', '.join(task.name for task in read)} alone")


def _needed(task: Any) -> tuple[str, ...]:
    from xlingjax.data.labelled.task import TRAINED

    return ("train",) if task.kind in TRAINED else ()


def _tested(task: Any, data: str) -> set[str]:
    from xlingjax.data.labelled.task import languages_present

    return {*languages_present(task, data, "test"), *languages_present(task, data, "dev")}


def _sweeps(args: Namespace, tasks: Sequence[Any], beside: Sequence[Any] = ()) -> int:
    from xlingjax.config.recipe import find_gin, gin_values
    from xlingjax.data.labelled.task import TRAINED
    from xlingjax.evaluation.tatoeba import chosen_layer
    from xlingjax.runtime.machine import start
    from xlingjax.training.run_record import read_run_record
    from xlingjax.workflows.baselines import applies as baseline_of
    from xlingjax.workflows.cell import Request
    from xlingjax.workflows.measure import measure
    from xlingjax.workflows.scorecard_page import show
    from xlingjax.workflows.strategies import lacking
    from xlingjax.workflows.sweep import check, run

    machine = machine_of(args)
    start(machine)
    source = named_run(args)
    for layer in getattr(args, "layer", None) or ():  # before anything is trained
        if layer != "all":
            chosen_layer(layer, read_run_record(source)["model"]["layers"])
    overrides = gin_values(args.overrides)
    several, faults, sweeps = len(tasks) > 1, [], []

    def fault(task, found: UserError) -> None:
        """Of a suite the other tasks are measured all the same."""
        if not several:
            raise found
        print(f"{task.full_name}: {found}")
        faults.append(task.full_name)

    for task in tasks:
        for strategy in (args.strategy or ["transfer"]) if task.kind in TRAINED else ():
            if several and not baseline_of(strategy, task):
                print(f"{task.full_name}: passed over, {strategy} is none of {task.kind}")
                continue
            file = find_gin(f"strategies/{strategy}.gin") or find_gin(strategy)
            if (
                several
                and file
                and (lacks := lacking(file.read_text(encoding="utf-8"), task, args.data))
            ):
                print(f"{task.full_name}: passed over, {strategy} finds {lacks} below {args.data}")
                continue
            request = Request(
                task,
                source,
                args.data,
                args.output,
                strategy,
                args.seeds or 1,
                grid(args.grid or ()),
                tuple(args.languages or ()),
                tuple(args.gin_file),
                tuple(overrides),
                bool(args.allow_missing),
                beside=tuple(beside),
            )
            try:
                check(request)  # of all, before any training
                sweeps.append(request)
            except UserError as found:
                fault(task, found)
    for task in tasks:
        try:
            if task.kind not in TRAINED:
                measure(measured(args, source, task.suite, [task.name]))
            for request in (one for one in sweeps if one.task == task):
                if status := run(request, machine):
                    return status
        except UserError as found:
            fault(task, found)
    print(show(args.output))
    if faults:
        raise UserError(
            f"{', '.join(dict.fromkeys(faults))} could not be measured (above); the card is of the"
            " others"
        )
    return 0


def grid(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """{macro: values} of "LEARNING_RATE=1e-5,2e-5". Raises UserError."""
    found = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not equals or not all(values.split(",")) or not name.isupper():
            raise UserError(f"--grid {word}: write MACRO=A,B, as in LEARNING_RATE=1e-5,2e-5")
        if name in found:
            raise UserError(f"--grid {word}: {name} stands there twice; give all its values in one")
        found[name] = tuple(values.split(","))
        if len({*map(_number, found[name])}) < len(found[name]):
            raise UserError(f"--grid {word}: a value stands there twice")
    return found


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def measured(args: Namespace, source: str, suite: str, tasks: Sequence[str]) -> Any:
    from xlingjax.workflows.measure_request import Request

    return Request(
        suite,
        source,
        args.data,
        args.output,
        tuple(tasks),
        args.split or "",
        bool(args.allow_missing),
        tuple(args.layer or ()),
        tuple(args.pooling or ()),
        tuple(args.labels or ()),
        args.prefix,
    )


def mixture(args: Namespace) -> int:
    """`evaluate --mixture`: a checkpoint as it is, or with --follow every checkpoint of a run."""
    from xlingjax.config.recipe import bindings, gin_values
    from xlingjax.runtime.machine import start
    from xlingjax.tasks import suite_tasks
    from xlingjax.training.run_record import run_and_checkpoint
    from xlingjax.workflows.cell import FILES, READING, values_of
    from xlingjax.workflows.follow import follow
    from xlingjax.workflows.measure import measure
    from xlingjax.workflows.scorecard import SCORES
    from xlingjax.workflows.scorecard_page import show

    if args.follow and given_run(args):
        raise UserError(f"--follow names the run; leave {given_run(args)} out")
    if not args.follow:
        require_unread(args, ("patience",), "only --follow reads this")
    _require(args, "data", "output", *(() if args.follow else ("run",)))
    require_unread(args, ("strategy", "languages", "seeds", "grid"), "--mixture trains nothing")
    tasks = {task.name: task for task in suite_tasks(args.mixture)}
    if strange := {*(args.tasks or ())} - {*tasks}:
        raise UserError(
            f"--tasks {' '.join(strange)}: {args.mixture} has {', '.join(sorted(tasks))}"
        )
    require_read(
        args, [task for name, task in tasks.items() if not args.tasks or name in args.tasks]
    )
    start(machine_of(args))
    source = args.follow or named_run(args)
    overrides = gin_values(args.overrides)
    config, read = run_and_checkpoint(source)[0] / "config.gin", (*READING, "DTYPE")

    def recipe() -> dict[str, Any]:
        files = [*([str(config)] if config.is_file() else ()), *args.gin_file]
        if files:
            return values_of(bindings(files, overrides))
        given = [override.partition("=")[0] for override in overrides]
        if strange := [name for name in given if name not in read]:
            raise UserError(
                f"--gin.{strange[0]}: --mixture trains nothing, and reads {', '.join(read)} alone"
            )
        stand_ins = ["TASK=''", "DATA=''", "INIT_FROM=''", "TRAIN_STEPS=1"]
        bound = values_of(bindings(FILES, [*stand_ins, *overrides]))
        return {name: bound[name] for name in read}

    request = measured(args, source, args.mixture, args.tasks or ())
    if not args.follow:
        status = measure(request, recipe)
        print(show(args.output))
        return status
    try:
        return follow(
            request, args.follow, recipe, patience=60.0 if args.patience is None else args.patience
        )
    finally:  # what was measured stands in the card, however the run ended
        if next(Path(args.output).glob(f"cells/**/{SCORES}"), None):
            print(show(args.output))
