"""`xlingjax average`."""

import argparse
from argparse import Namespace

from xlingjax.cli.types import place, positive, steps
from xlingjax.cli.verb import Verb


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="workdir of a run")
    text = "of its newest N checkpoints (KEEP_CHECKPOINTS keeps them)"
    parser.add_argument("--last", type=positive, metavar="N", help=text)
    parser.add_argument(
        "--steps", type=steps, default=(), metavar="A,B,C", help="of the checkpoints of these steps"
    )
    parser.add_argument(
        "--output", type=place, required=True, metavar="DIR", help="a new workdir, for INIT_FROM"
    )


def run(args: Namespace) -> int:
    from xlingjax.convert.average import average

    print(average(args.run, args.output, args.last, args.steps))
    return 0


VERB = Verb(
    "average", "write the mean of several checkpoints of a run as a trained model", options, run
)
