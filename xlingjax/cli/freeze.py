"""`xlingjax freeze`."""

import argparse
from argparse import Namespace
from pathlib import Path

from xlingjax.cli.machine import machine_of
from xlingjax.cli.types import place, positive
from xlingjax.cli.verb import Verb
from xlingjax.runtime.lock import alone_at


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--batches", type=positive, required=True, metavar="N", help="batches per objective"
    )
    parser.add_argument(
        "--output", type=place, required=True, metavar="DIR", help="folder for OBJECTIVE.frozen"
    )


def run(args: Namespace) -> int:
    with alone_at(args.output):
        return _freeze(args)


def _freeze(args: Namespace) -> int:
    """OBJECTIVE.frozen for every objective, and the vocabulary, in one folder: all that training
    needs elsewhere."""
    from xlingjax.config.recipe import read_recipe
    from xlingjax.data.frozen import write_frozen
    from xlingjax.runtime.files import write_bytes
    from xlingjax.runtime.machine import start
    from xlingjax.workflows.launch import stages_of

    recipe = read_recipe(args.gin_file, args.overrides)
    # A source asks JAX which part of a batch this process has.
    start(machine_of(args))
    folder = Path(args.output)
    for name, stage in stages_of(recipe):
        source = stage.source()
        # It reads ahead in threads, which must end even where the disk is full.
        try:
            path = write_frozen(source, folder / f"{name}.frozen", args.batches)
        finally:
            source.close()
        print(f"{path}: {args.batches} batches, {path.stat().st_size / 2**20:.1f} MiB")
    # The ids of the batches mean nothing without it, and the text need not come along.
    for name, content in recipe.corpus.vocabulary.files().items():
        write_bytes(folder / name, content)
    return 0


VERB = Verb(
    "freeze",
    "write a recipe's batches to files that train without TensorFlow",
    options,
    run,
    recipe=True,
)
