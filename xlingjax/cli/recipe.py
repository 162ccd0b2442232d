"""`xlingjax recipe`: what a recipe lets one set."""

import argparse
from argparse import Namespace

from xlingjax.cli.verb import Verb
from xlingjax.errors import UserError


def options(parser: argparse.ArgumentParser) -> None:
    text = "names of recipes, or gin files, read one after another (default: which there are)"
    parser.add_argument("recipe", nargs="*", metavar="NAME", help=text)


def run(args: Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from xlingjax.config.macros import REQUIRED, macros_of
    from xlingjax.config.recipe import recipes

    console = Console()
    if not args.recipe:
        console.print("\n".join(recipes()), highlight=False)
        return 0
    macros = macros_of(args.recipe)
    if not macros:
        raise UserError(f"recipe {' '.join(args.recipe)}: no macros there")
    table = Table("macro", "value", "meaning", "file", box=None, header_style="bold")
    for macro in macros:
        style = "bold" if macro.value == REQUIRED else None
        table.add_row(f"--gin.{macro.name}", macro.value, macro.meaning, macro.file, style=style)
    console.print(table, highlight=False)
    return 0


VERB = Verb(
    "recipe",
    "show what a recipe lets one set: each macro, its value, its meaning, its file",
    options,
    run,
)
