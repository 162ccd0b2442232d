"""`xlingjax bakeoff`."""

import argparse
from argparse import Namespace
from pathlib import Path

from xlingjax.cli.machine import machine_words
from xlingjax.cli.verb import Verb


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workdir", required=True, metavar="DIR", help="where its runs live, and bakeoff.json"
    )


def run(args: Namespace) -> int:
    from xlingjax.config.recipe import read_part
    from xlingjax.workflows.bakeoff import page, runs

    config = read_part("bakeoff", runs.Bakeoff, args.gin_file, args.overrides)
    runs.require_readable(config, args.workdir)
    result = runs.run(config, args.workdir, arguments=machine_words(args))
    print(page.markdown(result))
    print(f"report: {page.write(result, Path(args.workdir))}")
    return 0


VERB = Verb(
    "bakeoff",
    "compare mixes of objectives: the same text, weights and tokens, several seeds",
    options,
    run,
    recipe=True,
)
