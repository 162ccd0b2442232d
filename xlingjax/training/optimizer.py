"""The optimizer: its settings, the update rules by name, learning-rate schedules; which parameters
it trains and decays, and at which rates.

Clipping and the finite check stand in `step.py`: they need the gradient's global norm.
"""

import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib

from xlingjax.errors import UserError, require_choice, require_numbers, require_whole
from xlingjax.model.params import flattened, path_name, path_names
from xlingjax.training.stages import at, latest, starts


def decayed(params: Any) -> Any:
    """True where weight decay applies: everything but biases and LayerNorm scales. By name, since a
    scanned stack's biases have two axes."""

    def decays(path, _):
        return path_name(path).split("/")[-1] not in ("bias", "scale")

    return jax.tree_util.tree_map_with_path(decays, params)


def layer_rates(params: Any, decay: float) -> Any:
    """What each parameter's update is multiplied with; a vector over axis 0 for the stacked blocks.

    Block i of the N of its stack (0: the bottom one) decay^(N - i), the tables of words, positions
    and languages beneath it decay^(N + 1), all else 1: the LayerNorm of the embeddings, poolers and
    heads (the released code of ERNIE-M). Weight decay beside the gradient is not multiplied. A
    decoder counts its own layers, as do the tables that are its own; tables that both sides read
    count the encoder's.
    """
    if decay == 1.0:
        return jax.tree.map(lambda _: 1.0, params)
    layers: dict[str, int] = {}
    for name, leaf in flattened(params).items():
        if "/layers/" in name:
            layers[name.split("/")[0]] = leaf.shape[0]

    def rate(path, leaf):
        part, _, rest = path_name(path).partition("/")
        inner = rest.split("/")[0]
        # Of a scanned stack, one array for all blocks, each block has a factor of its own.
        if inner == "layers":
            powers = np.arange(layers[part], 0, -1, dtype=np.float32)
            shape = (-1, *[1] * (len(leaf.shape) - 1))
            return np.float32(decay) ** powers.reshape(shape)
        if part in ("embeddings", "decoder_embeddings") and inner != "norm":
            side = "decoder" if part.startswith("decoder") else "encoder"
            return decay ** (layers.get(side, 0) + 1)
        return 1.0

    return jax.tree_util.tree_map_with_path(rate, params)


def trainable_mask(params: Any, frozen: Sequence[str]) -> Any:
    """Tree of bools: False where a regular expression of `frozen` is found in the path. Raises
    UserError for an expression that matches nothing, and when nothing would be left to train."""
    names = path_names(params)
    for pattern in frozen:
        if not any(re.search(pattern, name) for name in names):
            raise UserError(
                f"frozen={pattern!r} matches no parameter; paths are like {', '.join(names[:3])}"
            )
    mask = [not any(re.search(pattern, name) for pattern in frozen) for name in names]
    if not any(mask):
        raise UserError(f"frozen={tuple(frozen)} freezes every parameter; nothing is left to train")
    return jax.tree.unflatten(jax.tree.structure(params), mask)


def first_steps(masks: Mapping[int, Any]) -> Any:
    """Steps from which parameters are trained; 0 if never. masks: {first step: tree of bools}."""

    def first(*trained):
        return next((start for start, on in zip(masks, trained, strict=True) if on), 0)

    return jax.tree.map(first, *masks.values())


def moments_mask(opt_state: Any, trainable: Any) -> Any:
    """Bools like the optimizer state: False where a path ends in that of a frozen parameter."""
    known = dict(jax.tree_util.tree_flatten_with_path(trainable)[0])

    def is_trained(path, _):
        # A moment has the path of its parameter behind its own; a count ends in none.
        ends = (path[start:] for start in range(len(path)))
        return next((known[end] for end in ends if end in known), True)

    return jax.tree_util.tree_map_with_path(is_trained, opt_state)


def split(params: Any, trainable: Any) -> tuple[Any, Any]:
    """(trainable, frozen): two trees, each with None where the other has the leaf, so that frozen
    leaves get neither gradient nor moments. None stays None in both."""
    kept = jax.tree.map(lambda p, keep: p if keep else None, params, trainable, is_leaf=_is_none)
    rest = jax.tree.map(lambda p, keep: None if keep else p, params, trainable, is_leaf=_is_none)
    return kept, rest


