"""`xlingjax plan`: whether a recipe's run fits machines that are not there, what bounds its speed,
and how long it takes at that bound."""

import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.config.gin_files import REQUIRED, macros_of
from xlingjax.errors import UserError
from xlingjax.runtime.accelerators import ACCELERATORS, Machine, machine_named
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
                one["bound"] = {**dataclasses.asdict(bound), "limit": bound.limit}
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


TEXT = frozenset(
    (
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
    )
)
"""Macros of what a run reads and a plan does not."""


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
        status, said = _in_a_process(request, variables)
        if status:
            raise UserError(
                f"--on {on}: its compiler ended with status {status}: {_last_line(said)}"
            )
        answer = json.loads(output.read_text(encoding="utf-8"))
    if "refused" in answer:
        refused = answer["refused"]
        # A stand-in is nothing that the user named.
        if NOWHERE in refused:
            refused = "plan: this recipe is of a run that is there: give its INIT_FROM"
        raise UserError(refused)
    if machine is None:
        machine = _machine_of(answer["kind"], answer["mesh"])
    room = answer["room"]
    if machine is not None and on != HERE:
        room = machine.accelerator.room
    bounds = [bound_of(program, machine, answer["dtype"]) for program in answer["programs"]]
    return Planned(
        on, answer["mesh"], answer["dtype"], room, answer["steps"], answer["programs"], bounds
    )


def _in_a_process(request: dict[str, Any], variables: dict[str, str] | None) -> tuple[int, str]:
    """(status, what it wrote to stderr) of `plan_programs`."""
    # -P: what lies where the command is called is no module of ours.
    command = [sys.executable, "-P", "-m", "xlingjax.workflows.plan_programs"]
    with subprocess.Popen(
        command,
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        # Its end stays open: where this process ends, whatever ends it, the other does.
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        said = process.stderr.read()
        return process.wait(), said


def _machine_of(kind: str, mesh: dict[str, int]) -> Machine | None:
    """The machine of devices that are there, by what they call themselves; None: not known."""
    data, fsdp, tensor = mesh.values()
    # "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"; cards of other forms have other peaks.
    words = re.split(r"[ -]", kind)
    if {"PCIe", "NVL"} & {*words}:
        return None
    spoken = {"TPU v5 lite": "v5e", "TPU v6 lite": "v6e", "TPU v5": "v5p"}
    if kind in spoken:
        words = [spoken[kind]]
    for accelerator in ACCELERATORS.values():
        if accelerator.name in words:
            return Machine(accelerator, (data * fsdp * tensor,))
    return None


def bound_of(program: dict[str, Any], machine: Machine | None, dtype: str) -> Bound | None:
    if machine is None or program["error"]:
        return None
    # Its loop ends when the texts do: how often it turns is not known.
    if program["kind"] == "decoding":
        return None
    accelerator = machine.accelerator
    peak = accelerator.flops.get(dtype)
    if peak is None:
        return None
    flops = program.get("flops", {})
    # A kernel whose author does not say what it costs counts nothing.
    computed = max(flops.get("computed", 0.0), flops.get("useful") or 0.0)
    links = 0.0
    for group, sent in program["sent_in_groups"].items():
        links += sent / machine.link(int(group))
    return Bound(computed / peak, program["moved"] / accelerator.bandwidth, links)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return "it said nothing"
    return lines[-1][:300]
