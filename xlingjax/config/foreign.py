"""Which modules a recipe has imported: those that the user's own files and flags name, and with
--trust those of the config.gin of a run, which may come from anywhere."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import gin

from xlingjax.config.gin_files import BINDING, IMPORT, Statement
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError
from xlingjax.runtime.modules import imported
from xlingjax.runtime.trust import is_trusted

TASKS = ("text.tasks", "corpus.tasks")
"""Whose values are modules; other parameters of this name are tasks of benchmarks."""


def import_modules(read: Sequence[Statement]) -> None:
    """Import what a recipe says, before gin does, whose message would be of its own call stack.
    Raises UserError for a module that cannot be imported, and for one that a run's own file alone
    names, unless all is trusted."""
    imports = [one for one in read if one.kind == IMPORT]
    named = _named(read)
    # All of them before the first is imported.
    for one in imports:
        _require_trusted(one.name, named, one, one.where)
    for one in imports:
        imported(one.name, one.where)


def require_trusted_tasks(read: Sequence[Statement]) -> None:
    """Raise UserError for modules that register SeqIO tasks and that a run's own file alone names,
    unless all is trusted: they are imported as those of an `import` are. Once all is bound."""
    # What is bound last holds.
    places = {one.name: one for one in read if one.kind == BINDING}
    named = _named(read)
    for bound, statement in places.items():
        if not bound.rpartition("/")[2].endswith(TASKS):
            continue
        for key, module in _modules(bound, gin.query_parameter(bound)):
            one = places.get(key, statement)
            _require_trusted(module, named, one, f"{one.where}: {key}")


def _named(read: Sequence[Statement]) -> set[str]:
    """The modules that the user's own files import, or that are typed as TASKS."""
    modules = {one.name for one in read if one.kind == IMPORT and not one.part.of_run}
    for one in read:
        if one.part.is_override and one.name.endswith(("TASKS", *TASKS)):
            modules.update(re.findall(r"[\w.]+", one.part.text.partition("=")[2]))
    return modules


def _modules(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """(what binds it, a module) of all that a value names, its macros followed."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from _modules(key, one)
    elif str(value).startswith("%"):
        name = str(value).removeprefix("%")
        yield from _modules(name, gin.query_parameter(f"{name}/macro.value"))
    elif isinstance(value, str):
        for module in split_list(value):
            yield key, module


def _require_trusted(module: str, named: set[str], by: Statement, where: str) -> None:
    known = module in named or f"{module}.".startswith("xlingjax.")
    if by.part.of_run and not known and not is_trusted():
        raise UserError(
            f"{where}: this file came with a run, and has module {module!r} imported, which may do"
            " anything: give --trust if you trust it (in Python trust=True)"
        )
