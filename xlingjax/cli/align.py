"""`xlingjax align`."""

import argparse
from argparse import Namespace

from xlingjax.cli.types import place, whole
from xlingjax.cli.verb import Verb, workdir_of
from xlingjax.runtime.lock import alone_at


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run; RUN@STEP; hf:FOLDER_OR_ID")
    parser.add_argument(
        "--output",
        type=place,
        required=True,
        metavar="PATH",
        help="the links",
    )
    text = "0: the embeddings (default: two thirds of the way up)"
    parser.add_argument("--layer", type=whole, metavar="N", help=text)
    parser.add_argument("--languages", nargs=2, required=True, metavar=("SRC", "TGT"))
    parser.add_argument(
        "--stem",
        required=True,
        metavar="STEM",
        help="files STEM.SRC and STEM.TGT, words with spaces between",
    )
    parser.add_argument("--method", default="itermax", choices=("itermax", "intersection"))


def run(args: Namespace) -> int:
    from xlingjax.workflows.files.encode import align

    how = {"layer": args.layer, "method": args.method}
    with alone_at(args.output):
        print(align(workdir_of(args.run), args.stem, tuple(args.languages), args.output, **how))
    return 0


VERB = Verb("align", "align the words of translated sentences: Pharaoh lines", options, run)