def merge(trainable: Any, frozen: Any) -> Any:
    """The inverse of `split`."""
    return jax.tree.map(lambda t, f: f if t is None else t, trainable, frozen, is_leaf=_is_none)


def _is_none(leaf: Any) -> bool:
    return leaf is None


def stable(
    adam: optax.GradientTransformationExtraArgs, b2: float, eps: float, first_steps: Any
) -> optax.GradientTransformationExtraArgs:
    """`adam`, a chain that begins with Adam and may end in decay, whose step of each parameter, and
    of each layer of a stacked one, is divided by max(1, RMS(g / max(sqrt(v), eps))): where
    gradients outgrow their second moment v it is no longer than usual (StableAdamW, Wortsman et al.
    2023)."""

    def update(gradients, state, params=None, **arguments):
        updates, after = adam.update(gradients, state, params, **arguments)
        count, _, seconds = after[0]

        def shorter(path, update, gradient, second, first):
            # v counts from the first step at which the parameter is trained.
            v = second / (1 - b2 ** jnp.maximum(count - first, 1))
            axes = tuple(range("/layers/" in path_name(path), update.ndim))
            outgrown = jnp.mean(gradient**2 / jnp.maximum(v, eps**2), axes, keepdims=True)
            return update / jnp.sqrt(jnp.maximum(outgrown, 1.0))

        trees = updates, gradients, seconds, first_steps
        return jax.tree_util.tree_map_with_path(shorter, *trees), after

    return optax.GradientTransformationExtraArgs(adam.init, update)


def scale_by_muon() -> optax.GradientTransformation:
    """Momentum of the blocks' matrices, orthogonalised by Newton-Schulz (Jordan 2024), all heads of
    a projection as one matrix; scaled to the size of Adam's updates, so that one learning rate and
    decay serve both (Liu et al. 2025)."""

    def scaled(updates, _):
        return jax.tree.map(_to_the_size_of_adams, updates, matrix_axes(updates))

    # `scale_by_muon` leaves the size of an orthogonal matrix, so the factor comes behind it.
    return optax.chain(
        optax.contrib.scale_by_muon(beta=0.95, weight_dimension_numbers=matrix_axes),
        optax.stateless(scaled),
    )


def _to_the_size_of_adams(update: jax.Array, axes: optax.contrib.MuonDimensionNumbers):
    # An orthogonal update has entries of about 1 / sqrt(larger side), Adam's of about 0.2.
    rows = math.prod(update.shape[axis] for axis in axes.reduction_axis)
    columns = math.prod(update.shape[axis] for axis in axes.output_axis)
    return update * (0.2 * math.sqrt(max(rows, columns)))


def muon_or_adam(params: Any) -> Any:
    """Per leaf "muon" (kernels of stacked blocks) or "adam" (embeddings, heads, biases, norms)."""

    def label(path, _):
        name = path_name(path)
        # Rows of a table are looked up one by one: to orthogonalise them would mix pieces.
        return "muon" if "/layers/" in name and name.endswith("/kernel") else "adam"

    return jax.tree_util.tree_map_with_path(label, params)


def matrix_axes(kernels: Any) -> Any:
    """Which axes of a stack of kernels are the rows and which the columns of its matrices: [N, D,
    F], [N, D, H, K], and [N, H, K, D] of the attention's output."""

    def axes(path, kernel):
        columns_from = 2
        if path_name(path).endswith("attention/out/kernel"):
            columns_from = kernel.ndim - 1
        return optax.contrib.MuonDimensionNumbers(
            reduction_axis=tuple(range(1, columns_from)),
            output_axis=tuple(range(columns_from, kernel.ndim)),
        )

    return jax.tree_util.tree_map_with_path(axes, kernels)


def by_step(update: Callable[..., Any]) -> optax.GradientTransformationExtraArgs:
    """A link of the chain that keeps nothing. update: (updates, step) -> updates."""

    def update_and_state(updates, state, params=None, *, step, **_):
        return update(updates, step), state

    return optax.GradientTransformationExtraArgs(
        lambda params: optax.EmptyState(), update_and_state
    )


