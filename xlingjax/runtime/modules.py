"""Modules that a user names: in `import` of a gin file, TASKS, --tasks."""

import importlib
import traceback
from typing import Any

from xlingjax.errors import UserError


def imported(name: str, where: str) -> Any:
    """The module. Raises UserError beginning with `where` for whatever goes wrong in it."""
    try:
        return importlib.import_module(name)
    except UserError as error:
        raise UserError(f"{where}: module {name}: {error}") from None
    # A module is a program of the user, which may do anything: SystemExit too.
    except (Exception, SystemExit) as error:
        raise UserError(f"{where}: {_cause(name, error)}") from None


def _cause(name: str, error: BaseException) -> str:
    message = (str(error).splitlines() or [""])[0]
    line = f"module {name} cannot be imported: {type(error).__name__}: {message}"
    if isinstance(error, ModuleNotFoundError):
        line += " (PYTHONPATH=. adds this folder)"
    # The innermost line that is the user's: syntax errors name theirs themselves.
    frames = traceback.extract_tb(error.__traceback__)
    if frames and not isinstance(error, ImportError | SyntaxError):
        line += f" ({frames[-1].filename}, line {frames[-1].lineno})"
    return line
