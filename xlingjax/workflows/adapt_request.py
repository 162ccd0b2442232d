"""What `xlingjax adapt` is requested to do."""

import dataclasses
import re
from pathlib import Path

from xlingjax.errors import UserError

OBJECTIVES = {
    "mlm": ("mlm",),
    "tlm": ("tlm",),
    "camlm": ("camlm",),
    "btmlm": ("btmlm",),
    "clwr": ("clwr",),
    "clpc": ("clpc",),
    "veco": ("veco_text", "veco"),
}
"""What --objectives knows: the gin names that a file of gin/objectives makes."""
ADDING = ("clwr", "clpc", "veco")
"""Those with parameters that a released model has not."""
OF_TEXT = ("mlm", "btmlm", "veco_text")
"""The gin names of those that read monolingual text; the others read pairs."""
_OPTION_OF = {"BATCH": "batch", "LENGTH": "length", "TRAIN_STEPS": "steps"}
"""Macros that an option says."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What the command line says; kept in adapted.json."""

    source: str
    mono: tuple[str, ...]
    parallel: tuple[str, ...]
    objectives: tuple[str, ...]
    hours: float | None
    steps: int | None
    batch: int
    length: int
    gold: str | None
    files: tuple[str, ...]
    overrides: tuple[str, ...]

    def __post_init__(self):
        self._require_objectives()
        if (self.hours is None) == (self.steps is None):
            raise UserError("give --hours or --steps: how long may it take?")
        if self.hours is not None and not self.hours > 0:
            raise UserError(f"--hours {self.hours} must be above 0")
        for macro, option in _OPTION_OF.items():
            if macro in self.given:
                raise UserError(
                    f"--gin.{macro}: give --{option} instead, from which the memory is planned"
                )
        for pattern in (*self.mono, *self.parallel):
            path = absolute(pattern)
            if " " in path or "," in path:
                raise UserError(
                    f"{path!r}: a recipe separates patterns by spaces and commas; rename the path"
                )

    def _require_objectives(self) -> None:
        for name in self.objectives:
            if name not in OBJECTIVES:
                raise UserError(
                    f"--objectives {name}: there are {', '.join(OBJECTIVES)}"
                )
            if name != "mlm" and not self.parallel:
                raise UserError(
                    f"--objectives {name} needs pairs: give --parallel, or leave {name} out"
                )
        if len({*self.objectives}) != len(self.objectives) or not self.objectives:
            raise UserError("--objectives: name each once, and at least one")

    @property
    def given(self) -> dict[str, str]:
        """{macro: value} of --gin."""
        return dict(override.split("=", 1) for override in self.overrides)

    @property
    def text(self) -> tuple[str, ...]:
        """Monolingual text; the sides of the pairs where there is no other."""
        return self.mono or self.parallel

    @property
    def names(self) -> list[str]:
        """The gin names of its objectives, in the order of their turns."""
        return [name for objective in self.objectives for name in OBJECTIVES[objective]]


def absolute(pattern: str) -> str:
    """So that the recipe is read from anywhere. pattern: as on the command line, "de=text/x*.txt"
    too."""
    code, path = re.fullmatch(
        r"([A-Za-z]{2,3}(?:[_-][A-Za-z]+)*=)?(.+)", pattern
    ).groups()
    return f"{code or ''}{Path(path).expanduser().absolute()}"
