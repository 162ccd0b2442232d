"""The optimizer: learning-rate schedules, decay mask, layer-wise decay, frozen parameters.

Clipping and the finite check stand in `step.py`, because they need the gradient's global norm,
which is also logged.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib

from xlingjax.errors import UserError
from xlingjax.model.params import flattened, path_name, path_names
from xlingjax.training.stages import at, starts

NAMES = ("adamw", "adam", "adafactor", "muon")
SCHEDULES = ("linear", "linear_from_0", "inverse_sqrt", "constant")


@dataclass(frozen=True)
class OptimizerConfig:
    """What the update rule is. Defaults are XLM's where XLM has one (§5.1 and its code):
    inverse-sqrt, warm-up 4000 from 1e-7, clip 5."""

    name: str = "adamw"
    """"adamw": decay beside the gradient; "adam": decay added to it (L2); "adafactor": factored
    second moment, no momentum; "muon": AdamW whose updates of the blocks' matrices are orthogonal
    instead (see `_muon`)."""
    learning_rate: float = 1e-4
    schedule: str = "inverse_sqrt"
    warmup_steps: int = 4000
    warmup_share: float | None = None
    """Warm-up as a share of the run's steps, to the nearest one, instead of `warmup_steps`."""
    warmup_from: float = 1e-7
    """Learning rate before the first update of an inverse-sqrt warm-up."""
    b1: float = 0.9
    b2: float = 0.98
    eps: float = 1e-6
    weight_decay: float = 0.0
    """Applied to everything but biases and LayerNorm scales."""
    clip_norm: float = 5.0
    """Gradients of larger global norm are scaled down to it; 0 = never."""
    skip_norm: float = 0.0
    """An update whose gradient norm exceeds this is skipped and counted, like a non-finite one; 0 =
    never."""
    layer_decay: float = 1.0
    """Layer-wise learning rates: what each parameter's update is multiplied with (see
    `layer_rates`)."""
    frozen: Sequence[str] | Mapping[int, Sequence[str]] = ()
    """Regular expressions searched in parameter paths ("embeddings/tokens/embedding"); what matches
    does not change.
    Or such expressions by the step from which they hold: {0: ["embeddings/"], 1000: []}."""
    loss_scale: float = 0.0
    """Initial dynamic loss scale, for a model of dtype float16 (65536 is usual); 0 = none."""

    def __post_init__(self):
        if self.name not in NAMES:
            raise UserError(f"optimizer {self.name!r} is not one of {', '.join(NAMES)}")
        if self.schedule not in SCHEDULES:
            raise UserError(
                f"learning-rate schedule {self.schedule!r} is not one of {', '.join(SCHEDULES)}"
            )
        if self.learning_rate <= 0 or self.warmup_steps < 0:
            raise UserError(
                f"optimizer: learning_rate={self.learning_rate} must be > 0,"
                f" warmup_steps={self.warmup_steps} >= 0"
            )
        if self.warmup_share is not None and not 0 <= self.warmup_share < 1:
            raise UserError(
                f"optimizer: warmup_share={self.warmup_share} is a share of the steps, from 0 to"
                " below 1 (WARMUP_SHARE=0.1)"
            )
        if not 0 < self.layer_decay <= 1:
            raise UserError(
                f"optimizer: layer_decay={self.layer_decay} must be > 0 and at most 1"
                " (LAYER_DECAY=0.8)"
            )

    def warmup(self, steps: int) -> int:
        """Steps of the warm-up in a run of `steps`."""
        return self.warmup_steps if self.warmup_share is None else round(self.warmup_share * steps)


class Optimizer(NamedTuple):
    """`trainable` is a tree of bools like the parameters, True for those that are trained at some
    step. `init` and `update` see trees whose other leaves are None (see `split`)."""

    trainable: Any
    trainable_at: Callable[[int], Any]
    """Tree of bools: what is trained at a step."""
    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]
    """(gradients, optimizer state, parameters, learning rate, steps taken) -> (parameters,
    optimizer state)"""
    learning_rate: Callable[[jax.Array], jax.Array]


