"""One training step: a pure function of the state and a global batch.

The only place that divides. An objective returns sums; the sums of all microbatches on all devices
are divided once
by the number of predictions of the whole batch, so that k microbatches equal one batch and n
devices equal one
device, however unequal the padding.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xlingjax.model.partition import ROW_AXES, param_shardings, replicated, state_shardings
from xlingjax.objectives.ramp import Ramp
from xlingjax.training.optimizer import Optimizer, OptimizerConfig, merge, moments_mask, split

LOSS_SCALE_GROWTH_STEPS = 2000


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """Everything a run carries from step to step. All scalars live on the device, so that the host
    loop never waits
    for them."""

    step: jax.Array
    """int32: steps taken, skipped ones included."""
    params: Any
    """float32 master weights."""
    opt_state: Any
    loss_scale: jax.Array
    """float32: 1 unless the optimizer asks for a dynamic loss scale."""
    good_steps: jax.Array
    """int32: finite steps since the loss scale last changed."""
    bad_steps: jax.Array
    """int32: consecutive steps whose update was skipped."""
    skipped: jax.Array
    """int32: all steps whose update was skipped."""


def initial_state(params: Any, optimizer: Optimizer, config: OptimizerConfig) -> TrainState:
    def zero():
        return jnp.zeros((), jnp.int32)

    return TrainState(
        step=zero(),
        params=params,
        opt_state=optimizer.init(split(params, optimizer.trainable)[0]),
        loss_scale=jnp.float32(config.loss_scale or 1.0),
        good_steps=zero(),
        bad_steps=zero(),
        skipped=zero(),
    )


def abstract_state(
    mesh: Mesh, model: Any, optimizer: Optimizer, config: OptimizerConfig
) -> TrainState:
    """Shapes, dtypes and shardings of a run's state, without making any of it."""
    params = model.abstract()
    state = jax.eval_shape(lambda params: initial_state(params, optimizer, config), params)
    shardings = state_shardings(
        mesh, state, params, param_shardings(mesh, model.logical_axes(), params)
    )
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), state, shardings
    )


def random_state(
    model: Any, optimizer: Optimizer, config: OptimizerConfig, shardings: TrainState, seed: int
) -> TrainState:
    """A new state, each part made where it lies; the same numbers on every mesh."""
    make = jax.jit(
        lambda key: initial_state(model.init(key), optimizer, config), out_shardings=shardings
    )
    return make(jax.random.key(seed))


def train_step(
    state: TrainState,
    batch: dict[str, Any],
    *,
    model: Any,
    objective: Any,
    languages: int,
    optimizer: Optimizer,
    config: OptimizerConfig,
    microbatches: int,
    key: jax.Array,
    shardings: TrainState,
    stage: int = 0,
) -> tuple[TrainState, dict[str, Any]]:
    """(next state, sums). `batch` is global, rows sharded over the mesh (of `Summed` objectives: a
    batch of each); `key` is the run's random key; `stage`: a step at which the same parameters are
    trained as at this one.

    sums: {"metrics": the objective's (sum, weight) pairs, "total" and "grad_norm" (of finite
    steps), "tokens",
    "good", "steps", "bad_steps", "finite"}; a skipped step adds 0 to all but "tokens" and "steps".
    Skipped: a loss or gradient that is not "finite", or a norm over `skip_norm`; parameters and
    optimizer state then stay exactly as they were.
    """
    now = optimizer.trainable_at(stage)
    trainable, frozen = split(state.params, now)
    weights = {term: jnp.maximum(weight, 1.0) for term, weight in objective.weights(batch).items()}
    step_key = jax.random.fold_in(key, state.step)
    factors = {
        term: c.at(state.step) if isinstance(c, Ramp) else c
        for term, c in objective.coefficients.items()
    }

    def scaled_loss(trainable, rows, microbatch):
        rng = jax.random.fold_in(step_key, microbatch)
        loss = objective.loss(model, merge(trainable, frozen), rows, rng, languages)
        total = sum(factors[term] * value / weights[term] for term, value in loss.terms.items())
        return total * state.loss_scale if config.loss_scale else total, (total, loss.metrics)

    def one(rows, microbatch):
        grads, (total, metrics) = jax.grad(scaled_loss, has_aux=True)(trainable, rows, microbatch)
        # Without this XLA may keep whole gradients on every device and only then slice them.
        grads = jax.lax.with_sharding_constraint(grads, split(shardings.params, now)[0])
        return grads, total, metrics

    if microbatches == 1:
        grads, total, metrics = one(batch, 0)
    else:
        grads, total, metrics = scan_microbatches(one, batch, microbatches, shardings.step.mesh)
    if config.loss_scale:
        grads = jax.tree.map(lambda g: g / state.loss_scale, grads)

    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads)))
    finite = jnp.isfinite(total) & jnp.isfinite(norm)
    good = finite & (norm <= config.skip_norm) if config.skip_norm else finite
    if config.clip_norm:
        clip = jnp.minimum(1.0, config.clip_norm / jnp.maximum(norm, 1e-12))
        grads = jax.tree.map(lambda g: g * clip, grads)
    # What other stages train gets gradient 0, and keeps its value and moments.
    ever, never = split(state.params, optimizer.trainable)
    grads = merge(grads, jax.tree.map(jnp.zeros_like, ever))
    changed = split(now, optimizer.trainable)[0], moments_mask(state.opt_state, now)
    ever, opt_state = jax.tree.map(
        lambda new, old, on: jnp.where(good, new, old) if on else old,
        optimizer.update(
            grads, state.opt_state, ever, optimizer.learning_rate(state.step), state.step
        ),
        (ever, state.opt_state),
        changed,
    )

    bad_steps = jnp.where(good, 0, state.bad_steps + 1)
    state = TrainState(
        step=state.step + 1,
        params=merge(ever, never),
        opt_state=opt_state,
        **next_loss_scale(state, finite, config),
        bad_steps=bad_steps,
        skipped=state.skipped + ~good,
    )
    kept = {"metrics": metrics, "total": total, "grad_norm": norm, "good": jnp.float32(1)}
    sums = jax.tree.map(lambda value: jnp.where(good, value, 0), kept)
    tokens = count_tokens(batch)
    return state, {
        **sums,
        "tokens": tokens,
        "steps": jnp.float32(1),
        "bad_steps": bad_steps,
        "finite": finite,
    }


