"""`xlingjax import`."""

import argparse
from argparse import Namespace

from xlingjax.cli.types import POOLINGS, place, whole
from xlingjax.cli.verb import FOREIGN, Verb


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="MODEL", help="its folder, file or hub id")
    parser.add_argument(
        "--to",
        dest="output",
        type=place,
        required=True,
        metavar="DIR",
        help="a new workdir, for INIT_FROM",
    )
    parser.add_argument(
        "--unverified", action="store_true", help="write it without comparing it with transformers"
    )
    text = (
        "of its sentence vectors (default: what 1_Pooling/config.json and the files beside it say)"
    )
    parser.add_argument("--pooling", choices=POOLINGS, help=text)
    parser.add_argument(
        "--prefix", metavar="TEXT", help="of them, before every sentence: 'query: '"
    )
    parser.add_argument(
        "--layer", type=whole, metavar="N", help="of them, 0: the embeddings (default: the last)"
    )


def run(args: Namespace) -> int:
    from xlingjax.convert.import_model import import_model

    # Other verbs name such a model by hf:, so it may be typed here too.
    source = args.run.removeprefix(FOREIGN)
    print(
        import_model(
            source, args.output, not args.unverified, args.layer, args.pooling, args.prefix
        )
    )
    return 0


VERB = Verb(
    "import",
    "turn a model of another program into a workdir to start from, compared with the original"
    " first",
    options,
    run,
)
