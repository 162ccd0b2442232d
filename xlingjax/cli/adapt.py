"""`xlingjax adapt`."""

import argparse
from argparse import Namespace

from xlingjax.cli.arguments import card_options, text_options
from xlingjax.cli.machine import machine_of
from xlingjax.cli.types import above_zero, place, positive
from xlingjax.cli.verb import FOREIGN, Verb


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the model: a run, a Hugging Face folder or id")
    parser.add_argument(
        "--to",
        dest="output",
        type=place,
        required=True,
        metavar="DIR",
        help="new; the same command goes on there",
    )
    text_options(parser)
    text = "files of gin/objectives, in turn: mlm,tlm (default %(default)s)"
    parser.add_argument("--objectives", default="mlm", metavar="A,B", help=text)
    parser.add_argument(
        "--hours",
        type=above_zero,
        metavar="H",
        help="of training and evaluation, as many steps as fit",
    )
    parser.add_argument("--steps", type=positive, metavar="N", help="instead of --hours")
    parser.add_argument(
        "--batch",
        type=positive,
        default=32,
        metavar="N",
        help="rows of a batch (default %(default)s)",
    )
    text = "tokens of a row (default %(default)s)"
    parser.add_argument("--length", type=positive, default=128, metavar="N", help=text)
    parser.add_argument(
        "--gold", metavar="DIR", help="word alignments, XX-en.txt beside XX-en.XX and XX-en.en"
    )
    card_options(parser)
    parser.add_argument(
        "--unverified", action="store_true", help="export without comparing with transformers"
    )
    parser.add_argument(
        "--keep-worse",
        action="store_true",
        help="export the adapted model even where it is worse on what was held out than the first",
    )


def run(args: Namespace) -> int:
    # Imports stand in the function, in every verb: --help must not wait for JAX.
    from xlingjax.config.gin_files import find_gin, gin_values
    from xlingjax.data.text.sources import split_list
    from xlingjax.runtime.machine import start
    from xlingjax.workflows.adapt.request import Request
    from xlingjax.workflows.adapt.run import Export, adapt

    # The recipe that is written includes them by path, so names of recipes are looked up here.
    files = tuple(str(find_gin(file) or file) for file in args.gin_file)
    request = Request(
        args.run.removeprefix(FOREIGN),
        tuple(args.mono),
        tuple(args.parallel),
        split_list(args.objectives),
        args.hours,
        args.steps,
        args.batch,
        args.length,
        args.gold,
        files,
        tuple(gin_values(args.overrides)),
    )
    machine = machine_of(args)
    # Before the model is opened: JAX settles on a platform when it is first used.
    start(machine)
    export = Export(args.unverified, args.language, args.license, args.base, args.keep_worse)
    return adapt(request, args.output, machine, export)


VERB = Verb(
    "adapt",
    "go on training a released model on your text, and write it as a folder that AutoModel opens",
    options,
    run,
    recipe=True,
)
