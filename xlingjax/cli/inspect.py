"""`xlingjax inspect`."""

import argparse
from argparse import Namespace
from typing import Any

from xlingjax.cli.machine import machine_of
from xlingjax.cli.types import positive
from xlingjax.cli.verb import Verb, require_unread, workdir_of
from xlingjax.errors import UserError


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", nargs="?", metavar="RUN", help="with --pair: a run; RUN@STEP; hf:FOLDER_OR_ID"
    )
    group = parser.add_argument_group(
        "attention of a trained model, instead of what a recipe feeds one"
    )
    group.add_argument(
        "--pair",
        nargs=2,
        metavar=("TEXT", "TEXT"),
        help="a text and its translation: whom each of their pieces attends to",
    )
    group.add_argument("--languages", nargs=2, metavar=("SRC", "TGT"))
    text = "from 1 (default: the middle one)"
    group.add_argument("--layer", type=positive, metavar="N", help=text)
    text = "from 1 (default: the mean over all)"
    group.add_argument("--head", type=positive, metavar="N", help=text)
    group.add_argument(
        "--reset_positions",
        action=argparse.BooleanOptionalAction,
        help="positions begin anew at the second text, as XLM was trained (default: as the run was"
        " on pairs; of a model that does not tell they run on)",
    )
    parser.add_argument(
        "--rows", type=positive, metavar="N", help="rows shown per objective (default 2)"
    )
    parser.add_argument("--output", default="", metavar="DIR", help="also write inspect.html here")


def run(args: Namespace) -> int:
    if args.pair:
        return _attention(args)
    require_unread(
        args,
        ("run", "languages", "layer", "head", "reset_positions"),
        "without --pair a recipe alone is read",
    )
    from xlingjax.config.recipe import read_recipe
    from xlingjax.report.inspector import inspect
    from xlingjax.runtime.machine import start
    from xlingjax.workflows.launch import planned_course, stages_of, too_late

    recipe = read_recipe(args.gin_file, args.overrides)
    # Sources ask JAX which part of a batch this process has.
    start(machine_of(args))
    for message in too_late(recipe):
        print(f"warning: {message}")
    objectives: dict[str, tuple[Any, Any]] = {}
    # Those that are open are closed even where the next one cannot be opened.
    try:
        for name, stage in stages_of(recipe):
            objectives[name] = stage.objective, stage.source()
        inspect(
            objectives,
            recipe.corpus.vocabulary,
            record=planned_course(recipe),
            rows=args.rows or 2,
            output=args.output or None,
        )
    finally:
        for _, source in objectives.values():
            source.close()
    return 0


def _attention(args: Namespace) -> int:
    if args.gin_file or args.overrides:
        raise UserError(
            "inspect --pair: a run has its recipe; leave out --gin_file and --gin.NAME="
        )
    require_unread(args, ("rows",), "with --pair no rows of a recipe are shown")
    for value, option in ((args.run, "RUN"), (args.languages, "--languages")):
        if not value:
            raise UserError(
                f'inspect --pair: give {option} too: xlingjax inspect RUN --pair "TEXT" "TEXT"'
                " --languages de en"
            )
    from xlingjax.runtime.machine import start
    from xlingjax.workflows.files.attention import attention_of_pair

    start(machine_of(args))
    attention_of_pair(
        workdir_of(args.run),
        tuple(args.pair),
        tuple(args.languages),
        layer=args.layer,
        head=args.head,
        reset_positions=args.reset_positions,
        output=args.output,
    )
    return 0


VERB = Verb(
    "inspect",
    "show what a recipe feeds the model: pieces, targets, positions, languages, packing, masks; or"
    " whom the pieces of a pair attend to in a trained one",
    options,
    run,
    recipe=True,
)
