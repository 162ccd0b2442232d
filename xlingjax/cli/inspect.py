"""`xlingjax inspect`."""

import argparse
from argparse import Namespace
from typing import Any

from xlingjax.cli.machine import machine_of
from xlingjax.cli.types import positive
from xlingjax.cli.verb import Verb


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rows",
        type=positive,
        default=2,
        help="rows shown per objective (default %(default)s)",
    )
    parser.add_argument(
        "--tokens",
        action="store_true",
        help="also a line for each token: column, piece, target, position, language, pack, side",
    )
    parser.add_argument(
        "--output",
        default="",
        metavar="DIR",
        help="also write HTML and PNG here",
    )


def run(args: Namespace) -> int:
    from xlingjax.config.recipe import read_recipe
    from xlingjax.report.inspector import inspect
    from xlingjax.report.negatives import read
    from xlingjax.runtime.machine import start
    from xlingjax.workflows.launch import planned_course, stages_of

    recipe = read_recipe(args.gin_file, args.overrides)
    # Sources ask JAX which part of a batch this process has.
    start(machine_of(args))
    tables = read(recipe.corpus.negatives)
    objectives: dict[str, tuple[Any, Any]] = {}
    # Those that are open are closed even where the next one cannot be opened.
    try:
        for name, stage in stages_of(recipe):
            objectives[name] = stage.objective, stage.source()
        inspect(
            objectives,
            recipe.corpus.vocabulary,
            record=planned_course(recipe),
            tables=tables,
            rows=args.rows,
            tokens=args.tokens,
            output=args.output or None,
        )
    finally:
        for _, source in objectives.values():
            source.close()
    return 0


VERB = Verb(
    "inspect",
    "show what a recipe feeds the model: pieces, targets, positions, languages, packing, masks",
    options,
    run,
    recipe=True,
)
