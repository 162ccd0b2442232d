"""`xlingjax bakeoff`."""

import argparse
from argparse import Namespace
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from xlingjax.cli.machine import machine_words
from xlingjax.cli.verb import Verb
from xlingjax.errors import UserError


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workdir", required=True, metavar="DIR", help="where its runs live, and bakeoff.json"
    )


def run(args: Namespace) -> int:
    from rich.console import Console

    from xlingjax.config.recipe import parse_gin, read_part, read_recipe
    from xlingjax.workflows import bakeoff
    from xlingjax.workflows.bakeoff_page import table, write

    def read(line: Sequence[str]) -> str:
        return read_recipe(*_recipe(line)).config

    config = read_part("bakeoff", bakeoff.Bakeoff, args.gin_file, args.overrides)
    for what, line in bakeoff.lines(config, args.workdir):
        try:
            parse_gin(*_recipe(line))
        except UserError as error:
            raise UserError(f"bakeoff, {what}: {error}") from None
    result = bakeoff.run(config, args.workdir, read, arguments=machine_words(args))
    # Wide, since a line of the table that wraps cannot be read.
    Console(width=240).print(table(result))
    print(f"report: {write(result, Path(args.workdir))}")
    return 0


def _recipe(line: Sequence[str]) -> tuple[list[str], list[str]]:
    """(gin files, overrides) of a command line, as the run's own process will read its words."""
    files = []
    overrides = []
    for word, following in pairwise([*line, ""]):
        if word == "--gin_file":
            files.append(following)
        elif word.startswith("--gin."):
            overrides.append(word.removeprefix("--gin."))
    return files, overrides


VERB = Verb(
    "bakeoff",
    "compare mixes of objectives: the same text, weights and tokens, several seeds",
    options,
    run,
    recipe=True,
)
