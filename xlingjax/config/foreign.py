"""Which modules a recipe has imported: those that the user's own files and flags name, and with
--trust those of the config.gin of a run, which may come from anywhere."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import gin

from xlingjax.config.gin_files import BINDING, IMPORT, Part, Statement, statements
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError
from xlingjax.runtime.modules import imported
from xlingjax.runtime.trust import is_trusted

TASKS = ("text.tasks", "corpus.tasks")
"""Whose values are modules; other parameters of this name are tasks of benchmarks."""


def import_modules(parts: Sequence[Part], overrides: Sequence[Part]) -> None:
    """Import what the parts of a recipe say, before gin does, whose message would be of its own
    call stack. Raises UserError for a module that cannot be imported, and for one that a run's own
    file alone names, unless all is trusted."""
    named = _named_in(overrides)
    imports = []
    for part, statement in _each(parts, IMPORT):
        imports.append((statement.name, part.place(statement.line), part.of_run))
        if not part.of_run:
            named.add(statement.name)
    # All of them before the first is imported.
    for module, where, of_run in imports:
        if of_run and module not in named:
            _require_trusted(module, where)
    for module, where, _ in imports:
        imported(module, where)


def require_trusted_tasks(parts: Sequence[Part], overrides: Sequence[Part]) -> None:
    """Raise UserError for modules that register SeqIO tasks and that a run's own file alone names,
    unless all is trusted: they are imported as those of an `import` are. Once all is bound."""
    # What is bound last holds.
    places = {statement.name: (part, statement) for part, statement in _each(parts, BINDING)}
    named = _named_in(overrides)
    for bound in places:
        if not bound.rpartition("/")[2].endswith(TASKS):
            continue
        for key, module in _modules(bound, gin.query_parameter(bound)):
            part, statement = places.get(key, places[bound])
            if part.of_run and module not in named:
                _require_trusted(module, f"{part.place(statement.line)}: {key}")


def _each(parts: Sequence[Part], kind: str) -> Iterator[tuple[Part, Statement]]:
    for part in parts:
        for statement in statements(part.text, part.where):
            if statement.kind == kind:
                yield part, statement


def _named_in(overrides: Sequence[Part]) -> set[str]:
    """The modules that the user names in TASKS or the parameters that it stands for."""
    modules: set[str] = set()
    for part in overrides:
        name, _, value = part.text.partition("=")
        if name.strip() == "TASKS" or name.strip().endswith(TASKS):
            modules.update(re.findall(r"[\w.]+", value))
    return modules


def _modules(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """(what binds it, a module) of all that a value names, its macros followed."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from _modules(key, one)
    elif isinstance(value, gin.config.ConfigurableReference):
        name = str(value).removeprefix("%")
        if str(value).startswith("%"):
            yield from _modules(name, gin.query_parameter(f"{name}/macro.value"))
    elif isinstance(value, str):
        for module in split_list(value):
            yield key, module


def _require_trusted(module: str, where: str) -> None:
    if is_trusted() or f"{module}.".startswith("xlingjax."):
        return
    raise UserError(
        f"{where}: this file came with a run, and has module {module!r} imported, which may do"
        " anything: give --trust if you trust it (in Python trust=True)"
    )
