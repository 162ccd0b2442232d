"""`xlingjax plan`: whether a recipe's run fits machines that are not there, what bounds its speed,
and how long it takes at that bound."""

import dataclasses
import math
import multiprocessing
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from xlingjax.config.gin_files import REQUIRED, macros_of
from xlingjax.errors import UserError
from xlingjax.workflows.plan.machines import (
    Machine,
    become_compiler,
    environment,
    machine_named,
    machine_of,
)
from xlingjax.workflows.plan.programs import HERE, answer

VOCABULARY_SIZE = 250002
"""Of XLM-R, where nothing says how many pieces there are."""
LANGUAGES = "ar bg de el en es fr hi ru sw th tr ur vi zh"
"""XNLI's, where nothing says which."""
NOWHERE = "not-given"
TEXT = frozenset(
    [
        "MONO",
        "PARALLEL",
        "VOCABULARY",
        "DOCUMENTS",
        "NEGATIVES",
        "INIT_FROM",
        "INIT_ENCODER",
        "PARALLEL_EN_DE",
        "NE",
        "TEST",
        "TEST_EN_DE",
    ]
)
"""Macros of what a run reads and a plan does not."""


@dataclasses.dataclass(frozen=True)
class Bound:
    """The shortest time that a program can take on a device, in seconds, by what it is limited
    by."""

    matrix: float
    memory: float
    links: float

    @property
    def seconds(self) -> float:
        return max(dataclasses.astuple(self))

    @property
    def limit(self) -> str:
        """What takes that long."""
        by = dataclasses.asdict(self)
        return max(by, key=lambda name: by[name])


@dataclasses.dataclass(frozen=True)
class Planned:
    """What the compiler said of a recipe's programs on a machine."""

    machine: str
    mesh: dict[str, int]
    dtype: str
    room: int
    """Bytes of a device that programs may fill."""
    steps: int
    programs: list[dict[str, Any]]
    bounds: list[Bound | None]
    """Of each program; None: the compiler refused it, or the peaks of the machine are not known."""

    def fits(self, program: dict[str, Any]) -> bool:
        return not program["error"] and program["peak"] <= self.room

    @property
    def all_fit(self) -> bool:
        return all(map(self.fits, self.programs))

    @property
    def devices(self) -> int:
        return math.prod(self.mesh.values())

    @property
    def seconds(self) -> float | None:
        """Of all steps, at the bound of each; None: it is not known."""
        total = 0.0
        for program, bound in zip(self.programs, self.bounds, strict=True):
            if program["kind"] == "step":
                if bound is None:
                    return None
                total += program["steps"] * bound.seconds
        return total

    @property
    def tokens(self) -> float:
        """Columns of all rows of the run."""
        steps = [one for one in self.programs if one["kind"] == "step"]
        return sum(one["steps"] * one["tokens"] for one in steps)

    def record(self) -> dict[str, Any]:
        """As JSON."""
        programs = []
        for program, bound in zip(self.programs, self.bounds, strict=True):
            one = {**program, "fits": self.fits(program), "bound": None}
            if bound is not None:
                one["bound"] = {**dataclasses.asdict(bound), "limit": bound.limit}
            programs.append(one)
        names = ("machine", "mesh", "dtype", "room", "steps")
        record = {name: getattr(self, name) for name in names}
        record |= {"fits": self.all_fit, "programs": programs}
        seconds = self.seconds
        if seconds:
            record["tokens_per_second"] = self.tokens / seconds
            record["days"] = seconds / 86400
            record["device_hours"] = seconds * self.devices / 3600
        return record


def stand_ins(files: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """NAME=VALUE of what a run needs and a plan does not read: text, and where nothing says them,
    how many pieces and which languages there are."""
    values = {macro.name: macro.value for macro in macros_of(files)}
    for override in overrides:
        name, _, value = override.partition("=")
        values[name.strip()] = value

    def lacks(name: str) -> bool:
        return values.get(name) in ("None", REQUIRED)

    found = []
    for name in values:
        if name in TEXT and values[name] == REQUIRED:
            found.append(f"{name}={NOWHERE}")
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


def measured(files: Sequence[str], overrides: Sequence[str], on: str, evaluations: bool) -> Planned:
    """The programs of a recipe, compiled for a machine in a process of its own. on: its name, or
    `HERE`. Raises UserError for a recipe or a machine that is refused, and where the compiler ends
    the process."""
    variables: Mapping[str, str] = {}
    machine = None
    if on != HERE:
        machine = machine_named(on)
        variables = environment(machine.accelerator.maker)
    with tempfile.NamedTemporaryFile() as errors:
        pool = ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), become_compiler, (variables, errors.name)
        )
        try:
            with pool:
                found = pool.submit(answer, files, overrides, on, evaluations).result()
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
    mesh = found["mesh"]
    room = found["room"]
    if machine is None:
        machine = machine_of(found["kind"], math.prod(mesh.values()))
    else:
        room = machine.accelerator.room
    bounds = [bound_of(program, machine, found["dtype"]) for program in found["programs"]]
    return Planned(on, mesh, found["dtype"], room, found["steps"], found["programs"], bounds)