def frozen_in_stages(
    inner: optax.GradientTransformationExtraArgs, trainable_at: Callable[[int], Any], ever: Any
) -> optax.GradientTransformationExtraArgs:
    """`inner`, whose state is that of the parameters trained at some step (`ever`, a tree of
    bools). What other stages train keeps its value and moments."""

    def init(params):
        return inner.init(split(params, ever)[0])

    def update(updates, state, params, *, stage=0, **arguments):
        now = trainable_at(stage)
        params, _ = split(params, ever)
        # One chain serves all stages, so the others' parameters go through it, with gradient 0.
        gradients = merge(updates, jax.tree.map(jnp.zeros_like, params))
        updates, after = inner.update(gradients, state, params, **arguments)
        # Their moments would shrink with gradient 0.
        after = jax.tree.map(
            lambda new, old, trained: new if trained else old,
            after,
            state,
            moments_mask(state, now),
        )
        # Updates of the others would be 0 and decay: they are dropped, not applied.
        return split(updates, now)[0], after

    return optax.GradientTransformationExtraArgs(init, update)


def correct_late_starts(b1: float, b2: float, first_steps: Any) -> Any:
    """Behind Adam: its correction for moments that begin at 0 counts all steps of the run, and
    those of a parameter that is trained from a later step on began there."""

    def factor(step, first):
        if first == 0:
            return 1.0
        all_steps = jnp.float32(step + 1)
        # At least 1 where the stage has not begun: its update is dropped, but must not be NaN.
        own = jnp.float32(jnp.maximum(step + 1 - first, 1))
        mean = (1 - b1**all_steps) / (1 - b1**own)
        return mean * jnp.sqrt((1 - b2**own) / (1 - b2**all_steps))

    return by_step(
        lambda updates, step: jax.tree.map(
            lambda u, first: factor(step, first) * u, updates, first_steps
        )
    )


NAMES = ("adamw", "adam", "stable_adamw", "muon")
# Arguments of optax's optimizers that the chain sets.
OURS = ("learning_rate", "weight_decay", "mask")
# What is left of the rate above its floor when the share `left` of the decay is still to come.
DECAYS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "linear": lambda left: left,
    "1-sqrt": lambda left: 1 - jnp.sqrt(1 - left),
    "cosine": lambda left: (1 - jnp.cos(jnp.pi * left)) / 2,
}
SCHEDULES = (*DECAYS, "linear_from_0", "inverse_sqrt", "constant")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """What the update rule is. Defaults are XLM's where XLM has one (§5.1 and its code):
    inverse-sqrt, warm-up 4000 from 1e-7, clip 5."""

    name: str = "adamw"
    """"adamw": decay beside the gradient; "adam": decay added to it (L2); "stable_adamw": AdamW
    whose steps are shorter where gradients outgrow its second moment (see `stable`); "muon": AdamW
    whose updates of the blocks' matrices are orthogonal (see `scale_by_muon`). Else an optimizer
    of optax ("adafactor", "lion", "lamb", "sgd"), with decay beside the gradient."""
    learning_rate: float = 1e-4
    schedule: str = "inverse_sqrt"
    warmup_steps: float = 4000
    """Below 1: a share of the run's steps, to the nearest one."""
    warmup_from: float = 1e-7
    """Learning rate before the first update of an inverse-sqrt warm-up."""
    decay_steps: float | None = None
    """The last so many steps, below 1 their share, in which "linear", "1-sqrt" and "cosine" fall;
    before them the rate holds (trapezoidal, WSD). None: they fall from the warm-up on."""
    floor: float = 0.0
    """The rate at the end of these three, as a share of the peak."""
    b1: float = 0.9
    """b1, b2, eps: of these four, not of an optimizer of optax."""
    b2: float = 0.98
    eps: float = 1e-6
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Arguments of an optimizer of optax ({"b2": 0.99}); what is left out is as optax has it."""
    weight_decay: float = 0.0
    """Applied to everything but biases and LayerNorm scales."""
    decoupled_decay: bool = False
    """A step takes away weight_decay * rate / peak of a weight, and not weight_decay * rate."""
    clip_norm: float = 5.0
    """Gradients of larger global norm are scaled down to it; 0 = never."""
    skip_norm: float = 0.0
    """An update whose gradient norm exceeds this is skipped and counted, like a non-finite one; 0 =
    never."""
    layer_decay: float = 1.0
    """Layer-wise learning rates: factor of each parameter's update (see `layer_rates`)."""
    frozen: Sequence[str] | Mapping[int, Sequence[str]] = ()
    """Regular expressions searched in parameter paths ("embeddings/tokens/embedding"); what matches
    does not change.
    Or such expressions by the step from which they hold: {0: ["embeddings/"], 1000: []}."""
    loss_scale: float = 0.0
    """Initial dynamic loss scale, for a model of dtype float16 (65536 is usual); 0 = none."""

    def __post_init__(self):
        if self.name not in NAMES:
            optax_rule(self.name, self.options)
        elif self.options:
            raise UserError(
                f"optimizer.options={dict(self.options)} are for optimizers of optax; {self.name}"
                " is not from there and has b1, b2, eps: leave them out"
            )
        require_choice(self, SCHEDULES, "schedule", "optimizer: ")
        require_numbers(self, "(0, inf)", "learning_rate", "optimizer: ")
        others = (
            "warmup_steps decay_steps warmup_from eps weight_decay clip_norm skip_norm loss_scale"
        )
        require_numbers(self, "[0, inf)", others, "optimizer: ")
        counts = ("warmup_steps", "decay_steps")
        counted = {name: value for name in counts if (value := getattr(self, name) or 0) >= 1}
        require_whole(counted, "[1, inf)", " ".join(counted), "optimizer: ")
        require_numbers(self, "[0, 1)", "b1 b2", "optimizer: ")
        require_numbers(self, "[0, 1]", "floor", "optimizer: ")
        require_numbers(self, "(0, 1]", "layer_decay", "optimizer: ")

    def warmup(self, steps: int) -> int:
        """Steps of the warm-up in a run of `steps`."""
        return _of_run(self.warmup_steps, steps)

    def decay(self, steps: int) -> int:
        """Steps of the decay in a run of `steps`. Raises UserError where the warm-up leaves fewer,
        or none."""
        warmup = self.warmup(steps)
        decay = max(steps - warmup, 1)
        if self.decay_steps is not None:
            decay = _of_run(self.decay_steps, steps)
        falls = self.schedule in DECAYS or self.schedule == "linear_from_0"
        if falls and warmup + decay > steps:
            raise UserError(
                f"a warm-up of {warmup} and a decay of {decay} do not fit into {steps} steps: lower"
                " WARMUP_STEPS or DECAY_STEPS, give shares of the steps (WARMUP_STEPS=0.05), or"
                " train longer (TRAIN_STEPS)"
            )
        return decay


