"""`xlingjax mine`: pairs of two texts, or wrong partners of pairs."""

import argparse
from argparse import Namespace
from pathlib import Path

from xlingjax.cli.encode import LAYER, PREFIX
from xlingjax.cli.machine import machine_of
from xlingjax.cli.types import POOLINGS, number, place, positive, seed, share, whole
from xlingjax.cli.verb import Verb, require_unread, workdir_of
from xlingjax.errors import UserError
from xlingjax.runtime.lock import alone_at

# What either use of the verb reads, and the other refuses.
OF_RUN = ("run", "languages", "files", "layer", "pooling", "prefix", "margin", "threshold")
OF_NEGATIVES = ("parallel", "vocabulary", "steps", "random_share", "platform")
OF_IVF = ("lists", "probes")


def options(parser: argparse.ArgumentParser) -> None:
    # Hardly any has a default: what is given to the other use of the verb is refused.
    parser.add_argument("run", nargs="?", metavar="RUN", help="a run; RUN@STEP; hf:FOLDER_OR_ID")
    parser.add_argument(
        "--output",
        type=place,
        required=True,
        metavar="PATH",
        help="stem of PATH.SRC-TGT.tsv; with --negatives a folder",
    )
    parser.add_argument("--languages", nargs=2, metavar=("SRC", "TGT"))
    parser.add_argument("--files", nargs=2, metavar=("SRC_FILE", "TGT_FILE"))
    parser.add_argument(
        "--layer", type=whole, metavar="N", help=f"0: the embeddings (default: {LAYER})"
    )
    parser.add_argument("--pooling", choices=POOLINGS, help="default: the run's own, else mean")
    parser.add_argument("--prefix", metavar="TEXT", help=PREFIX)
    parser.add_argument(
        "--neighbours", type=positive, metavar="K", help="default 4; with --negatives 10"
    )
    parser.add_argument("--margin", choices=("ratio", "distance", "absolute"), help="default ratio")
    parser.add_argument("--threshold", type=number, help="lowest score kept (default: all)")
    text = "tables for CLPC: sentences that look like a translation"
    parser.add_argument("--negatives", action="store_true", help=text)
    parser.add_argument("--parallel", nargs="+", metavar="GLOB", help="with --negatives: the pairs")
    parser.add_argument("--vocabulary", metavar="PATH", help="with --negatives")
    parser.add_argument(
        "--steps", type=positive, help="with --negatives: of the light model (default 2000)"
    )
    parser.add_argument(
        "--random_share", type=share, help="with --negatives: share left to chance (default 0.1)"
    )
    parser.add_argument(
        "--seed", type=seed, help="of --negatives, and of the lists of ivf (default 0)"
    )
    parser.add_argument(
        "--search",
        choices=("exact", "ivf"),
        help="ivf: approximate, for large texts (default: exact; large texts need a choice)",
    )
    parser.add_argument(
        "--lists",
        type=positive,
        metavar="N",
        help="of ivf (default: 4 times the root of the lines)",
    )
    parser.add_argument(
        "--probes",
        type=positive,
        metavar="N",
        help="of ivf: lists that each sentence looks through (default 32)",
    )
    parser.add_argument(
        "--platform", help="with --negatives: cpu, gpu or tpu (default: what JAX finds)"
    )
    # --platform alone: what reads the machine's options expects both.
    parser.set_defaults(devices=None)


def run(args: Namespace) -> int:
    if args.search != "ivf":
        require_unread(args, OF_IVF, "only --search ivf reads this")
    if args.negatives:
        with alone_at(args.output):
            return _negatives(args)
    from xlingjax.workflows.mine import mine

    if not args.run or not args.files or not args.languages:
        raise UserError(
            "mine needs RUN, --files SRC_FILE TGT_FILE and --languages SRC TGT (or --negatives)"
        )
    require_unread(args, OF_NEGATIVES, "only mine --negatives reads this")
    if args.search != "ivf":
        require_unread(args, ("seed",), "only mine --negatives and --search ivf read this")
    table = f"{args.output}.{'-'.join(args.languages)}.tsv"
    with alone_at(table):
        print(
            mine(
                workdir_of(args.run),
                tuple(args.files),
                tuple(args.languages),
                args.output,
                layer=args.layer,
                pooling=args.pooling,
                prefix=args.prefix,
                # The paper's default, and another one of --negatives, so argparse can have none.
                k=args.neighbours or 4,
                margin=args.margin or "ratio",
                threshold=args.threshold,
                search=args.search,
                lists=args.lists,
                probes=args.probes,
                seed=args.seed or 0,
            )
        )
    return 0


def _negatives(args: Namespace) -> int:
    from xlingjax.data.vocabulary.sentencepiece import Vocabulary
    from xlingjax.inference.negatives import NegativesConfig, write_negatives

    require_unread(args, OF_RUN, "mine --negatives reads pairs and no RUN")
    if not args.parallel or not args.vocabulary:
        raise UserError("mine --negatives reads --parallel pairs by a --vocabulary; give both")
    options = {
        "steps": args.steps,
        "k": args.neighbours,
        "random_share": args.random_share,
        "seed": args.seed,
        "search": args.search,
        "lists": args.lists,
        "probes": args.probes,
    }
    given = {}
    # The configuration has the defaults of the others.
    for name, value in options.items():
        if value is not None:
            given[name] = value
    config = NegativesConfig(**given)
    vocabulary = Vocabulary.load(args.vocabulary)
    write_negatives(args.parallel, vocabulary, Path(args.output), config, runtime=machine_of(args))
    return 0


VERB = Verb(
    "mine",
    "find sentences of two texts that translate each other; or, of pairs, wrong partners to learn"
    " from",
    options,
    run,
)
