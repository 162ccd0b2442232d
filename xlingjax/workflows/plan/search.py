"""The fastest settings of a recipe that fit a machine: mesh, microbatches, what the backward pass
recomputes, what computes attention, tokens of a chunk of the loss. None of them changes what is
learnt.

Candidates are ordered by an estimate of their time, left out by an estimate of their memory, and
compiled from the fastest on; what the compiler says corrects the estimate of memory for the next.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jax.sharding import AbstractMesh

from xlingjax.config.gin_files import macros_of
from xlingjax.config.recipe import Recipe, read_recipe
from xlingjax.errors import UserError
from xlingjax.model import flash
from xlingjax.model.build import count_parameters
from xlingjax.model.config import WITH_STREAMS, ModelConfig
from xlingjax.model.partition import AXES
from xlingjax.training.feed import ObjectiveRun, in_stages
from xlingjax.training.optimizer import OptimizerConfig
from xlingjax.training.step_memory import RECOMPUTED, Needs, chunk_of, predictions_of_row
from xlingjax.workflows.plan.machines import Machine, machine_named
from xlingjax.workflows.plan.plan import Planned, measured, with_options
from xlingjax.workflows.plan.programs import HERE
from xlingjax.workflows.tables.flops import step_flops

UNFUSED = 1.2
"""What a step takes with `xla` of what it takes with `flash`: 1.19 to 1.59 on an H100
(docs/results/speed.md)."""
OF_A_MICROBATCH = 1e-3
"""Seconds that each costs beside its products: a guess, which prefers few."""
CHUNKS = (0, 65536, 8192, 1024)
"""Tokens of a chunk of the loss, beside the recipe's own; 0: all at once."""
OF_A_CHUNK = 12
"""Bytes that each moves for a number of the token table: its gradient in float32 is read and
written, and the table is read twice in 16 bits."""


@dataclasses.dataclass(frozen=True)
class Settings:
    data: int
    fsdp: int
    tensor: int
    microbatches: int
    remat: str
    attention: str
    chunk: int | None = None
    """None: the recipe has no `LOSS_CHUNK`."""

    def overrides(self) -> list[str]:
        values = {
            "ATTENTION": self.attention,
            "MESH_DATA": self.data,
            "MESH_FSDP": self.fsdp,
            "MESH_TENSOR": self.tensor,
            "MICROBATCHES": self.microbatches,
            "REMAT": self.remat,
            "LOSS_CHUNK": self.chunk,
        }
        return [f"{name}={value}" for name, value in values.items() if value is not None]

    def flags(self) -> str:
        return " ".join(f"--gin.{one}" for one in self.overrides())


@dataclasses.dataclass(frozen=True)
class Tried:
    settings: Settings
    plan: Planned | None
    """None: the compiler or the recipe refused it."""
    refused: str = ""

    @property
    def fits(self) -> bool:
        return self.plan is not None and self.plan.all_fit

    @property
    def why(self) -> str:
        """It does not fit, as the compiler or the recipe says it; "": it does."""
        if self.plan is None or self.fits:
            return self.refused
        errors = [program["error"] for program in self.plan.programs]
        return "; ".join(dict.fromkeys(filter(None, errors))) or "does not fit"

    @property
    def seconds(self) -> float:
        if self.plan is None:
            return math.inf
        bound = self.plan.seconds or math.inf
        if self.settings.attention != "flash":
            bound *= UNFUSED
        return bound + OF_A_MICROBATCH * self.settings.microbatches * self.plan.steps

    @property
    def peak(self) -> int:
        """Of the step that needs most; 0: the compiler does not say it."""
        return max((program.get("peak", 0) for program in _steps(self.plan)), default=0)

    def line(self) -> str:
        flags = self.settings.flags()
        if self.plan is None:
            return f"{flags}: refused: {self.refused}"
        line = f"{flags}: {self.why or 'fits'}"
        if self.peak:
            line += f", {self.peak / 1e9:.1f} GB of {self.plan.room / 1e9:.1f}"
        if self.fits and self.plan.seconds:
            line += f", bound {self.plan.tokens / self.plan.seconds:,.0f} tokens/s"
        options = dict.fromkeys(with_options(one) for one in _steps(self.plan) if one["options"])
        if options:
            line += f", compiled with {', '.join(options)}"
        return line


def _steps(plan: Planned | None) -> list[dict[str, Any]]:
    if plan is None:
        return []
    return [program for program in plan.programs if program["kind"] == "step"]


