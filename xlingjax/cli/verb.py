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


def workdir_of(run: str) -> str:
    """The workdir of RUN: itself (a workdir, RUN@STEP, RUN@METRIC), or the import of a model of
    Hugging Face, "hf:FOLDER_OR_ID". Raises UserError."""
    if not run.startswith(FOREIGN):
        return run
    from xlingjax.convert.import_model import imported

    return str(imported(run.removeprefix(FOREIGN)))


def require_unread(args: Namespace, names: tuple[str, ...], why: str) -> None:
    """Raises UserError where one of these options is given."""
    flags = {"run": "RUN"}
    # Other verbs have --source and --output where sweeps have these.
    if "data" in args:
        flags |= {"output": "--to"}
    given = []
    for name in names:
        if getattr(args, name) is not None:
            given.append(flags.get(name, f"--{name}"))
    if given:
        raise UserError(f"{', '.join(given)}: {why}; leave it out")
