"""`xlingjax recipe`: what a recipe lets one set."""

import argparse
from argparse import Namespace

from xlingjax.cli.verb import Verb
from xlingjax.errors import UserError

_PIPED = 10_000
"""Columns where no terminal cuts the lines: a macro stays in one."""
_VALUE = 40
"""Columns of a value at most."""


def options(parser: argparse.ArgumentParser) -> None:
    text = "names of recipes, or gin files, read one after another (default: which there are)"
    parser.add_argument("recipe", nargs="*", metavar="NAME", help=text)


def run(args: Namespace) -> int:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from xlingjax.config.gin_files import REQUIRED, macros_of, recipes

    console = Console()
    if not console.is_terminal:
        console.width = _PIPED
    if not args.recipe:
        console.print("\n".join(recipes()), highlight=False)
        return 0
    macros = macros_of(args.recipe)
    if not macros:
        raise UserError(f"recipe {' '.join(args.recipe)}: no macros there")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("macro", no_wrap=True)
    table.add_column("value", overflow="fold", max_width=_VALUE)
    table.add_column("meaning", overflow="fold")
    table.add_column("file", overflow="fold")
    for macro in macros:
        style = ""
        # What the user must set stands out.
        if macro.value == REQUIRED:
            style = "bold"
        # As `Text`, or rich would take brackets in a value for its markup.
        cells = (macro.name, macro.value, macro.meaning, macro.file)
        table.add_row(*(Text(cell, style) for cell in cells))
    console.print(table)
    return 0


VERB = Verb(
    "recipe",
    "show what a recipe lets one set: each macro, its value, its meaning, its file",
    options,
    run,
)
