"""The macros of recipes as their gin files explain them: name, value, the comment behind it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from xlingjax.config.recipe import find_gin, gin_folder, parts_of

REQUIRED = "required"
_SET = re.compile(r"([A-Z][A-Z0-9_]*)\s*=\s*(.+?)(?:\s+#\s*(.*))?")


@dataclass(frozen=True)
class Macro:
    name: str
    value: str
    """As gin writes it; `REQUIRED` where a recipe does not start without one."""
    meaning: str
    """The comment behind it; "": none."""
    file: str


def macros_in(text: str, file: str) -> Iterator[Macro]:
    """Those that gin text sets, in its order; a value that goes over several lines is cut at its
    first."""
    for line in text.splitlines():
        found = _SET.fullmatch(line)
        if found:
            value = REQUIRED if found[2] == "%gin.REQUIRED" else found[2]
            yield Macro(found[1], value, found[3] or "", file)


def macros_of(files: Sequence[str]) -> list[Macro]:
    """Those of recipes and all that they include, by the order in which they are first set. The
    last value wins; where it has no comment, the meaning is the last one written before. Raises
    UserError for a missing file.
    """
    found: dict[str, Macro] = {}
    for text, where in parts_of(files):
        for macro in macros_in(text, _shown(where)):
            before = found.get(macro.name)
            if before and not macro.meaning:
                macro = replace(macro, meaning=before.meaning)
            found[macro.name] = macro
    return list(found.values())


def table(file: str) -> str:
    """The macros that one gin file sets, as Markdown: what docs/recipes.md shows of it. file:
    "runs/common.gin"."""
    path = find_gin(file)
    rows = ["| Macro | Default | Meaning |", "|---|---|---|"]
    for macro in macros_in(path.read_text(encoding="utf-8"), file):
        rows.append(f"| `{macro.name}` | {_cell(macro.value)} | {_cell(macro.meaning)} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return text.strip('"').replace("|", "\\|") or '""'


def _shown(where: str) -> str:
    """Of our own files what a recipe calls them: "runs/common.gin"."""
    return where.removeprefix(f"{gin_folder()}/")
