"""Packages that an extra installs, imported where a step needs one."""

from __future__ import annotations

import importlib
from types import ModuleType

from xlingjax.errors import UserError


def package(name: str, step: str, install: str = "xlingjax[clean]") -> ModuleType:
    """The package, imported. Raises UserError: which step needs it, how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        message = f"{step} needs the package {name}: `pip install '{install}'`"
        raise UserError(message) from None
