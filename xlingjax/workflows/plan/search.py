"""The fastest settings of a recipe that fit a machine: mesh, microbatches, what the backward pass
recomputes, what computes attention. None of them changes what is learnt.

Candidates are ordered by an estimate of their time and compiled from the fastest on. What does not
fit tells what others need at least, and those that cannot fit either are left out.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jax.sharding import AbstractMesh

from xlingjax.config.gin_files import macros_of
from xlingjax.config.recipe import Recipe, read_recipe
from xlingjax.errors import UserError
from xlingjax.model import flash
from xlingjax.model.build import build_model
from xlingjax.model.config import WITH_STREAMS, ModelConfig
from xlingjax.model.partition import AXES
from xlingjax.training.feed import ObjectiveRun, in_stages
from xlingjax.training.optimizer import OptimizerConfig, make_optimizer
from xlingjax.training.step import abstract_state
from xlingjax.workflows.plan.machines import Machine, machine_named
from xlingjax.workflows.plan.plan import Planned, measured, with_options
from xlingjax.workflows.plan.programs import HERE, bytes_of_device
from xlingjax.workflows.plan.roofline import bound_of, sent_of
from xlingjax.workflows.tables.flops import columns, step_flops

RECOMPUTED = {"none": 1.0, "dots": 1.02, "full": 4 / 3}
"""Products of a step by REMAT, as shares of those that are useful: a third of them is forward."""
UNFUSED = 1.2
"""What a step takes with `xla` of what it takes with `flash`: 1.19 to 1.59 on an H100
(docs/results/speed.md)."""
OF_A_MICROBATCH = 1e-3  # seconds that each costs beside its products: a guess, which prefers few


@dataclasses.dataclass(frozen=True)
class Settings:
    data: int
    fsdp: int
    tensor: int
    microbatches: int
    remat: str
    attention: str

    def overrides(self) -> dict[str, Any]:
        return {
            "ATTENTION": self.attention,
            "MESH_DATA": self.data,
            "MESH_FSDP": self.fsdp,
            "MESH_TENSOR": self.tensor,
            "MICROBATCHES": self.microbatches,
            "REMAT": self.remat,
        }

    def flags(self) -> str:
        return " ".join(f"--gin.{name}={value}" for name, value in self.overrides().items())

    @property
    def mesh(self) -> tuple[int, int, int]:
        return self.data, self.fsdp, self.tensor

    def alike(self, other: "Settings") -> bool:
        """Whether the backward pass keeps the same of a row."""
        return (self.remat, self.attention) == (other.remat, other.attention)

    def slower(self) -> float:
        """What the attention costs, as a factor."""
        return 1.0 if self.attention == "flash" else UNFUSED


@dataclasses.dataclass(frozen=True)
class Tried:
    settings: Settings
    plan: Planned | None  # none: the recipe or the compiler's process refused it
    refused: str = ""

    @property
    def fits(self) -> bool:
        return self.plan is not None and self.plan.all_fit

    @property
    def why(self) -> str:
        """It does not fit; "": it does."""
        if self.plan is None or self.fits:
            return self.refused
        errors = dict.fromkeys(one["error"] for one in self.plan.programs if one["error"])
        return "; ".join(errors) or "does not fit"

    @property
    def seconds(self) -> float:
        if self.plan is None:
            return math.inf
        bound = (self.plan.seconds or math.inf) * self.settings.slower()
        return bound + OF_A_MICROBATCH * self.settings.microbatches * self.plan.steps

    @property
    def peak(self) -> int:
        """Of the step that needs most; 0: the compiler does not say it."""
        programs = self.plan.programs if self.plan else []
        return max((one["peak"] or 0 for one in programs), default=0)

    def record(self) -> dict[str, Any]:
        """As JSON."""
        plan = self.plan and self.plan.record()
        return {"flags": self.settings.flags(), "refused": self.why, "plan": plan}

    def line(self) -> str:
        line = f"{self.settings.flags()}: {self.why or 'fits'}"
        if self.plan is None:
            return line
        line += f", {self.peak / 1e9:.1f} GB of {self.plan.room / 1e9:.1f}"
        if self.fits and self.plan.seconds:
            line += f", bound {self.plan.tokens / self.plan.seconds:,.0f} tokens/s"
        return line + "".join(dict.fromkeys(map(with_options, self.plan.programs)))


def search(
    files: Sequence[str],
    overrides: Sequence[str],
    on: str,
    tries: int,
    say: Callable[[str], None],
    behind: int = 2,
) -> tuple[Tried | None, list[Tried]]:
    """(the fastest that fits, all that were tried). on: the machine. tries: settings that are
    compiled at most; behind: of them, behind the first that fits. Raises UserError for a recipe
    that has not the settings, and for a machine that has no name."""
    require_searched(files, on)
    machine = machine_named(on)
    recipe = read_recipe(files, overrides)
    backends = attentions(recipe, machine)
    fixed = functools.cache(functools.partial(_fixed, recipe))
    tried: list[Tried] = []
    refused: set[str] = set()
    candidates = _candidates(recipe, machine, backends)
    for settings in sorted(candidates, key=lambda one: _seconds(recipe, machine, one)):
        first = next((number for number, one in enumerate(tried) if one.fits), len(tried))
        if len(tried) == tries or len(tried) - first > behind:
            break
        if settings.attention in refused:
            continue
        # What grows with the rows, as it was compiled for other meshes and microbatches.
        growing = [
            (one.peak - fixed(one.settings.mesh)) * one.settings.microbatches
            for one in tried
            if one.peak and one.settings.alike(settings)
        ]
        least = fixed(settings.mesh) + max(growing, default=0) / settings.microbatches
        if least > machine.accelerator.room:
            continue
        chosen = settings.overrides()
        others = [one for one in overrides if one.partition("=")[0] not in chosen]
        own = [f"{name}={value}" for name, value in chosen.items()]
        try:
            one = Tried(settings, measured(files, [*others, *own], on))
        except UserError as error:
            one = Tried(settings, None, f"refused: {error}")
        say(one.line())
        if "attention backend" in one.refused:
            # Whatever the mesh is, and nothing was compiled.
            refused.add(settings.attention)
            continue
        tried.append(one)
    best = min((one for one in tried if one.fits), key=lambda one: one.seconds, default=None)
    if best is None:
        say(f"none of {len(tried)} settings fits {on}: more devices, or a shorter LENGTH")
    else:
        say(f"best: {best.settings.flags()}")
    return best, tried


def require_searched(files: Sequence[str], on: str) -> None:
    """Raise UserError for a recipe that has not the settings, and for a machine without a name."""
    if on == HERE:
        raise UserError("--search needs a machine by its name: --on H100:8")
    lacking = {"ATTENTION", "MICROBATCHES", "REMAT", "MESH_DATA"} - {
        macro.name for macro in macros_of(files)
    }
    if lacking:
        raise UserError(f"--search: this recipe has no {', '.join(sorted(lacking))} to choose")


def _fixed(recipe: Recipe, mesh: tuple[int, int, int]) -> int:
    """Bytes of a device whatever the rows are: parameters, their gradients and moments."""
    config = recipe.bound.get("optimizer", OptimizerConfig())
    model = build_model(recipe.bound["model"])
    # Of any length: its state has the same arrays.
    rule = make_optimizer(config, 10**9, model.abstract())
    state = abstract_state(AbstractMesh(mesh, AXES), model, rule, config)
    return bytes_of_device(state) + bytes_of_device(state.params)


def _runs(recipe: Recipe) -> list[ObjectiveRun]:
    return [run for entry in recipe.bound["objectives"] for run in in_stages(entry).values()]


def _candidates(recipe: Recipe, machine: Machine, backends: Sequence[str]) -> Iterator[Settings]:
    config: ModelConfig = recipe.bound["model"]
    together = math.gcd(*(run.batches.shapes["input_ids"][0] for run in _runs(recipe)))
    whole = any(run.objective.whole_batch for run in _runs(recipe))
    of_host = machine.accelerator.per_host
    for tensor in (1, 2, 4, 8):
        # Its sums are within a layer: between machines they would take longer than the products.
        if config.heads % tensor or machine.devices % tensor or tensor > of_host:
            continue
        rest = machine.devices // tensor
        if together % rest:
            continue
        parts = [1] if whole else _divisors(together // rest)
        # Parameters are shared out over all devices, none, or those of a machine.
        for fsdp in {*_divisors(rest)} & {1, rest, of_host // tensor}:
            for choice in itertools.product(parts, RECOMPUTED, backends):
                yield Settings(rest // fsdp, fsdp, tensor, *choice)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if not number % n]


def attentions(recipe: Recipe, machine: Machine) -> list[str]:
    """What may compute attention: beside `xla` also `flash`, where the machine has it and the
    model's rows are such as it takes, or else `chunked`."""
    config: ModelConfig = recipe.bound["model"]
    if config.attention_backend != "xla":
        return [config.attention_backend]
    # Their distances no kernel knows.
    if config.streams:
        return [*WITH_STREAMS]
    lengths = {
        run.batches.shapes[field][1]
        for run in _runs(recipe)
        for field in ("input_ids", "decoder_targets")
        if field in run.batches.shapes
    }
    gpu = machine.accelerator.gpu
    # XLA compiles Triton for no GPU before Ampere.
    if gpu and gpu["capability"] < [8, 0]:
        return ["xla", "chunked"]
    if not all(map(flash.takes, lengths)):
        return ["xla", "chunked"]
    return ["flash", "xla"]


def _seconds(recipe: Recipe, machine: Machine, settings: Settings) -> float:
    """Estimated, of a step of each objective, by products and links alone."""
    config: ModelConfig = recipe.bound["model"]
    total = 0.0
    for run in _runs(recipe):
        shapes = run.batches.shapes
        try:
            flops = step_flops(run.objective, config, shapes) / machine.devices
        except UserError:
            flops = 0.0
        flops *= RECOMPUTED[settings.remat] * settings.slower()
        tokens = columns(run.objective, shapes)
        sent = sent_of(config, tokens, dataclasses.asdict(settings), settings.microbatches)
        bound = bound_of(machine, config.dtype, flops, 0.0, sent)
        if bound is not None:
            total += bound.seconds + 0.1 * min(bound.matrix, bound.links)
        total += OF_A_MICROBATCH * settings.microbatches
    return total
