"""`xlingjax score`."""

import argparse
import sys
from argparse import Namespace

from xlingjax.cli.verb import Verb


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--suite",
        required=True,
        choices=("xtreme", "xglue", "xnli", "applications"),
    )
    text = "TASK/test-CODE.tsv, or TASK/CODE.prediction"
    parser.add_argument(
        "--predictions",
        required=True,
        metavar="DIR",
        help=text,
    )
    text = (
        "the benchmark's folder; of xtreme also labels, one per line, in files named as its"
        " predictions"
    )
    parser.add_argument("--gold", required=True, metavar="DIR", help=text)
    text = "of the gold files (default %(default)s)"
    parser.add_argument(
        "--split",
        default="test",
        choices=("dev", "test"),
        help=text,
    )
    parser.add_argument(
        "--allow-missing",
        action="store_true",
        help="score what is there, and say what is not",
    )
    parser.add_argument(
        "--output",
        default="",
        metavar="FILE",
        help="also write everything here, as JSON",
    )


def run(args: Namespace) -> int:
    from rich.console import Console

    from xlingjax.evaluation.score_files import (
        footnotes,
        score_files,
        score_table,
        write_scores,
    )
    from xlingjax.tasks import suite_tasks

    scores = score_files(
        suite_tasks(args.suite),
        args.predictions,
        args.gold,
        args.split,
        args.allow_missing,
    )
    title = f"{args.suite}, {args.split}: {args.predictions}"
    width = None
    # A file has no width, and rich would cut the table at 80 columns.
    if not sys.stdout.isatty():
        width = 160
    Console(width=width).print(score_table(scores, title))
    for line in footnotes(scores):
        print(line)
    if args.output:
        record = {
            "suite": args.suite,
            "predictions": args.predictions,
            "gold": args.gold,
            **scores,
        }
        print(f"scores: {write_scores(record, args.output)}")
    return 0


VERB = Verb(
    "score",
    "score a benchmark's prediction files, in its submission format, against its gold files",
    options,
    run,
)
