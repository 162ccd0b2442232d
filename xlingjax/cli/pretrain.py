"""`xlingjax pretrain`."""

import argparse
from argparse import Namespace

from xlingjax.cli.machine import machine_of, process_options
from xlingjax.cli.types import above_zero
from xlingjax.cli.verb import Verb


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workdir",
        required=True,
        metavar="DIR",
        help="where the run lives: checkpoints, logs, report",
    )
    parser.add_argument(
        "--hours",
        type=above_zero,
        metavar="H",
        help="as many steps as fit, by a trial on this machine, instead of the recipe's",
    )
    process_options(parser)


def run(args: Namespace) -> int:
    from xlingjax.config.recipe import read_recipe
    from xlingjax.workflows.launch import launch

    machine = machine_of(args)
    overrides = [*args.overrides]
    if args.hours is not None:
        from xlingjax.workflows.adapt.time_budget import within_hours

        overrides += within_hours(args.gin_file, overrides, args.workdir, args.hours, machine)
    return launch(read_recipe(args.gin_file, overrides), args.workdir, "pretrain", machine)


VERB = Verb(
    "pretrain",
    "train a model by a recipe, or continue where the run in the workdir stopped",
    options,
    run,
    recipe=True,
)
