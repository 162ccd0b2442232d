"""`xlingjax data check`."""

import argparse
from argparse import Namespace

from xlingjax.cli.arguments import Parser, text_options
from xlingjax.cli.types import positive
from xlingjax.cli.verb import Verb


def options(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        dest="action",
        metavar="check",
        required=True,
        parser_class=Parser,
    )
    text = (
        "find what is wrong with a corpus, and what a run would read of it; exit 1 when something"
        " must be repaired"
    )
    check = actions.add_parser("check", help=text, description=text)
    text_options(check)
    check.add_argument(
        "--vocabulary",
        metavar="PATH",
        help="adds tokens, epochs per language, unknown pieces, cache size",
    )
    check.add_argument(
        "--length",
        type=positive,
        default=256,
        help="tokens in a row (default %(default)s)",
    )
    check.add_argument(
        "--batch",
        type=positive,
        default=64,
        help="rows in a batch (default %(default)s)",
    )
    check.add_argument(
        "--steps",
        type=positive,
        help="steps of the run, for its epochs (default: 1000)",
    )
    check.add_argument(
        "--alpha",
        type=float,
        default=0.7,
        help="languages are drawn by share ** alpha (default %(default)s)",
    )


def run(args: Namespace) -> int:
    from xlingjax.data.check import check
    from xlingjax.data.sampling import Sampling
    from xlingjax.data.vocabulary.sentencepiece import Vocabulary

    vocabulary = None
    if args.vocabulary:
        vocabulary = Vocabulary.load(args.vocabulary)
    findings = check(
        args.mono,
        args.parallel,
        vocabulary,
        batch=args.batch,
        length=args.length,
        steps=args.steps,
        sampling=Sampling(alpha=args.alpha),
    )
    print(findings.text())
    # So that a script stops where something must be repaired.
    if findings.errors:
        return 1
    return 0


VERB = Verb("data", "look at a corpus before a run", options, run)