@dataclasses.dataclass(frozen=True)
class Found:
    best: Tried | None
    tried: list[Tried]

    def record(self) -> dict[str, Any]:
        """As JSON."""
        tried = []
        for one in self.tried:
            entry: dict[str, Any] = {"flags": one.settings.flags(), "refused": one.why}
            if one.plan is not None:
                entry["plan"] = one.plan.record()
            tried.append(entry)
        return {"best": self.best and self.best.settings.flags(), "tried": tried}


def search(
    files: Sequence[str],
    overrides: Sequence[str],
    on: str,
    tries: int,
    say: Callable[[str], None],
    behind: int = 2,
) -> Found:
    """on: the machine. tries: settings that are compiled at most; behind: of them, behind the first
    that fits. Raises UserError for a recipe that has not the settings, and for a machine that has
    no name."""
    require_searched(files, on)
    machine = machine_named(on)
    recipe = read_recipe(files, overrides)
    attentions = _attentions(recipe, machine)
    candidates = sorted(
        _candidates(recipe, machine, attentions, _chunks(files, recipe)),
        key=lambda one: _seconds(recipe, machine, one),
    )
    needs = {}
    for attention in attentions:
        needs[attention] = Needs(
            recipe.bound["model"].replace(attention_backend=attention),
            recipe.bound.get("optimizer", OptimizerConfig()),
            recipe.bound["objectives"],
            machine.accelerator.maker,
        )
    tried: list[Tried] = []
    # What the compiler needs of what is estimated, learnt from each that is compiled.
    correction = more = needs[attentions[0]].more
    refused: set[str] = set()
    fitted = 0
    for settings in candidates:
        if len(tried) == tries or fitted > behind:
            break
        if settings.attention in refused:
            continue
        # Of a device, in the step that needs most.
        mesh = AbstractMesh((settings.data, settings.fsdp, settings.tensor), AXES)
        estimated = needs[settings.attention].on(
            mesh, settings.microbatches, settings.remat, settings.chunk
        )
        guess = sum(estimated.values())
        if guess * correction > machine.accelerator.room:
            continue
        one = _compiled(files, overrides, on, settings)
        say(one.line())
        if "attention backend" in one.refused:
            # Whatever the mesh is, and nothing was compiled.
            refused.add(settings.attention)
            continue
        tried.append(one)
        if one.peak:
            correction = max(more, one.peak / guess)
        if fitted or one.fits:
            fitted += 1
    best = min((one for one in tried if one.fits), key=lambda one: one.seconds, default=None)
    if best is None:
        say(f"none of {len(tried)} settings fits {on}: more devices, or a shorter LENGTH")
    else:
        say(f"best: {best.settings.flags()}")
    return Found(best, tried)


def require_searched(files: Sequence[str], on: str) -> None:
    """Raise UserError for a recipe that has not the settings, and for a machine without a name."""
    if on == HERE:
        raise UserError("--search needs a machine by its name: --on H100:8")
    lacking = {"ATTENTION", "MICROBATCHES", "REMAT", "MESH_DATA"} - {
        macro.name for macro in macros_of(files)
    }
    if lacking:
        raise UserError(f"--search: this recipe has no {', '.join(sorted(lacking))} to choose")


def _compiled(
    files: Sequence[str], overrides: Sequence[str], machine: str, settings: Settings
) -> Tried:
    own = settings.overrides()
    names = {one.partition("=")[0] for one in own}
    others = [one for one in overrides if one.partition("=")[0] not in names]
    try:
        plan = measured(files, [*others, *own], machine, evaluations=False)
    except UserError as error:
        return Tried(settings, None, str(error))
    return Tried(settings, plan)


def _runs(recipe: Recipe) -> list[ObjectiveRun]:
    return [run for entry in recipe.bound["objectives"] for run in in_stages(entry).values()]


