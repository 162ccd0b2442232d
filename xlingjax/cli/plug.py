"""`xlingjax plug`: VECO's cross-attention, out of a model or into one."""

import argparse
from argparse import Namespace

from xlingjax.cli.types import place, seed
from xlingjax.cli.verb import Verb, require_unread, workdir_of


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("direction", choices=("out", "in"))
    parser.add_argument("run", metavar="RUN", help="a run; RUN@STEP; hf:FOLDER_OR_ID")
    parser.add_argument(
        "--output", type=place, required=True, metavar="DIR", help="a new workdir, for INIT_FROM"
    )
    parser.add_argument(
        "--source", metavar="RUN", help="with in: take its cross-attention (default: a random one)"
    )
    parser.add_argument("--seed", type=seed, help="with in: of a random one (default 0)")


def run(args: Namespace) -> int:
    from xlingjax.convert.cross_attention import plug_in, plug_out

    if args.direction == "out":
        require_unread(args, ("source", "seed"), "only plug in reads this")
        print(plug_out(workdir_of(args.run), args.output))
        return 0
    if args.source:
        require_unread(args, ("seed",), "the cross-attention of --source is not drawn")
    # 0 here and not as a default, so that a seed that was given is known from none.
    seed = args.seed or 0
    print(plug_in(workdir_of(args.run), args.output, args.source, seed))
    return 0


VERB = Verb(
    "plug",
    "write a trained model with its cross-attention plugged out, or plugged in",
    options,
    run,
)
