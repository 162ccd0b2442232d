"""Useful floating-point operations of a whole training, counted from a bound recipe before it runs:
steps of each objective times what its step must compute.

What an objective counts itself (`Objective.flops_per_token`) is taken from it. Those of several
passes are counted here, pass by pass, in the same way: matrix products, forward and backward, with
the true vocabulary, over whole rows. Evaluations are not counted.
"""

from collections.abc import Mapping
from typing import Any

from xlingjax.config.recipe import Recipe
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig
from xlingjax.model.flops import decoder_flops_per_token, flops_per_token
from xlingjax.objectives.back_translation import BackTranslation
from xlingjax.objectives.ernie_m import BTMLM
from xlingjax.objectives.plug_in import PlugIn, PlugInSpans, PlugInTagging
from xlingjax.objectives.translation import Translation
from xlingjax.objectives.unicoder import CLWR
from xlingjax.objectives.veco import VECO
from xlingjax.objectives.xglue import XFNP
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
    """Of the whole training that a recipe binds; no text is read. Raises UserError for an objective
    that is not counted: one of a user's own."""
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
    """Of one step on one batch. Raises UserError for an objective that is not known."""
    read = {name: shapes[name] for name in objective.reads}
    counted = objective.flops_per_token(config, read)
    for kind, count in _COUNTS.items():
        if counted is None and isinstance(objective, kind):
            counted = count(objective, config, read)
    if counted is None:
        raise UserError(
            f"objective {objective.name}: its floating-point operations are not counted"
        )
    return columns(objective, read) * counted


def _veco(objective: VECO, config: ModelConfig, shapes: Shapes) -> float:
    """H, S with the cross-attention, and TLM; in the first phase H alone forward, while S is
    counted as if all of it were trained."""
    length = shapes["input_ids"][1]
    slots = shapes["masked_positions"][1] / length
    plain = flops_per_token(config, length, slots)
    total = plain + _cross_attention(config, length)
    if objective.plug_out:
        total += plain
    else:
        total += flops_per_token(config, length, 0.0) / 3
    if objective.tlm:
        total += plain
    return total


def _plug_in(objective: Any, config: ModelConfig, shapes: Shapes) -> float:
    """H and S."""
    length = shapes["input_ids"][1]
    plain = flops_per_token(config, length, 0.0)
    return 2 * plain + _cross_attention(config, length)


def _cross_attention(config: ModelConfig, length: int) -> float:
    """Of every layer, asked by a row of its own, the memory as long and a constant."""
    projections = 8 * config.dim**2
    attention = 4 * length * config.dim
    # No gradient of the memory, which keys and values are projected from.
    constant = 4 * config.dim**2
    return config.layers * (3 * (projections + attention) - constant)


def _btmlm(objective: BTMLM, config: ModelConfig, shapes: Shapes) -> float:
    """Pseudo tokens are written forward alone, then MLM."""
    length = shapes["input_ids"][1]
    places = shapes["pseudo_positions"][1] / length
    slots = shapes["masked_positions"][1] / length
    written = flops_per_token(config, length, places) / 3
    return written + flops_per_token(config, length, slots)


def _clwr(objective: CLWR, config: ModelConfig, shapes: Shapes) -> float:
    """The mixtures, attention over word embeddings, and a prediction at each column."""
    length = shapes["input_ids"][1]
    mixtures = 3 * 4 * length * config.dim
    return mixtures + flops_per_token(config, length, 1.0)


def _with_streams(objective: Translation, config: ModelConfig, shapes: Shapes) -> float:
    """The decoder's main stream and each predicting one that learns, of which each predicts every
    word."""
    # Fine-tuning may train the first alone.
    streams = 1
    if isinstance(objective, XFNP):
        streams = len(objective.alphas)
    source = shapes["input_ids"][1]
    target = shapes["decoder_ids"][1]
    encoder = source * flops_per_token(config, source, 0.0)
    head = flops_per_token(config, 0, 1.0) - flops_per_token(config, 0, 0.0)
    words = target * head
    both = (source + target) * decoder_flops_per_token(config, source, target)
    stream = both - encoder - words
    total = encoder + (1 + streams) * stream + streams * words
    return total / (source + target)


def _back_translation(objective: BackTranslation, config: ModelConfig, shapes: Shapes) -> float:
    """The translation is written forward alone, counted as if it filled its row; then the text is
    learnt from it."""
    source = shapes["input_ids"][1]
    target = shapes["decoder_ids"][1]
    learnt = decoder_flops_per_token(config, source, target)
    return learnt * 4 / 3


_COUNTS = {
    VECO: _veco,
    PlugIn: _plug_in,
    PlugInSpans: _plug_in,
    PlugInTagging: _plug_in,
    BTMLM: _btmlm,
    CLWR: _clwr,
    BackTranslation: _back_translation,
    # Behind it, which is a translation too.
    Translation: _with_streams,
}
