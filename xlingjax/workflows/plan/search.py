"""Settings of a recipe that fit a machine: mesh, microbatches, what the backward pass recomputes,
what computes attention. None of them changes what is learnt.

From the fastest kind of settings on, batches are cut in two until the compiler's memory fits.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from xlingjax.config.gin_files import macros_of
from xlingjax.config.recipe import Recipe, read_recipe
from xlingjax.errors import UserError
from xlingjax.model import flash
from xlingjax.model.config import WITH_STREAMS, ModelConfig
from xlingjax.model.partition import mesh_sizes
from xlingjax.training.feed import ObjectiveRun, in_stages
from xlingjax.workflows.plan.machines import Machine, machine_named
from xlingjax.workflows.plan.plan import Planned, measured, with_options
from xlingjax.workflows.plan.programs import HERE

REMAT = ("none", "dots", "full")  # fastest first; `full` recomputes a forward pass


@dataclasses.dataclass(frozen=True)
class Tried:
    settings: dict[str, Any]  # {macro: value}
    plan: Planned

    @property
    def flags(self) -> str:
        return " ".join(f"--gin.{name}={value}" for name, value in self.settings.items())

    @property
    def why(self) -> str:
        """It does not fit; "": it does."""
        if self.plan.all_fit:
            return ""
        errors = dict.fromkeys(one["error"] for one in self.plan.programs if one["error"])
        return "; ".join(errors) or "does not fit"

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {"flags": self.flags, "refused": self.why, "plan": self.plan.record()}

    def line(self) -> str:
        peak = max(one["peak"] or 0 for one in self.plan.programs)
        line = f"{self.flags}: {self.why or 'fits'}, {peak / 1e9:.1f} GB"
        line += f" of {self.plan.room / 1e9:.1f}"
        return line + "".join(dict.fromkeys(map(with_options, self.plan.programs)))


def search(
    files: Sequence[str], overrides: Sequence[str], on: str, tries: int, say: Callable[[str], None]
) -> tuple[Tried | None, list[Tried]]:
    """(the first that fits, all that were compiled, at most `tries`). on: the machine. Raises
    UserError for a recipe that has not the settings, and for a machine that has no name."""
    require_searched(files, on)
    machine = machine_named(on)
    recipe = read_recipe(files, overrides)
    runs = runs_of(recipe)
    devices = machine.devices // mesh_sizes(recipe.bound["mesh"], machine.devices)[-1]
    # Equal microbatches of every objective, on every device.
    rows = math.gcd(*(run.batches.shapes["input_ids"][0] for run in runs)) // devices
    most = rows & -rows  # the largest power of two that divides the rows
    # Parameters on each device, shared out over those of a machine, over all.
    shared = sorted({1, math.gcd(devices, machine.accelerator.per_host), devices})
    tried: list[Tried] = []
    for remat, attention, fsdp in itertools.product(REMAT, attentions(recipe, machine), shared):
        parts = 1
        while 0 < parts <= most:
            if len(tried) == tries:
                say(
                    f"none of {tries} settings fits {on}: more --tries, more devices or a shorter"
                    " LENGTH"
                )
                return None, tried
            settings = {
                "ATTENTION": attention,
                "MESH_DATA": devices // fsdp,
                "MESH_FSDP": fsdp,
                "MICROBATCHES": parts,
                "REMAT": remat,
            }
            chosen = [f"{name}={value}" for name, value in settings.items()]
            one = Tried(settings, measured(files, [*overrides, *chosen], on))
            tried.append(one)
            say(one.line())
            if not one.why:
                say(f"best: {one.flags}")
                return one, tried
            parts *= _cut(one.plan)
    say(f"none of {len(tried)} settings fits {on}: more devices, or a shorter LENGTH")
    return None, tried


def _cut(plan: Planned) -> int:
    """How many times as many microbatches might fit, a power of two; 0: parameters alone do not."""
    cut = 2
    for program in plan.programs:
        fixed = 2 * program["bytes"]["parameters"] + program["bytes"]["moments"]
        if program["peak"] is None or fixed >= plan.room:
            return 0
        share = (program["peak"] - fixed) / (plan.room - fixed)
        cut = max(cut, 2 ** math.ceil(math.log2(max(share, 1))))
    return cut


def require_searched(files: Sequence[str], on: str) -> None:
    """Raise UserError for a recipe that has not the settings, and for a machine without a name."""
    if on == HERE:
        raise UserError("--search needs a machine by its name: --on H100:8")
    lacking = {"ATTENTION", "MICROBATCHES", "REMAT", "MESH_DATA"} - {
        macro.name for macro in macros_of(files)
    }
    if lacking:
        raise UserError(f"--search: this recipe has no {', '.join(sorted(lacking))} to choose")


def attentions(recipe: Recipe, machine: Machine) -> list[str]:
    """What may compute attention: `flash` where machine and rows allow it, `xla`, `chunked`."""
    config: ModelConfig = recipe.bound["model"]
    if config.attention_backend != "xla":
        return [config.attention_backend]
    lengths = {
        run.batches.shapes[field][1]
        for run in runs_of(recipe)
        for field in ("input_ids", "decoder_targets")
        if field in run.batches.shapes
    }
    gpu = machine.accelerator.gpu
    # XLA compiles Triton for no GPU before Ampere; the TPUs' kernel knows no float16.
    has_flash = gpu["capability"] >= [8, 0] if gpu else config.dtype != "float16"
    # Distances of predicting streams no kernel knows.
    if has_flash and not config.streams and all(map(flash.takes, lengths)):
        return ["flash"]
    return [*WITH_STREAMS]


def runs_of(recipe: Recipe) -> list[ObjectiveRun]:
    """Its objectives, of each stage."""
    return [run for entry in recipe.bound["objectives"] for run in in_stages(entry).values()]
