"""Floating-point operations of a whole training, counted from a bound recipe before it runs: steps
of each objective times the matrix products of its traced step. Evaluations are not counted.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax

from xlingjax.config.recipe import Recipe
from xlingjax.data.features import FIELDS
from xlingjax.model.build import build_model
from xlingjax.model.config import ModelConfig
from xlingjax.runtime.traced_program import dot_flops
from xlingjax.training.feed import in_stages
from xlingjax.training.schedule import cycle
from xlingjax.training.stages import at, latest, stage_name, starts

H100 = 758e12  # matrix products in bfloat16 a second, measured on one H100 (docs/results/speed.md)
UTILISATION = 0.25  # useful share of them: 0.15 to 0.29 was measured

Shapes = Mapping[str, tuple[int, ...]]


def gpu_hours(flops: float) -> float:
    """On one H100 in bfloat16."""
    return flops / (H100 * UTILISATION) / 3600


def training_flops(recipe: Recipe) -> float:
    """Of the whole training that a recipe binds; no text is read."""
    bound = recipe.bound
    entries = [in_stages(entry) for entry in bound["objectives"]]
    taken = steps_by_stage(entries, bound["steps"], bound.get("schedule", "alternate"))
    total = 0.0
    for stages in entries:
        for begin, run in stages.items():
            steps = taken[stage_name(run.objective.name, begin)]
            total += steps * step_flops(run.objective, bound["model"], run.batches.shapes)
    return total


def steps_by_stage(entries: list[Mapping[int, Any]], steps: int, schedule: str) -> dict[str, float]:
    """{stage of an objective: its steps among so many}; where turns are drawn, as many as are
    expected. entries: of each objective {first step: `ObjectiveRun`}."""
    weights = [stages[0].weight for stages in entries]
    begins = {step for stages in entries for step in stages}
    begins.update(starts(weights))
    bounds = [*sorted(step for step in begins if step < steps), steps]
    taken = {}
    for stages in entries:
        for begin, run in stages.items():
            taken[stage_name(run.objective.name, begin)] = 0.0
    for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
        now = [at(weight, begin) for weight in weights]
        # A cycle of turns begins with the weights, not with an objective's stage.
        since = begin - latest(starts(weights), begin)
        shares = _shares(now, since, end - begin, schedule)
        for stages, share in zip(entries, shares, strict=True):
            run = stages[0]
            name = stage_name(run.objective.name, latest(stages, begin))
            taken[name] += share
    return taken


def _shares(weights: list[float], since: int, steps: int, schedule: str) -> list[float]:
    """Steps of each objective among so many, of weights that have held for `since` steps."""
    if schedule == "summed":
        return [float(steps) * (weight > 0) for weight in weights]
    if schedule == "weighted":
        return [steps * weight / sum(weights) for weight in weights]
    order = cycle(tuple(weights))
    whole, rest = divmod(steps, len(order))
    counts = [float(whole * order.count(i)) for i in range(len(weights))]
    for step in range(since, since + rest):
        counts[order[step % len(order)]] += 1
    return counts


def columns(objective: Any, shapes: Shapes) -> int:
    """Columns of a batch, on both sides of an encoder-decoder."""
    rows, length = shapes["input_ids"]
    if "decoder_ids" in objective.reads:
        length += shapes["decoder_ids"][1]
    return rows * length


def step_flops(objective: Any, config: ModelConfig, shapes: Shapes) -> float:
    """Of one step on one batch, forward and backward, nothing recomputed; attention over whole
    rows, whatever its mask. A loop that ends by itself, as where back-translation writes, counts as
    one turn."""
    read = tuple((name, shapes[name]) for name in objective.reads)
    if hasattr(objective, "chunk"):
        # Chunks of a loss are computed again on the way back.
        objective = dataclasses.replace(objective, chunk=0)
    return _traced_flops(objective, config.replace(remat="none", attention_backend="xla"), read)


# Cells of a table differ in their rates and seeds, which are no part of a step's shapes.
@functools.cache
def _traced_flops(objective: Any, config: ModelConfig, shapes: Any) -> float:
    model = build_model(config)

    def loss(params, batch, key):
        found = objective.loss(model, params, batch, key, max(config.num_languages, 1))
        return sum(found.terms.values())

    batch = {name: jax.ShapeDtypeStruct(shape, FIELDS[name].dtype) for name, shape in shapes}
    key = jax.eval_shape(lambda: jax.random.key(0))
    return dot_flops(jax.make_jaxpr(jax.grad(loss))(model.abstract(), batch, key))
