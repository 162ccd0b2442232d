"""`xlingjax finetune`: a recipe of fine-tuning, or a sweep over a task of a benchmark."""

import argparse
from argparse import Namespace

from xlingjax.cli import tasks
from xlingjax.cli.machine import machine_of, process_options
from xlingjax.cli.verb import Verb, require_unread
from xlingjax.errors import UserError


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workdir", metavar="DIR", help="where the run lives: checkpoints, logs, report"
    )
    group = parser.add_argument_group("a task of a benchmark, instead of --workdir")
    group.add_argument(
        "--task",
        nargs="+",
        metavar="SUITE/NAME",
        help=(
            "xtreme/xnli, xglue/ner ...; its settings are macros of runs/task.gin; several:"
            " --strategy multi_task"
        ),
    )
    tasks.sweep_options(parser, group)
    process_options(parser)


def run(args: Namespace) -> int:
    if args.task:
        require_unread(args, ("workdir",), "--task writes to --to")
        return tasks.finetune(args)
    require_unread(args, tasks.OF_TASKS, "only --task reads this")
    # The recipe says what it starts from, so RUN would be read by nothing.
    if args.run:
        raise UserError(f"{args.run}: only --task reads a RUN; a recipe has it as --gin.INIT_FROM")
    if not args.workdir:
        raise UserError("finetune: give --workdir, or --task")
    from xlingjax.config.recipe import read_recipe
    from xlingjax.workflows.launch import launch

    return launch(
        read_recipe(args.gin_file, args.overrides), args.workdir, "finetune", machine_of(args)
    )


VERB = Verb(
    "finetune",
    "train a pretrained model on labelled examples by a recipe",
    options,
    run,
    recipe=True,
)