def bound_of(program: dict[str, Any], machine: Machine | None, dtype: str) -> Bound | None:
    # How often a decoder's loop turns is not known: it ends when the texts do.
    if machine is None or program["error"] or program["kind"] == "decoding":
        return None
    accelerator = machine.accelerator
    peak = accelerator.flops.get(dtype)
    if peak is None:
        return None
    flops = program.get("flops", {})
    # A kernel whose author does not say what it costs counts nothing.
    computed = max(flops.get("computed", 0.0), flops.get("useful") or 0.0)
    sent = program["sent_in_groups"].items()
    links = sum(size / machine.link(int(group)) for group, size in sent)
    return Bound(computed / peak, program["moved"] / accelerator.bandwidth, links)


# ---- what is printed -----------------------------------------------------------------------------


def text_of(plan: Planned) -> str:
    """A paragraph for each program, and one for the run."""
    mesh = " x ".join(f"{axis} {size}" for axis, size in plan.mesh.items())
    lines = [
        f"{plan.machine}: {plan.devices} devices, mesh {mesh}, {plan.dtype};"
        f" programs may fill {_bytes(plan.room)} of each"
    ]
    for program, bound in zip(plan.programs, plan.bounds, strict=True):
        lines += ["", *_of_program(plan, program, bound)]
    return "\n".join([*lines, "", _of_run(plan)])


def with_options(program: Mapping[str, Any]) -> str:
    """What the compiler was given, as XLA_FLAGS takes it."""
    return ", ".join(f"{name}={value}".lower() for name, value in program["options"].items())


def _of_program(plan: Planned, program: dict[str, Any], bound: Bound | None) -> list[str]:
    name = program["program"]
    if program["error"] and "peak" not in program:
        return [f"{name}: REFUSED by the compiler: {program['error']}"]
    fits = "fits" if plan.fits(program) else "DOES NOT FIT"
    compiled = f"compiled in {program['seconds']:.0f} s"
    if program["options"]:
        compiled += f", {with_options(program)}"
    lines = [f"{name}: {fits}: {_bytes(program['peak'])} of {_bytes(plan.room)} ({compiled})"]
    if not program["error"]:
        sizes = program["bytes"] | {"temporaries": program["temporaries"]}
        lines.append(f"  on a device: {_sizes(sizes)}")
    if estimated := program.get("estimated"):
        total = _bytes(sum(estimated.values()))
        lines.append(f"  estimated before compiling: {total}: {_sizes(estimated)}")
    if flops := program.get("flops"):
        computed = flops["computed"]
        line = f"  TFLOP of a device: {computed / 1e12:.2f} in matrix products"
        useful = flops.get("useful")
        if useful is not None:
            line += f", {useful / 1e12:.2f} of them useful ({useful / computed:.0%})"
        lines.append(line)
    if collectives := program.get("collectives"):
        parts = [
            f"{found['count']} {kind} of {_bytes(found['bytes'])}"
            for kind, found in collectives.items()
        ]
        lines.append(f"  sent: {', '.join(parts)}: {_bytes(program['sent'])} leave a device")
    if bound is not None:
        lines.append(
            f"  at the published peaks: matrix units {bound.matrix * 1e3:.3g} ms, memory"
            f" {bound.memory * 1e3:.3g} ms, links {bound.links * 1e3:.3g} ms"
        )
    if program.get("cycles"):
        lines.append(f"  the compiler's estimate: {program['cycles'] / 1e6:,.1f} million cycles")
    return lines


def _bytes(size: float) -> str:
    for unit, of in (("GB", 1e9), ("MB", 1e6)):
        if size >= 0.1 * of:
            return f"{size / of:.2f} {unit}"
    return f"{size / 1e3:.1f} kB"


def _sizes(sizes: Mapping[str, float]) -> str:
    return ", ".join(f"{what} {_bytes(size)}" for what, size in sizes.items())


def _of_run(plan: Planned) -> str:
    if any(one["error"] and "peak" not in one for one in plan.programs):
        return "the run cannot be compiled"
    if not plan.all_fit:
        return "the run does not fit: --search looks for settings that do"
    seconds = plan.seconds
    if not seconds:
        return f"no bound of its speed: peaks of {plan.machine} in {plan.dtype} are not known"
    time = f"{seconds / 86400:.1f} days"
    if seconds < 2 * 86400:
        time = f"{seconds / 3600:.1f} hours"
    if seconds < 2 * 3600:
        time = f"{seconds / 60:.1f} minutes"
    return (
        f"the run: {plan.steps:,} steps, {plan.tokens:,.0f} tokens; at the longest of the three"
        f" {plan.tokens / seconds:,.0f} tokens/s: {time},"
        f" {seconds * plan.devices / 3600:,.1f} device-hours"
    )
