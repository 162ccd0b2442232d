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
        "--rows", type=positive, default=4, help="rows tested per objective (default %(default)s)"
    )


def run(args: Namespace) -> int:
    from rich.console import Console

    from xlingjax.config.recipe import read_recipe
    from xlingjax.model.build import build_model
    from xlingjax.objectives.verify import table, verify
    from xlingjax.runtime.machine import start
    from xlingjax.workflows.launch import stages_of

    recipe = read_recipe(args.gin_file, args.overrides)
    stages = []
    silent = []
    for name, stage in stages_of(recipe):
        # Fine-tuning, for one, promises nothing of whose words a prediction depends on.
        if stage.objective.evidence():
            stages.append((name, stage))
        else:
            silent.append(name)
    if not stages:
        raise UserError(
            f"verify tests what objectives predict of hidden words; {', '.join(silent)} promises"
            " nothing of it: give a recipe of pretraining"
        )
    if silent:
        print(f"not tested, since they predict no hidden words: {', '.join(silent)}")
    machine = start(machine_of(args))
    config = recipe.bound["model"]
    objectives: dict[str, tuple[Any, Any]] = {}
    # Those that are open are closed even where the next one cannot be opened.
    try:
        for name, stage in stages:
            objectives[name] = stage.objective, stage.source()
        findings = list(verify(objectives, build_model(config), args.rows))
    finally:
        for _, source in objectives.values():
            source.close()
    # What holds on one backend, precision and machine is not proved of another.
    title = f"{config.attention_backend} attention, {config.dtype}, {machine}"
    Console().print(table(findings, title))
    # So that a script that verifies before it trains stops.
    if any(finding.verdict != "ok" for finding in findings):
        return 1
    return 0


VERB = Verb(
    "verify",
    "test on this machine that every prediction of a recipe depends on what its objective promises"
    " and nothing else",
    options,
    run,
    recipe=True,
)
