"""A case: what a user does, and what he should be told."""

import dataclasses
from collections.abc import Callable

from benchmarks.faults.place import Place, Said


@dataclasses.dataclass(frozen=True)
class Case:
    """`run` makes the input in the place and gives what was said."""

    what: str
    """In a few words."""
    run: Callable[[Place], Said]
    needed: str
    """A part of the line that it gets."""
    status: tuple[int, ...] = (2,)
    slow: bool = False
    """It takes more than a second or so."""

    def fault(self, said: Said) -> str:
        """What is wrong with how it ended; "": nothing."""
        if said.wrong:
            return said.wrong
        if said.status not in self.status:
            return f"status {said.status}: {said.line}"
        if self.needed not in said.err + said.out:
            return f"not said: {self.needed!r}, but {said.line!r}"
        return ""


CASES: dict[str, list[Case]] = {}
"""{group: its cases}."""


def case(
    group: str, what: str, needed: str, status: int | tuple[int, ...] = 2, slow: bool = False
) -> Callable:
    """Adds a function of a place as a case."""

    def add(run: Callable[[Place], Said]) -> Callable:
        statuses = status
        if isinstance(statuses, int):
            statuses = (statuses,)
        CASES.setdefault(group, []).append(Case(what, run, needed, statuses, slow))
        return run

    return add
