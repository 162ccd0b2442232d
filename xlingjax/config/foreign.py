"""What the config.gin of a run may do, which may come from anywhere: bind names of xlingjax to
values. Modules are imported, and addresses read, that the user's own files and flags name; others
with --trust. Decided of the values that gin hands over, however they are written."""

from collections.abc import Collection, Sequence
from typing import Any

from xlingjax.config.gin_files import BINDING, IMPORT, Statement, words_in
from xlingjax.errors import SettingError, UserError
from xlingjax.runtime.modules import imported
from xlingjax.runtime.trust import is_trusted

MODULES = {("text", "tasks"), ("corpus", "tasks")}  # import modules; others are benchmarks' tasks
_REMEDY = "give --trust if you trust it (in Python trust=True)"

# Of the recipe that gin holds: {word that the user wrote} where a run's own file is part of it and
# is not trusted; None: all is allowed.
_named: frozenset[str] | None = None


def read_statements(read: Sequence[Statement], bindable: Collection[str]) -> None:
    """Import what a recipe says, before gin does, whose message would be of its own call stack.
    Raises UserError for a module that cannot be imported, and, unless all is trusted, for one that
    a run's own file alone names, and for names in it that are not `bindable`."""
    global _named
    own = [one for one in read if not one.part.of_run]
    imports = [one for one in read if one.kind == IMPORT]
    _named = None
    if len(own) < len(read) and not is_trusted():
        named = {one.name for one in own if one.kind == IMPORT}
        for one in own:
            of_modules = one.name.lower().endswith("tasks")
            named.update(word for word in one.words if of_modules or is_address(word))
        _named = frozenset(named)
        foreign = [one for one in read if one.part.of_run]
        # All of them before the first is imported.
        for one in foreign:
            if one.kind == IMPORT and not _is_allowed_module(one.name):
                raise UserError(
                    f"{one.where}: this file came with a run, and has module {one.name!r} imported,"
                    f" which may do anything: {_REMEDY}"
                )
            _require_bindable(one, bindable)
    for one in imports:
        imported(one.name, one.where)


def _require_bindable(one: Statement, bindable: Collection[str]) -> None:
    bound = [one.name.rpartition(".")[0]] if one.kind == BINDING and not one.is_macro else []
    for name in sorted({*bound, *one.references}):
        if name.rpartition("/")[2].removeprefix("xlingjax.") not in bindable:
            raise UserError(
                f"{one.where}: this file came with a run, and {name} is no name of xlingjax's"
                f" recipes: {_REMEDY}"
            )


def require_allowed(parameter: str, value: Any, function: str = "") -> None:
    """Raises SettingError for an argument of the function, or a macro, that a run's own file may
    not have given."""
    if _named is None:
        return
    for word in words_in(value):
        if (function, parameter) in MODULES and not _is_allowed_module(word):
            needed = f"this file came with a run, and has module {word!r} imported: --trust"
            raise SettingError(parameter, value, needed)
        if is_address(word) and word not in _named:
            needed = f"this file came with a run, and has {word!r} fetched: --trust"
            raise SettingError(parameter, value, needed)


def is_address(word: str) -> bool:
    """Whether it is of another machine: of a store, a server, the hub."""
    return "://" in word or "::" in word or word.startswith("hf:")


def _is_allowed_module(name: str) -> bool:
    return _named is None or name in _named or f"{name}.".startswith("xlingjax.")