def make_optimizer(config: OptimizerConfig, steps: int, params: Any) -> Optimizer:
    """The optimizer for a run of `steps` steps. `params` is the tree of parameters or of their
    shapes."""
    decay = optax.add_decayed_weights(
        config.weight_decay, decayed
    )  # also at 0: the state's structure stays the same
    adam = optax.scale_by_adam(config.b1, config.b2, config.eps)
    if config.name == "adamw":
        chain = (adam, decay)
    elif config.name == "adam":
        chain = (decay, adam)
    elif config.name == "muon":
        adam = optax.partition({"muon": _muon(), "adam": adam}, _muon_or_adam)
        chain = (adam, decay)
    else:
        adafactor = (
            optax.scale_by_factored_rms(),
            optax.clip_by_block_rms(1.0),
            optax.scale_by_param_block_rms(),
        )
        chain = (*adafactor, decay)
    rule = (
        chain[-1] if config.name == "adam" else chain[-2]
    )  # after it an update is whole, but for decoupled decay
    rates = layer_rates(
        params, config.layer_decay
    )  # of all parameters: what is frozen counts as a layer too

    masks = {
        start: trainable_mask(params, at(config.frozen, start)) for start in starts([config.frozen])
    }
    ever = jax.tree.map(lambda *stages: any(stages), *masks.values())
    began = jax.tree.map(
        lambda *on: next((s for s, o in zip(masks, on, strict=True) if o), 0), *masks.values()
    )
    rate = jax.jit(learning_rate_schedule(config, steps))

    def update(grads, opt_state, params, learning_rate, step=0):
        factors = split(rates, ever)[0]
        late = jax.tree.map(lambda first: _late_start(config, step, first), split(began, ever)[0])
        if (
            config.name == "muon"
        ):  # the size of its matrices' updates does not depend on when they began
            late = jax.tree.map(
                lambda kind, f: 1.0 if kind == "muon" else f, _muon_or_adam(late), late
            )
        steps_down, states = grads, []
        for transformation, state in zip(chain, opt_state, strict=True):
            steps_down, state = transformation.update(steps_down, state, params)
            states.append(state)
            if transformation is adam:
                steps_down = jax.tree.map(lambda u, f: f * u, steps_down, late)
            if transformation is rule:
                steps_down = jax.tree.map(lambda u, f: f * u, steps_down, factors)
        return jax.tree.map(lambda p, u: p - learning_rate * u, params, steps_down), tuple(states)

    def trainable_at(step):
        return masks[max(start for start in masks if start <= step)]

    return Optimizer(ever, trainable_at, optax.chain(*chain).init, update, rate)


def _late_start(config: OptimizerConfig, step: jax.Array, began: int) -> Any:
    """What an update of Adam is multiplied with where the parameter is trained from step `began`
    on: Adam's correction for moments that begin at 0 counts all steps of the run, and this one's
    moments began later."""
    if not began:
        return 1.0
    all_steps, own = jnp.float32(step + 1), jnp.float32(jnp.maximum(step + 1 - began, 1))
    first = (1 - config.b1**all_steps) / (1 - config.b1**own)
    return first * jnp.sqrt((1 - config.b2**own) / (1 - config.b2**all_steps))


def moments_mask(opt_state: Any, trainable: Any) -> Any:
    """Tree of bools like the optimizer state: False where a path ends in that of a parameter not
    `trainable`."""
    known = {path: on for path, on in jax.tree_util.tree_flatten_with_path(trainable)[0]}

    def one(path, _):
        return next((known[path[i:]] for i in range(len(path)) if path[i:] in known), True)

    return jax.tree_util.tree_map_with_path(one, opt_state)


def _muon() -> optax.GradientTransformation:
    """Momentum of the blocks' matrices, orthogonalised by Newton-Schulz (Jordan 2024), all heads of
    a projection as one matrix; scaled to the size of Adam's updates, so that one learning rate and
    decay serve both (Liu et al. 2025).
    """

    def scaled(updates, _):
        def one(update, axes):
            sides = [
                math.prod(update.shape[i] for i in side)
                for side in (axes.reduction_axis, axes.output_axis)
            ]
            return update * (0.2 * math.sqrt(max(sides)))

        return jax.tree.map(one, updates, _matrix_axes(updates))

    return optax.chain(
        optax.contrib.scale_by_muon(beta=0.95, weight_dimension_numbers=_matrix_axes),
        optax.stateless(scaled),
    )


