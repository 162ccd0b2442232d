"""`xlingjax encode`."""

import argparse
from argparse import Namespace

from xlingjax.cli.types import POOLINGS, place, whole
from xlingjax.cli.verb import Verb, workdir_of
from xlingjax.runtime.lock import alone_at

LAYER = "the run's own, else best of its retrieval, else the last"
PREFIX = "text before every sentence, as 'query: ' (default: the run's own)"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run; RUN@STEP; hf:FOLDER_OR_ID")
    parser.add_argument(
        "--output",
        type=place,
        required=True,
        metavar="PATH",
        help=".npy is added where it is missing",
    )
    parser.add_argument(
        "--layer", type=whole, metavar="N", help=f"0: the embeddings (default: {LAYER})"
    )
    parser.add_argument("--input", required=True, metavar="FILE", help="one sentence per line")
    parser.add_argument("--language", required=True, metavar="CODE")
    parser.add_argument("--pooling", choices=POOLINGS, help="default: the run's own, else mean")
    parser.add_argument("--prefix", metavar="TEXT", help=PREFIX)


def run(args: Namespace) -> int:
    from xlingjax.workflows.encode import encode

    how = {"layer": args.layer, "pooling": args.pooling, "prefix": args.prefix}
    with alone_at(args.output):
        print(encode(workdir_of(args.run), args.input, args.language, args.output, **how))
    return 0


VERB = Verb("encode", "write a vector of every line of a file, float32 in .npy", options, run)