def _candidates(
    recipe: Recipe, machine: Machine, attentions: Sequence[str], chunks: Sequence[int | None]
) -> Iterator[Settings]:
    config: ModelConfig = recipe.bound["model"]
    rows = [run.batches.shapes["input_ids"][0] for run in _runs(recipe)]
    together = math.gcd(*rows)
    whole = any(run.objective.whole_batch for run in _runs(recipe))
    most = max(
        run.batches.shapes["input_ids"][0] * predictions_of_row(run) for run in _runs(recipe)
    )
    for tensor in (1, 2, 4, 8):
        # Its sums are within a layer: between machines they would take longer than the products.
        if config.heads % tensor or machine.devices % tensor:
            continue
        if tensor > machine.accelerator.per_host:
            continue
        rest = machine.devices // tensor
        for fsdp in _divisors(rest):
            # All, none, or the devices of a machine.
            within = machine.accelerator.per_host // tensor
            if fsdp not in (1, rest, within) or together % rest:
                continue
            for microbatches in _divisors(together // rest):
                if whole and microbatches > 1:
                    continue
                for remat, attention, chunk in itertools.product(RECOMPUTED, attentions, chunks):
                    # Nothing but another name for all at once.
                    if chunk and chunk >= most // microbatches:
                        continue
                    yield Settings(
                        rest // fsdp, fsdp, tensor, microbatches, remat, attention, chunk
                    )


def _chunks(files: Sequence[str], recipe: Recipe) -> list[int | None]:
    """What the loss may take at once, from the most on."""
    if "LOSS_CHUNK" not in {macro.name for macro in macros_of(files)}:
        return [None]
    own = {chunk_of(run, None) for run in _runs(recipe)}
    return sorted({*CHUNKS, *own}, key=lambda one: -one or -math.inf)


def _attentions(recipe: Recipe, machine: Machine) -> list[str]:
    """What may compute attention: beside `xla` also `flash`, where the machine has it and the
    model's rows are such as it takes, or else `chunked`."""
    config: ModelConfig = recipe.bound["model"]
    backend = config.attention_backend
    accelerator = machine.accelerator
    if backend != "xla":
        return [backend]
    # Their distances no kernel knows.
    if config.streams:
        return [*WITH_STREAMS]
    # XLA compiles Triton for no GPU before Ampere.
    if accelerator.gpu and accelerator.gpu["capability"] < [8, 0]:
        return [backend, "chunked"]
    for run in _runs(recipe):
        for field in ("input_ids", "decoder_targets"):
            if field not in run.batches.shapes:
                continue
            _, length = run.batches.shapes[field]
            if not flash.takes(length):
                return [backend, "chunked"]
    return ["flash", backend]


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if not number % n]


def _seconds(recipe: Recipe, machine: Machine, settings: Settings) -> float:
    """Estimated, of a step of each objective, by products and links alone."""
    config: ModelConfig = recipe.bound["model"]
    accelerator = machine.accelerator
    peak = accelerator.flops.get(config.dtype, max(accelerator.flops.values()))
    total = 0.0
    for run in _runs(recipe):
        shapes = run.batches.shapes
        try:
            flops = step_flops(run.objective, config, shapes)
        except UserError:
            flops = 0.0
        products = flops / machine.devices / peak
        products *= RECOMPUTED[settings.remat]
        if settings.attention != "flash":
            products *= UNFUSED
        sent = _sent(config, shapes["input_ids"], settings)
        links = sum(size / machine.link(group) for group, size in sent)
        total += max(products, links) + 0.1 * min(products, links)
        total += OF_A_MICROBATCH * settings.microbatches
        total += _moved_by_chunks(config, run, settings) / accelerator.bandwidth
    return total


def _moved_by_chunks(config: ModelConfig, run: ObjectiveRun, settings: Settings) -> float:
    """Bytes of a device in a step: the more chunks, the oftener the token table's gradient is read
    and written."""
    chunk = chunk_of(run, settings.chunk)
    rows = run.batches.shapes["input_ids"][0] // settings.microbatches
    predictions = rows * predictions_of_row(run)
    if not chunk or chunk >= predictions:
        return 0.0
    chunks = settings.microbatches * -(-predictions // chunk)
    table = config.padded_vocab_size * config.dim / settings.tensor
    return OF_A_CHUNK * table * chunks


def _sent(
    config: ModelConfig, shape: tuple[int, ...], settings: Settings
) -> list[tuple[int, float]]:
    """(devices that take part together, bytes that leave one of them) in a step."""

    def ring(n: int) -> float:
        return (n - 1) / n

    own = 4 * count_parameters(config) / settings.tensor
    # For each microbatch: gradients are summed, parameters are gathered forward and backward, and
    # their gradients scattered.
    parts = settings.microbatches
    gradients = 2 * ring(settings.data) * own / settings.fsdp * parts
    gathered = 3 * ring(settings.fsdp) * own * parts
    rows, length = shape
    tokens = rows * length / (settings.data * settings.fsdp)
    layers = config.layers + config.decoder_layers
    # Two sums a layer forward, two backward, in 16 bits.
    sums = 4 * layers * 2 * ring(settings.tensor) * tokens * config.dim * 2
    # The axes stand in this order on the devices: what is innermost is within a machine.
    within = settings.fsdp * settings.tensor
    return [(settings.data * within, gradients), (within, gathered), (settings.tensor, sums)]
