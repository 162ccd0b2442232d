"""`xlingjax cache`."""

import argparse
from argparse import Namespace

from xlingjax.cli.arguments import text_options
from xlingjax.cli.data import runner_options
from xlingjax.cli.types import positive
from xlingjax.cli.verb import Verb
from xlingjax.runtime.lock import alone_at


def options(parser: argparse.ArgumentParser) -> None:
    text_options(parser)
    parser.add_argument("--vocabulary", required=True, metavar="PATH", help="the run's")
    parser.add_argument(
        "--processes", type=positive, metavar="N", help="of this machine (default: one a core)"
    )
    runner_options(parser, default="none")


def run(args: Namespace) -> int:
    from xlingjax.data.store.entries import cache_root
    from xlingjax.workflows.cache import fill_cache

    # Runs that meanwhile tokenise the same write what is equal, each for itself.
    with alone_at(cache_root() / "tokens", "set XLINGJAX_CACHE to another folder"):
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
    "cache", "tokenise a corpus before a run does, in several processes or in Beam", options, run
)
