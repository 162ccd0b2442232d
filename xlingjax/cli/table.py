"""`xlingjax table`."""

import argparse
from argparse import Namespace

from xlingjax.cli.machine import machine_words
from xlingjax.cli.verb import Verb


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        required=True,
        metavar="DIR",
        help="folder of the benchmarks' files",
    )
    parser.add_argument(
        "--to",
        dest="output",
        required=True,
        metavar="DIR",
        help="a folder ENCODER/ROW for each sweep; encoders/ENCODER, rows/ROW",
    )


def run(args: Namespace) -> int:
    from xlingjax.config.recipe import read_part
    from xlingjax.workflows import paper_tables
    from xlingjax.workflows.table_page import show

    config = read_part(
        "table",
        paper_tables.Table,
        args.gin_file,
        args.overrides,
    )
    paper_tables.run(config, args.data, args.output, machine_words(args))
    print(show(config, args.data, args.output))
    return 0


VERB = Verb(
    "table",
    "run the fine-tunings behind a table of a paper, gin/recipes/tables, from your encoders",
    options,
    run,
    recipe=True,
)