def count_tokens(batch: dict[str, Any]) -> Any:
    """Tokens that are not padding, of sources and targets, a float32 scalar; of several objectives'
    batches {name: theirs}."""
    if "pack_ids" in batch:
        sides = [batch[name] for name in ("pack_ids", "decoder_pack_ids") if name in batch]
        return sum(jnp.sum(packs > 0).astype(jnp.float32) for packs in sides)
    return {name: count_tokens(rows) for name, rows in batch.items()}


def scan_microbatches(one, batch: dict[str, Any], microbatches: int, mesh: Mesh):
    """Sum what `one(rows, index)` returns over microbatches. Microbatch j is rows j, j+k, j+2k...:
    a device's rows
    are contiguous, so each microbatch takes an equal share of every device's own rows and none
    moves.
    """

    def cut(x):
        x = x.reshape(x.shape[0] // microbatches, microbatches, *x.shape[1:]).swapaxes(0, 1)
        return jax.lax.with_sharding_constraint(
            x, NamedSharding(mesh, PartitionSpec(None, ROW_AXES))
        )

    one = jax.jit(one, inline=True)  # traced once, for the shapes and in the loop
    cut_batch = jax.tree.map(cut, batch)
    shapes = jax.eval_shape(one, jax.tree.map(lambda x: x[0], cut_batch), jnp.int32(0))
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def body(total, inputs):
        return jax.tree.map(jnp.add, total, one(*inputs)), None

    return jax.lax.scan(body, zeros, (cut_batch, jnp.arange(microbatches)))[0]


def next_loss_scale(
    state: TrainState, finite: jax.Array, config: OptimizerConfig
) -> dict[str, jax.Array]:
    """Halved by a step that is not finite, doubled after 2000 finite ones in a row, whether
    `skip_norm` skipped them or not; constant where there is no dynamic scale."""
    if not config.loss_scale:
        return {"loss_scale": state.loss_scale, "good_steps": state.good_steps}
    good_steps = jnp.where(finite, state.good_steps + 1, 0)
    grow = good_steps >= LOSS_SCALE_GROWTH_STEPS
    scale = jnp.where(
        finite, jnp.where(grow, state.loss_scale * 2, state.loss_scale), state.loss_scale / 2
    )
    return {"loss_scale": scale, "good_steps": jnp.where(grow, 0, good_steps)}


def run_key(seed: int, rng_impl: str, mesh: Mesh) -> jax.Array:
    """The random key of a run, on every device: an argument of the step, so that all seeds share
    one program."""
    data = np.asarray(jax.random.key_data(jax.random.key(seed, impl=rng_impl)))
    placed = jax.make_array_from_callback(data.shape, replicated(mesh), lambda _: data)
    return jax.random.wrap_key_data(placed, impl=rng_impl)


def make_train_step(*, shardings: TrainState, **fixed) -> Any:
    """`train_step` jitted: (state, batch, key) -> (state, sums); the state is donated. `fixed`: the
    step's other keyword arguments."""
    everywhere = replicated(shardings.step.mesh)

    def run(state, batch, key):
        return train_step(state, batch, key=key, shardings=shardings, **fixed)

    return jax.jit(run, donate_argnums=0, out_shardings=(shardings, everywhere))


def eval_step(
    params: Any, batch: dict[str, jax.Array], *, model: Any, objective: Any, languages: int
):
    """The objective's metric sums on one batch without dropout: {name: (sum, weight)}."""
    return objective.loss(model, params, batch, None, languages).metrics