def _of_run(count: float, steps: int) -> int:
    return round(count if count >= 1 else count * steps)


class Optimizer(NamedTuple):
    transformation: optax.GradientTransformationExtraArgs
    """`update` takes two more arguments: `step`, how many were taken before, and `stage`, a step at
    which the same parameters are trained. Gradients and updates of all others are None."""
    trainable_at: Callable[[int], Any]
    """Tree of bools like the parameters: what is trained at a step."""
    learning_rate: Callable[[Any], jax.Array]
    """Of the update after so many steps."""


def make_optimizer(config: OptimizerConfig, steps: int, params: Any) -> Optimizer:
    """The optimizer for a run of `steps` steps. params: the parameters, or their shapes."""
    masks = {}
    for start in starts([config.frozen]):
        # Each stage is checked now, and not when the run comes to it.
        masks[start] = trainable_mask(params, at(config.frozen, start))
    ever = jax.tree.map(lambda *stages: any(stages), *masks.values())
    # What no stage trains has neither moments nor a place in the chain.
    begin, _ = split(first_steps(masks), ever)
    # Of all parameters: what is frozen counts as a layer too.
    rates, _ = split(layer_rates(params, config.layer_decay), ever)
    # Jitted, as the loop computes it for its log lines too.
    rate = jax.jit(learning_rate_schedule(config, steps))

    by_layer = by_step(lambda updates, step: jax.tree.map(jnp.multiply, updates, rates))
    # Also at 0, so that the state has the same structure with and without decay. The rate comes
    # last and multiplies decay too, which is free of it where it is divided by the peak.
    weight_decay = config.weight_decay / (config.learning_rate if config.decoupled_decay else 1.0)
    decay = optax.add_decayed_weights(weight_decay, decayed)
    adam = optax.scale_by_adam(config.b1, config.b2, config.eps)
    late = correct_late_starts(config.b1, config.b2, begin)
    # Layer-wise rates stand before the decay that is beside the gradient: it is not multiplied.
    if config.name == "adamw":
        links = (adam, late, by_layer, decay)
    elif config.name == "stable_adamw":
        adam = optax.chain(adam, late, by_layer, decay)
        links = (stable(adam, config.b2, config.eps, begin),)
    elif config.name == "adam":
        # L2: the decay is part of the gradient that Adam scales.
        links = (decay, adam, late, by_layer)
    elif config.name == "muon":
        both = optax.partition({"muon": scale_by_muon(), "adam": adam}, muon_or_adam)
        # The size of a matrix's updates does not depend on when they began.
        of_adam = jax.tree.map(
            lambda kind, first: first if kind == "adam" else 0, muon_or_adam(begin), begin
        )
        links = (both, correct_late_starts(config.b1, config.b2, of_adam), by_layer, decay)
    else:
        links = (optax_rule(config.name, config.options), by_layer, decay)
    # The rate last, over direction and decay alike; it turns the direction downhill.
    down = by_step(lambda updates, step: jax.tree.map(lambda u: -rate(step) * u, updates))
    chain = optax.chain(*links, down)

    def trainable_at(step):
        return masks[latest(masks, step)]

    return Optimizer(frozen_in_stages(chain, trainable_at, ever), trainable_at, rate)


