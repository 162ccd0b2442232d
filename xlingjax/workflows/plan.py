"""`xlingjax plan`: whether a recipe's run fits machines that are not there, what bounds its speed,
and how long it takes at that bound."""

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.config.macros import REQUIRED, macros_of
from xlingjax.errors import UserError
from xlingjax.runtime.accelerators import (
    ACCELERATORS,
    Machine,
    machine_named,
)
from xlingjax.runtime.compilers import environment
from xlingjax.workflows.plan_programs import HERE

VOCABULARY_SIZE = 250002
"""Of XLM-R, where nothing says how many pieces there are."""
LANGUAGES = "ar bg de el en es fr hi ru sw th tr ur vi zh"
"""XNLI's, where nothing says which."""
NOWHERE = "not-given"


@dataclasses.dataclass(frozen=True)
class Bound:
    """The shortest time that a program can take on a device, in seconds, by what it is limited
    by."""

    matrix: float
    memory: float
    links: float

    @property
    def seconds(self) -> float:
        return max(self.matrix, self.memory, self.links)

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
        data, fsdp, tensor = self.mesh.values()
        return data * fsdp * tensor

    @property
    def seconds(self) -> float | None:
        """Of all steps, at the bound of each; None: it is not known."""
        total = 0.0
        for program, bound in zip(self.programs, self.bounds, strict=True):
            if program["kind"] != "step":
                continue
            if bound is None:
                return None
            total += program["steps"] * bound.seconds
        return total

    @property
    def tokens(self) -> float:
        """Columns of all rows of the run."""
        total = 0.0
        for program in self.programs:
            if program["kind"] == "step":
                total += program["steps"] * program["tokens"]
        return total

    def record(self) -> dict[str, Any]:
        """As JSON."""
        programs = []
        for program, bound in zip(self.programs, self.bounds, strict=True):
            one = {**program, "fits": self.fits(program), "bound": None}
            if bound is not None:
                one["bound"] = {
                    **dataclasses.asdict(bound),
                    "limit": bound.limit,
                }
            programs.append(one)
        record = {
            "machine": self.machine,
            "mesh": self.mesh,
            "dtype": self.dtype,
            "room": self.room,
            "steps": self.steps,
            "fits": self.all_fit,
            "programs": programs,
        }
        seconds = self.seconds
        if seconds:
            record["tokens_per_second"] = self.tokens / seconds
            record["days"] = seconds / 86400
            record["device_hours"] = seconds * self.devices / 3600
        return record


def stand_ins(
    files: Sequence[str],
    overrides: Sequence[str],
) -> list[str]:
    """NAME=VALUE of what a run needs and a plan does not read: text, and where nothing says them,
    how many pieces and which languages there are."""
    given = {override.partition("=")[0].strip() for override in overrides}
    found = []
    for macro in macros_of(files):
        if macro.name in given:
            continue
        if macro.value == REQUIRED and _names_a_place(macro.meaning):
            found.append(f"{macro.name}={NOWHERE}")
    values = {macro.name: macro.value for macro in macros_of(files)}
    has_text = "VOCABULARY" in given or "INIT_FROM" in given
    if values.get("VOCABULARY_SIZE") == "None" and not (
        has_text or "VOCABULARY_SIZE" in given
    ):
        found.append(f"VOCABULARY_SIZE={VOCABULARY_SIZE}")
    if values.get("LANGUAGES") == "None" and not (
        {"MONO", "PARALLEL", "LANGUAGES"} & given
    ):
        found.append(f"LANGUAGES={LANGUAGES}")
    return found


def _names_a_place(meaning: str) -> bool:
    """Whether a macro's comment says that it names files: a plan reads none."""
    words = (
        "pattern",
        "workdir",
        "folder",
        "stem",
        "table",
        "that of",
        "XLM-R's",
    )
    return any(word in meaning for word in words)


def measured(
    files: Sequence[str],
    overrides: Sequence[str],
    on: str,
    evaluations: bool,
) -> Planned:
    """The programs of a recipe, compiled for a machine in a process of its own. on: its name, or
    `HERE`. Raises UserError for a recipe or a machine that is refused, and where the compiler ends
    the process."""
    variables = None
    machine: Machine | None = None
    if on != HERE:
        machine = machine_named(on)
        variables = environment(machine.accelerator.maker)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "figures.json"
        request = {
            "files": list(files),
            "overrides": list(overrides),
            "machine": on,
            "evaluations": evaluations,
            "output": str(output),
        }
        done = subprocess.run(
            [sys.executable, "-m", "xlingjax.workflows.plan_programs"],
            input=json.dumps(request),
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise UserError(
                f"--on {on}: its compiler ended with status {done.returncode}:"
                f" {_last_line(done.stderr)}",
            )
        answer = json.loads(output.read_text(encoding="utf-8"))
    if "refused" in answer:
        raise UserError(answer["refused"])
    if machine is None:
        machine = _machine_of(answer["kind"], answer["mesh"])
    room = answer["room"]
    if machine is not None and on != HERE:
        room = machine.accelerator.room
    bounds = [
        bound_of(program, machine, answer["dtype"])
        for program in answer["programs"]
    ]
    return Planned(
        on,
        answer["mesh"],
        answer["dtype"],
        room,
        answer["steps"],
        answer["programs"],
        bounds,
    )


def _machine_of(kind: str, mesh: dict[str, int]) -> Machine | None:
    """The machine of devices that are there, by what they call themselves; None: not known."""
    data, fsdp, tensor = mesh.values()
    for accelerator in ACCELERATORS.values():
        # "NVIDIA H100 80GB HBM3", "TPU v5 lite".
        spoken = {"v5e": "v5 lite", "v6e": "v6 lite"}
        name = spoken.get(accelerator.name, accelerator.name)
        if name in kind.split() or kind.endswith(name):
            return Machine(accelerator, (data * fsdp * tensor,))
    return None


def bound_of(
    program: dict[str, Any],
    machine: Machine | None,
    dtype: str,
) -> Bound | None:
    if machine is None or program["error"]:
        return None
    accelerator = machine.accelerator
    peak = accelerator.flops.get(dtype)
    if peak is None:
        return None
    computed = program.get("flops", {}).get("computed", 0.0)
    return Bound(
        computed / peak,
        program["moved"] / accelerator.bandwidth,
        program["sent"] / machine.link(machine.devices),
    )


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return "it said nothing"
    return lines[-1][:300]
