"""`xlingjax pretrain`."""

import argparse
from argparse import Namespace

from xlingjax.cli.machine import machine_of, process_options, wandb_option
from xlingjax.cli.verb import Verb


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workdir",
        required=True,
        metavar="DIR",
        help="where the run lives: checkpoints, logs, report",
    )
    process_options(parser)
    wandb_option(parser)


def run(args: Namespace) -> int:
    from xlingjax.config.recipe import read_recipe
    from xlingjax.workflows.launch import launch

    return launch(
        read_recipe(args.gin_file, args.overrides),
        args.workdir,
        "pretrain",
        machine_of(args),
    )


VERB = Verb(
    "pretrain",
    "train a model by a recipe, or continue where the run in the workdir stopped",
    options,
    run,
    recipe=True,
)
