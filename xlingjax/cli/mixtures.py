"""`evaluate --mixture`: a checkpoint as it is, on the tasks of a benchmark or of SeqIO."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from xlingjax.cli.machine import machine_of
from xlingjax.cli.tasks import measured, require, require_read
from xlingjax.cli.verb import require_unread, workdir_of
from xlingjax.errors import UserError


def mixture(args: Namespace) -> int:
    """`evaluate --mixture`: a checkpoint as it is, or with --follow every checkpoint of a run."""
    from xlingjax.tasks import suites

    # Before the imports, which take seconds: without a module no other mixture is registered.
    if not args.tasks and args.mixture not in suites():
        raise UserError(
            f"--mixture {args.mixture}: no benchmark ({', '.join(suites())}) and no SeqIO task or"
            " mixture that is registered: name the Python module that registers it by --tasks"
        )
    from xlingjax.config.recipe import bindings
    from xlingjax.config.statements import gin_values
    from xlingjax.runtime.machine import start
    from xlingjax.training.run_record import run_and_checkpoint
    from xlingjax.workflows.cell import FILES, READING, values_of
    from xlingjax.workflows.follow import follow
    from xlingjax.workflows.measure import measure

    if args.follow and args.run:
        raise UserError(f"--follow names the run; leave {args.run} out")
    needed = ["output"]
    if not args.follow:
        require_unread(args, ("patience",), "only --follow reads this")
        needed.append("run")
    require_unread(args, ("strategy", "seeds", "grid"), "--mixture trains nothing")
    if args.mixture in suites():
        require(args, "data", *needed)
        _check_benchmark(args)
    else:
        require(args, *needed)
        _check_registered(args)
    start(machine_of(args))
    source = args.follow or workdir_of(args.run)
    overrides = gin_values(args.overrides)
    run, _ = run_and_checkpoint(source)
    config = run / "config.gin"
    read = (*READING, "DTYPE")

    # Read when it is needed: a run that is followed may not have begun.
    def recipe() -> dict[str, Any]:
        files = list(args.gin_file)
        if config.is_file():
            # First, so that what is given wins over the run's own recipe.
            files.insert(0, str(config))
        if files:
            return values_of(bindings(files, overrides))
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

    request = measured(args, source, args.mixture, args.tasks or ())
    if not args.follow:
        status = measure(request, recipe)
        _show_card(args.output)
        return status
    try:
        patience = args.patience
        if patience is None:
            patience = 60.0
        return follow(request, args.follow, recipe, patience=patience)
    finally:
        # What was measured stands in the card, however the run ended.
        _show_card(args.output)


def _check_benchmark(args: Namespace) -> None:
    """`evaluate --mixture` of a benchmark: raises UserError for options that none of its tasks
    reads, and tasks that it does not have."""
    from xlingjax.tasks import suite_tasks

    require_unread(args, ("languages",), "--mixture trains nothing")
    tasks = {task.name: task for task in suite_tasks(args.mixture)}
    unknown = set(args.tasks or ()) - set(tasks)
    if unknown:
        raise UserError(
            f"--tasks {' '.join(unknown)}: {args.mixture} has {', '.join(sorted(tasks))}"
        )
    # All of the suite: those whose head does not fit are passed over later.
    chosen = args.tasks or list(tasks)
    require_read(args, [task for name, task in tasks.items() if name in chosen])


def _check_registered(args: Namespace) -> None:
    """`evaluate --mixture` of another mixture of SeqIO. Raises UserError."""
    require_unread(
        args,
        ("data",),
        f"only a benchmark has files, and --mixture {args.mixture} is none: it reads what its tasks"
        " say",
    )
    if len(args.languages or ()) > 2:
        raise UserError(
            f"--languages {' '.join(args.languages)}: give that of inputs and targets, or both in"
            " this order"
        )


def _show_card(output: str) -> None:
    """The score card, where a cell is there."""
    from xlingjax.workflows.scorecard.cells import SCORES
    from xlingjax.workflows.scorecard.page import show

    if next(Path(output).glob(f"cells/**/{SCORES}"), None):
        print(show(output))