def _muon_or_adam(params: Any) -> Any:
    """Per leaf "muon" (the kernels of the stacked blocks) or "adam" (embeddings, heads, biases,
    LayerNorm)."""

    def one(path, _):
        name = path_name(path)
        return "muon" if "/layers/" in name and name.endswith("/kernel") else "adam"

    return jax.tree_util.tree_map_with_path(one, params)


def _matrix_axes(kernels: Any) -> Any:
    """Which axes of a stack of kernels are the rows and which the columns of its matrices: [N, D,
    F], [N, D, H, K], and [N, H, K, D] of the attention's output."""

    def one(path, kernel):
        rows = kernel.ndim - 1 if path_name(path).endswith("attention/out/kernel") else 2
        return optax.contrib.MuonDimensionNumbers(
            tuple(range(1, rows)), tuple(range(rows, kernel.ndim))
        )

    return jax.tree_util.tree_map_with_path(one, kernels)


def learning_rate_schedule(
    config: OptimizerConfig, steps: int, xp: Any = jnp
) -> Callable[[Any], Any]:
    """Learning rate as a pure function of the number of steps already taken.

    "inverse_sqrt" (XLM): from `warmup_from` linearly to the peak at `warmup_steps`, then peak *
    sqrt(warmup_steps / step). "linear": peak * (step + 1) / warmup_steps, then down to 0 at
    `steps`. "linear_from_0": the same warm-up, then peak * (1 - step / steps): at the end of the
    warm-up it drops by as much as that is of the steps (the code of ERNIE-M). "constant": the same
    warm-up, then the peak. xp: `numpy` computes on the host.
    """
    peak, warmup = config.learning_rate, config.warmup(steps)
    if config.schedule.startswith("linear") and warmup >= steps:
        raise UserError(
            f"warmup_steps={warmup} leaves nothing of steps={steps} for a linear decay: lower"
            " warmup_steps (WARMUP_STEPS), or train longer (TRAIN_STEPS)"
        )

    def rate(step):
        step = xp.asarray(step, xp.float32)
        ramp = xp.minimum((step + 1) / max(warmup, 1), 1.0)
        if config.schedule == "constant":
            return peak * ramp
        if config.schedule == "linear_from_0":
            return peak * xp.where(step < warmup, ramp, xp.maximum(steps - step, 0.0) / steps)
        if config.schedule == "linear":
            return peak * xp.where(
                step < warmup, ramp, xp.maximum(steps - step, 0.0) / (steps - warmup)
            )
        rising = config.warmup_from + step * (peak - config.warmup_from) / max(warmup, 1)
        return xp.where(
            step < warmup, rising, peak * xp.sqrt(max(warmup, 1) / xp.maximum(step, 1.0))
        )

    return rate


def decayed(params: Any) -> Any:
    """True where weight decay applies: everything but biases and LayerNorm scales. By name, since a
    scanned stack's biases have two axes."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: path_name(path).split("/")[-1] not in ("bias", "scale"), params
    )


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

    def one(path, leaf):
        part, inner, *_ = (*path_name(path).split("/"), "")
        if inner == "layers":
            powers = np.arange(layers[part], 0, -1, dtype=np.float32)
            return np.float32(decay) ** powers.reshape(-1, *[1] * (len(leaf.shape) - 1))
        if part in ("embeddings", "decoder_embeddings") and inner != "norm":
            return decay ** (
                layers.get("decoder" if part.startswith("decoder") else "encoder", 0) + 1
            )
        return 1.0

    return jax.tree_util.tree_map_with_path(one, params)


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


def split(params: Any, trainable: Any) -> tuple[Any, Any]:
    """(trainable, frozen): two trees, each with None where the other has the leaf, so that frozen
    leaves get neither gradient nor moments."""
    return (
        jax.tree.map(lambda p, keep: p if keep else None, params, trainable),
        jax.tree.map(lambda p, keep: None if keep else p, params, trainable),
    )


def merge(trainable: Any, frozen: Any) -> Any:
    """The inverse of `split`."""
    return jax.tree.map(
        lambda t, f: f if t is None else t, trainable, frozen, is_leaf=lambda leaf: leaf is None
    )
