"""Which modules a recipe has imported: those that the user's own files and flags name, and with
--trust those of the config.gin of a run, which may come from anywhere."""

from collections.abc import Iterable, Mapping, Sequence

from xlingjax.config.gin_files import Part
from xlingjax.config.statements import BINDING, IMPORT, statements
from xlingjax.errors import UserError
from xlingjax.runtime.modules import imported
from xlingjax.runtime.trust import is_trusted


def import_modules(parts: Sequence[Part], named: Iterable[str] = ()) -> None:
    """Import what the parts of a recipe say, before gin does, whose message would be of its own
    call stack. named: modules that the user names otherwise, by TASKS. Raises UserError for one
    that cannot be imported, and for one that a run's own file alone names, unless all is trusted.
    """
    found = []
    own = {*named}
    for part in parts:
        for statement in statements(part.text, part.where):
            if statement.kind != IMPORT:
                continue
            where = f"{part.where}, line {statement.line}"
            found.append((statement.name, where, part.of_run))
            if not part.of_run:
                own.add(statement.name)
    # All of them before the first is imported.
    for module, where, of_run in found:
        if of_run and module not in own:
            require_trusted(module, where)
    for module, where, _ in found:
        imported(module, where)


def require_trusted(module: str, where: str) -> None:
    """Raises UserError for a module that a run's own file names, unless it is xlingjax's or all is
    trusted."""
    if is_trusted() or f"{module}.".startswith("xlingjax."):
        return
    raise UserError(
        f"{where}: this file came with a run, and has module {module!r} imported, which may do"
        " anything: give --trust if you trust it (in Python trust=True)"
    )


def bound_in_run(parts: Sequence[Part]) -> Mapping[str, str]:
    """{name: where} of what a run's own file binds and no later one."""
    places: dict[str, str] = {}
    for part in parts:
        for statement in statements(part.text, part.where):
            if statement.kind != BINDING:
                continue
            places.pop(statement.name, None)
            if part.of_run:
                places[statement.name] = f"{part.where}, line {statement.line}: {statement.name}"
    return places
