"""What a verb of the command line is. Each stands in a file of its own: its options beside what it
does."""

import argparse
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass

from xlingjax.errors import UserError

# That of config/recipe.py, which imports gin and the library: --help has to answer at once.
FOREIGN = "hf:"


@dataclass(frozen=True)
class Verb:
    name: str
    help: str
    """One line, in lower case, without a full stop."""
    options: Callable[[argparse.ArgumentParser], None]
    """Adds its options. Light: `xlingjax --help` asks every verb."""
    run: Callable[[Namespace], int]
    """Does it; the exit status. Heavy imports stand inside. Raises UserError."""
    recipe: bool = False
    """It reads a recipe: --gin_file, --gin.NAME=VALUE (`args.overrides`), --platform, --devices."""


# ---- RUN: named alike by every verb --------------------------------------------------------------


def run_option(parser: argparse.ArgumentParser, help: str, old: str = "--from") -> None:
    """The positional RUN; `old`, how it was once spelled, is understood too."""
    # Optional to argparse, since the old spelling gives it as well.
    parser.add_argument("run", nargs="?", metavar="RUN", help=help)
    parser.add_argument(old, dest="run_once", metavar="RUN", help=argparse.SUPPRESS)


def given_run(args: Namespace) -> str | None:
    """RUN as it is written, however it is spelled; None: it is not. Raises UserError where it is
    given twice."""
    if args.run and args.run_once:
        raise UserError(f"{args.name}: {args.run} and {args.run_once}: which run? Give one")
    return args.run or args.run_once


def named_run(args: Namespace) -> str:
    """RUN: a workdir, RUN@STEP, RUN@METRIC; of "hf:FOLDER_OR_ID" the workdir of its import. Raises
    UserError."""
    run = given_run(args)
    if run is None:
        raise UserError(f"{args.name}: which run? Give RUN (see xlingjax {args.name} --help)")
    return workdir_of(run)


def workdir_of(run: str) -> str:
    """The run; of a model of Hugging Face its import."""
    if not run.startswith(FOREIGN):
        return run
    from xlingjax.convert.import_model import imported

    return str(imported(run.removeprefix(FOREIGN)))


def require_unread(args: Namespace, names: tuple[str, ...], why: str) -> None:
    """Raises UserError where one of these options is given."""
    flags = {"run": "RUN"}
    # Other verbs have --source and --output where sweeps have these.
    if "data" in args:
        flags |= {"source": "--from", "output": "--to"}
    given = []
    for name in names:
        if getattr(args, name) is not None:
            given.append(flags.get(name, f"--{name}"))
    if given:
        raise UserError(f"{', '.join(given)}: {why}; leave it out")
