"""`xlingjax evaluate`: the evaluators of a run, or the tasks of a benchmark."""

import argparse
from argparse import Namespace

from xlingjax.cli import tasks
from xlingjax.cli.machine import machine_of
from xlingjax.cli.types import POOLINGS, layer, not_negative
from xlingjax.cli.verb import Verb, require_unread, workdir_of
from xlingjax.errors import UserError


def options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a benchmark, instead of the run's own evaluators")
    group.add_argument(
        "--suite",
        metavar="NAME",
        help="fine-tune on, or measure, every task that is there: xtreme, xglue",
    )
    group.add_argument(
        "--mixture",
        metavar="NAME",
        help=(
            "measure a checkpoint as it is on every task of a benchmark that its head fits, or on a"
            " mixture or task of SeqIO"
        ),
    )
    group.add_argument(
        "--follow", metavar="RUN", help="--mixture on each new checkpoint of a run until it ends"
    )
    group.add_argument(
        "--tasks",
        nargs="+",
        metavar="TASK",
        help=(
            "those of the benchmark (default: all); of another --mixture the Python modules that"
            " register it"
        ),
    )
    group.add_argument(
        "--split",
        metavar="SPLIT",
        help=(
            "of --mixture: dev, test, dev[50%%:] (default: test, else dev; of other tasks of SeqIO"
            " validation, else dev, else test)"
        ),
    )
    text = "minutes in which a followed run may write nothing (default 60; 0: for ever)"
    group.add_argument("--patience", type=not_negative, metavar="MINUTES", help=text)
    text = (
        "of retrieval and mining (default: the run's own, else the papers'); of retrieval several,"
        " or all: a table"
    )
    group.add_argument("--layer", type=layer, nargs="+", metavar="N", help=text)
    text = "of them (default: the run's own, else mean, of BUCC first)"
    group.add_argument(
        "--pooling", choices=(*POOLINGS, "all"), nargs="+", metavar="POOLING", help=text
    )
    text = (
        "of --mixture: the task's labels in the order of the head's outputs, where the model names"
        " them LABEL_0, ..."
    )
    group.add_argument("--labels", nargs="+", metavar="LABEL", help=text)
    group.add_argument(
        "--prefix", metavar="TEXT", help="of them, before every sentence (default: the run's own)"
    )
    tasks.sweep_options(parser, group)


def run(args: Namespace) -> int:
    if args.suite and args.mixture:
        raise UserError("--suite and --mixture: give one of them")
    if args.suite:
        return tasks.suite(args)
    if args.mixture:
        return tasks.mixture(args)
    require_unread(args, tasks.OF_SUITES, "only --suite and --mixture read this")
    return _own_evaluators(args)


def _own_evaluators(args: Namespace) -> int:
    from xlingjax.config.recipe import read_recipe
    from xlingjax.training.run_record import run_and_checkpoint
    from xlingjax.workflows.launch import evaluate

    if not args.run:
        raise UserError("evaluate: give RUN, or --suite or --mixture")
    workdir = workdir_of(args.run)
    files = args.gin_file
    # A run keeps its recipe, whose evaluators are meant where none is given.
    if not files:
        config = run_and_checkpoint(workdir)[0] / "config.gin"
        if not config.exists():
            raise UserError(
                f"no run in {workdir}: there is no config.gin; give the workdir of a run"
            )
        files = [str(config)]
    evaluate(read_recipe(files, args.overrides), workdir, machine_of(args))
    return 0


VERB = Verb(
    "evaluate",
    "run evaluators (default: those of the run) on the newest checkpoint of a run; or a benchmark's"
    " tasks",
    options,
    run,
    recipe=True,
)
