"""`xlingjax bakeoff`."""

import argparse
from argparse import Namespace
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from xlingjax.cli.machine import machine_words
from xlingjax.cli.verb import Verb


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workdir",
        required=True,
        metavar="DIR",
        help="where its runs live, and bakeoff.json",
    )


def run(args: Namespace) -> int:
    from rich.console import Console

    from xlingjax.config.recipe import read_part, read_recipe
    from xlingjax.workflows import bakeoff
    from xlingjax.workflows.bakeoff_page import table, write

    def read(line: Sequence[str]) -> str:
        files = [value for flag, value in pairwise(line) if flag == "--gin_file"]
        overrides = [
            word.removeprefix("--gin.") for word in line if word.startswith("--gin.")
        ]
        return read_recipe(files, overrides).config

    config = read_part("bakeoff", bakeoff.Bakeoff, args.gin_file, args.overrides)
    found = bakeoff.run(config, args.workdir, read, arguments=machine_words(args))
    Console(width=240).print(table(found))
    print(f"report: {write(found, Path(args.workdir))}")
    return 0


VERB = Verb(
    "bakeoff",
    "compare mixes of objectives: the same text, weights and tokens, several seeds",
    options,
    run,
    recipe=True,
)
