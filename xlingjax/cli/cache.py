"""`xlingjax cache`."""

import argparse
from argparse import Namespace

from xlingjax.cli.arguments import text_options
from xlingjax.cli.data import runner_options
from xlingjax.cli.types import positive
from xlingjax.cli.verb import Verb


def options(parser: argparse.ArgumentParser) -> None:
    text_options(parser)
    parser.add_argument(
        "--vocabulary",
        required=True,
        metavar="PATH",
        help="the run's",
    )
    parser.add_argument(
        "--processes",
        type=positive,
        metavar="N",
        help="of this machine (default: one a core)",
    )
    runner_options(parser, default="none")


def run(args: Namespace) -> int:
    from xlingjax.workflows.cache import fill_cache

    fill_cache(
        args.mono,
        args.parallel,
        args.vocabulary,
        args.processes,
        args.runner,
        args.workers,
        args.beam,
    )
    return 0


VERB = Verb(
    "cache",
    "tokenise a corpus before a run does, in several processes or in Beam",
    options,
    run,
)