def optax_rule(name: str, options: Mapping[str, Any]) -> optax.GradientTransformation:
    """The direction of an optimizer of optax, for a learning rate and weight decay that come
    behind it. Raises UserError for a name or an option that it does not have."""
    function: Any = getattr(optax, name, None)
    known = inspect.signature(function).parameters if inspect.isfunction(function) else {}
    if name.startswith("scale_by_") or "learning_rate" not in known or "linesearch" in known:
        raise UserError(
            f"optimizer {name!r} is not one of {', '.join(NAMES)}, and optax has none of that name"
        )
    for option in options:
        if option not in known or option in OURS:
            others = ", ".join(one for one in known if one not in OURS)
            raise UserError(
                f"optimizer.options: {name} of optax has no {option!r}; it has {others}"
            )
    arguments = dict(options)
    if "weight_decay" in known:
        # The chain's own leaves out biases and LayerNorm, and layer-wise rates leave it alone.
        arguments["weight_decay"] = 0.0
    # The rate 1 leaves the direction, which points downhill: the chain's last link turns it.
    return optax.chain(function(learning_rate=1.0, **arguments), optax.scale(-1.0))


def learning_rate_schedule(config: OptimizerConfig, steps: int) -> Callable[[Any], Any]:
    """Learning rate as a pure function of the number of steps already taken.

    "linear", "1-sqrt", "cosine": peak * (step + 1) / warmup_steps, then the peak, and in the last
    steps (see `OptimizerConfig.decay_steps`) down to `floor` of it at `steps`: in a line, as 1 -
    sqrt(t) of the passed share t, as half a cosine. "inverse_sqrt" (XLM): from `warmup_from`
    linearly to the peak at `warmup_steps`, then peak * sqrt(warmup_steps / step). "linear_from_0":
    the first warm-up, then peak * (1 - step / steps): at the end of the warm-up it drops by as much
    as that is of the steps (the code of ERNIE-M). "constant": the first warm-up, then the peak.
    """
    peak, floor = config.learning_rate, config.floor
    warmup, decay = config.warmup(steps), config.decay(steps)

    def rate(step):
        step = jnp.asarray(step, jnp.float32)
        # The first update has the number 0 and is not lost.
        ramp = jnp.minimum((step + 1) / max(warmup, 1), 1.0)
        left = jnp.maximum(steps - step, 0.0)
        # The name is known while the program is traced, so that only one schedule is in it.
        if config.schedule == "constant":
            return peak * ramp
        if config.schedule == "linear_from_0":
            return peak * jnp.where(step < warmup, ramp, left / steps)
        if fall := DECAYS.get(config.schedule):
            above = fall(jnp.minimum(left / max(decay, 1), 1.0))
            return peak * jnp.where(step < warmup, ramp, floor + (1 - floor) * above)
        rising = config.warmup_from + step * (peak - config.warmup_from) / max(warmup, 1)
        falling = peak * jnp.sqrt(max(warmup, 1) / jnp.maximum(step, 1.0))
        return jnp.where(step < warmup, rising, falling)

    return rate
