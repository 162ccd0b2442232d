"""`xlingjax cache`."""

import argparse
from argparse import Namespace

from xlingjax.cli.arguments import text_options
from xlingjax.cli.data import RUNNERS
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
    parser.add_argument(
        "--runner",
        choices=RUNNERS,
        default="none",
        help="of Apache Beam; none: this machine (default %(default)s)",
    )
    parser.add_argument(
        "--workers",
        type=positive,
        default=1,
        metavar="N",
        help="processes of --runner Direct (default %(default)s)",
    )
    parser.add_argument(
        "beam",
        nargs="*",
        metavar="-- OPTION",
        help="Beam's own options",
    )


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
