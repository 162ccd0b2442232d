"""`xlingjax verify`."""

import argparse
from argparse import Namespace
from typing import Any

from xlingjax.cli.machine import machine_of
from xlingjax.cli.types import positive
from xlingjax.cli.verb import Verb
from xlingjax.errors import UserError


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rows",
        type=positive,
        default=4,
        help="rows tested per objective (default %(default)s)",
    )


def run(args: Namespace) -> int:
    from rich.console import Console

    from xlingjax.config.recipe import read_recipe
    from xlingjax.model.build import build_model
    from xlingjax.objectives.verify import table, verify
    from xlingjax.runtime.machine import start
    from xlingjax.workflows.launch import stages_of

    recipe = read_recipe(args.gin_file, args.overrides)
    stages = [
        (name, stage) for name, stage in stages_of(recipe) if stage.objective.evidence()
    ]
    silent = [
        name for name, stage in stages_of(recipe) if not stage.objective.evidence()
    ]
    if not stages:
        raise UserError(
            f"verify tests what objectives predict of hidden words; {', '.join(silent)} promises"
            " nothing of it: give a recipe of pretraining"
        )
    if silent:
        print(f"not tested, since they predict no hidden words: {', '.join(silent)}")
    machine, config = start(machine_of(args)), recipe.bound["model"]
    objectives: dict[str, tuple[Any, Any]] = {}
    try:
        for name, stage in stages:
            objectives[name] = stage.objective, stage.source()
        findings = list(verify(objectives, build_model(config), args.rows))
    finally:
        for _, source in objectives.values():
            source.close()
    Console().print(
        table(
            findings, f"{config.attention_backend} attention, {config.dtype}, {machine}"
        )
    )
    return 0 if all(found.verdict == "ok" for found in findings) else 1


VERB = Verb(
    "verify",
    "test on this machine that every prediction of a recipe depends on what its objective promises"
    " and nothing else",
    options,
    run,
    recipe=True,
)
