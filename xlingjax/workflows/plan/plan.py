"""`xlingjax plan`: whether a run fits machines that are not there, and how fast it may be."""

import dataclasses
import math
import multiprocessing
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pandas as pd

from xlingjax.config.gin_files import REQUIRED, macros_of
from xlingjax.errors import UserError
from xlingjax.report import html
from xlingjax.workflows.plan.machines import become_compiler, environment, machine_named
from xlingjax.workflows.plan.programs import HERE, answer
from xlingjax.workflows.plan.roofline import bound_of

VOCABULARY_SIZE = 250002  # of XLM-R, where nothing says how many pieces there are
LANGUAGES = "ar bg de el en es fr hi ru sw th tr ur vi zh"  # XNLI's, where nothing says which
NOWHERE = "not-given"
REACHED = 0.2  # of an H100's peak in useful products, XLM-R's MLM: 0.19 (base), 0.23 (large)
TEXT = frozenset(
    ("MONO", "PARALLEL", "VOCABULARY", "DOCUMENTS", "NEGATIVES", "INIT_FROM", "INIT_ENCODER")
    + ("PARALLEL_EN_DE", "NE", "TEST", "TEST_EN_DE")
)
"""Macros of what a run reads and a plan does not."""


@dataclasses.dataclass(frozen=True)
class Planned:
    """What the compiler said of a recipe's programs on a machine."""

    machine: str
    mesh: dict[str, int]
    dtype: str
    room: int  # bytes of a device that programs may fill
    steps: int
    programs: list[dict[str, Any]]
    """`programs.answer` with "bound"; None: the compiler refused, or peaks are not known."""

    def fits(self, program: dict[str, Any]) -> bool:
        return not program["error"] and program["peak"] <= self.room

    @property
    def all_fit(self) -> bool:
        return all(map(self.fits, self.programs))

    @property
    def seconds(self) -> float | None:
        """Of all steps, at the bound of each; None: it is not known."""
        total = 0.0
        for program in self.programs:
            if program["bound"] is None:
                return None
            total += program["steps"] * program["bound"].seconds
        return total

    @property
    def likely_hours(self) -> float:
        """Of all steps, at the share of the peak that a card was measured at."""
        peak = machine_named(self.machine).accelerator.flops[self.dtype]
        useful = sum(one["steps"] * one["useful"] for one in self.programs)
        return useful / (REACHED * peak) / 3600

    @property
    def device_hours(self) -> float:
        return (self.seconds or 0.0) * math.prod(self.mesh.values()) / 3600

    @property
    def tokens(self) -> float:
        """Columns of all rows of the run."""
        return sum(one["steps"] * one["tokens"] for one in self.programs)

    def record(self) -> dict[str, Any]:
        """As JSON."""
        record = dataclasses.asdict(self) | {"fits": self.all_fit}
        for program, one in zip(self.programs, record["programs"], strict=True):
            one["fits"] = self.fits(program)
        if self.seconds:
            record["tokens_per_second"] = self.tokens / self.seconds
            record["days"] = self.seconds / 86400
            record["device_hours"] = self.device_hours
        return record


def stand_ins(files: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """NAME=VALUE that a run needs and a plan does not read: text, or how many pieces, languages."""
    values = {macro.name: macro.value for macro in macros_of(files)}
    for override in overrides:
        name, _, value = override.partition("=")
        values[name.strip()] = value

    def lacks(name: str) -> bool:
        return values.get(name) in ("None", REQUIRED)

    found = [f"{name}={NOWHERE}" for name in values if name in TEXT and values[name] == REQUIRED]
    # Where there is text, it says both.
    if lacks("VOCABULARY_SIZE") and lacks("VOCABULARY"):
        found.append(f"VOCABULARY_SIZE={VOCABULARY_SIZE}")
    if lacks("LANGUAGES") and all(map(lacks, {"MONO", "PARALLEL"} & {*values})):
        found.append(f"LANGUAGES={LANGUAGES}")
    return found


def require_machine(on: str) -> None:
    """Raise UserError for a machine that is not known, or whose compiler is missing."""
    if on != HERE:
        environment(machine_named(on).accelerator.maker)


def measured(files: Sequence[str], overrides: Sequence[str], on: str) -> Planned:
    """The programs of a recipe, compiled for a machine in a process of its own. on: its name, or
    `HERE`. Raises UserError for a recipe or a machine that is refused, and where the compiler ends
    the process."""
    machine = None if on == HERE else machine_named(on)
    variables = environment(machine.accelerator.maker) if machine else {}
    with tempfile.NamedTemporaryFile() as errors:
        pool = ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), become_compiler, (variables, errors.name)
        )
        try:
            with pool:
                found = pool.submit(answer, files, overrides, on).result()
        except BrokenProcessPool:
            lines = Path(errors.name).read_text(errors="replace").strip().splitlines()
            last = lines[-1][:300] if lines else "it said nothing"
            raise UserError(f"--on {on}: its compiler ended without an answer: {last}") from None
        except UserError as refused:
            # A stand-in is nothing that the user named.
            if NOWHERE in str(refused):
                raise UserError(
                    "plan: this recipe is of a run that is there: give its INIT_FROM"
                ) from None
            raise
    if machine:
        found["room"] = machine.accelerator.room
    for program in found["programs"]:
        bound = None
        if machine and not program["error"]:
            figures = [program[name] for name in ("flops", "moved", "sent")]
            bound = bound_of(machine, found["dtype"], *figures)
        program["bound"] = bound
    return Planned(on, **found)


def text_of(plan: Planned) -> str:
    """A column of figures for each program, and a line for the run."""
    columns = {}
    for program in plan.programs:
        if program["peak"] is None:
            continue
        sizes = {"all": program["peak"], "may be filled": plan.room}
        if not program["error"]:
            sizes |= program["bytes"] | {"temporaries": program["temporaries"]}
        figures = {f"GB of a device: {what}": size / 1e9 for what, size in sizes.items()}
        figures["TFLOP of a device"] = program["flops"] / 1e12
        figures["useful TFLOP of a device"] = program["useful"] / 1e12
        if bound := program["bound"]:
            for limit, seconds in dataclasses.asdict(bound).items():
                figures[f"ms at the published peaks: {limit}"] = seconds * 1e3
        columns[program["program"]] = figures | {"seconds to compile": program["seconds"]}
    return html.render(
        "plan.txt",
        plan=plan,
        with_options=with_options,
        columns=columns
        and pd.DataFrame(columns).to_string(float_format="{:.3g}".format, na_rep=""),
    )


def with_options(program: Mapping[str, Any]) -> str:
    """What the compiler was given, as XLA_FLAGS takes it; "": nothing."""
    return "".join(f", {name}={value}".lower() for name, value in program["options"].items())
