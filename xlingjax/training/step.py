"""One training step: a pure function of the state and a global batch.

The only place that divides. An objective returns sums; the sums of all microbatches on all devices
are divided once by the number of predictions of the whole batch, so that k microbatches equal one
batch and n devices equal one device, however unequal the padding.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from xlingjax.model.partition import (
    cut_rows,
    param_shardings,
    replicated,
    state_shardings,
    with_shardings,
)
from xlingjax.objectives.ramp import Ramp
from xlingjax.runtime.machine import give_back_memory
from xlingjax.training.feed import Feed, Turn
from xlingjax.training.optimizer import Optimizer, OptimizerConfig, merge, split
from xlingjax.training.stages import latest, starts

LARGE = 1 << 28  # bytes of a step, below which nobody minds what the C library keeps

LOSS_SCALE_GROWTH_STEPS = 2000


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """What a run carries from step to step; scalars stay on the device, not waited for."""

    step: jax.Array  # int32: steps taken, skipped ones included
    params: Any  # float32 master weights
    opt_state: Any
    loss_scale: jax.Array  # float32: 1 unless the optimizer asks for a dynamic loss scale
    good_steps: jax.Array  # int32: finite steps since the loss scale last changed
    bad_steps: jax.Array  # int32: consecutive steps whose update was skipped
    skipped: jax.Array  # int32: all steps whose update was skipped


def initial_state(params: Any, optimizer: Optimizer, config: OptimizerConfig) -> TrainState:
    def zero():
        # An array of its own for each field, since the step takes the memory of all of them.
        return jnp.zeros((), jnp.int32)

    return TrainState(
        step=zero(),
        params=params,
        opt_state=optimizer.transformation.init(params),
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
    of_params = param_shardings(mesh, model.logical_axes(), params)
    shardings = state_shardings(mesh, state, params, of_params)
    return with_shardings(state, shardings)


def lower_state(
    model: Any, optimizer: Optimizer, config: OptimizerConfig, shardings: TrainState
) -> jax.stages.Lowered:
    """A program: random key -> new state, each part made in place; the same numbers on any mesh."""

    def make(key):
        return initial_state(model.init(key), optimizer, config)

    options = None
    if shardings.step.mesh.devices.flat[0].platform == "cpu":
        # It runs once: the same numbers, compiled in half the time.
        options = {"xla_backend_optimization_level": "1"}
    made = jax.jit(make, out_shardings=shardings, compiler_options=options)
    return made.lower(jax.random.key(0))


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
    steps), "tokens", "good", "steps", "bad_steps"}; a skipped step adds 0 to all but "tokens" and
    "steps". Skipped: a loss or gradient that is not finite, or a norm over `skip_norm`; parameters
    and optimizer state then stay exactly as they were.
    """
    if objective.whole_batch and microbatches > 1:
        objective, microbatches = objective.in_parts(microbatches), 1
    now = optimizer.trainable_at(stage)
    # What is frozen is an input without a gradient: its backward pass is not computed.
    trainable, frozen = split(state.params, now)
    trainable_shardings, _ = split(shardings.params, now)
    # From the step on the device, so that a ramp needs one program and not one for each step.
    coefficients = {
        term: one.at(state.step) if isinstance(one, Ramp) else one
        for term, one in objective.coefficients.items()
    }
    weights = {term: jnp.maximum(w, 1.0) for term, w in objective.weights(batch).items()}
    # Of the step's number alone, so that a continued run draws the same dropout.
    step_key = jax.random.fold_in(key, state.step)

    def scaled_loss(trainable, rows, microbatch):
        rng = jax.random.fold_in(step_key, microbatch)
        # The gradient is of the first argument alone, so the whole is put together inside.
        params = merge(trainable, frozen)
        loss = objective.loss(model, params, rows, rng, languages)
        # The only division, by the predictions of the whole batch, not of these rows.
        total = sum(
            coefficients[term] * value / weights[term] for term, value in loss.terms.items()
        )
        return total * state.loss_scale if config.loss_scale else total, (total, loss.metrics)

    def gradients(rows, microbatch):
        grads, (total, metrics) = jax.grad(scaled_loss, has_aux=True)(trainable, rows, microbatch)
        # Without this XLA may keep whole gradients on every device and only then slice them.
        grads = jax.lax.with_sharding_constraint(grads, trainable_shardings)
        return grads, total, metrics

    if microbatches == 1:
        grads, total, metrics = gradients(batch, 0)
    else:
        mesh = shardings.step.mesh
        grads, total, metrics = scan_microbatches(gradients, batch, microbatches, mesh)
    if config.loss_scale:
        grads = jax.tree.map(lambda g: g / state.loss_scale, grads)

    # The norm stands for all gradients: one value that is not finite makes it so too.
    with jax.named_scope("gradient_norm"):
        squares = (jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads))
        norm = jnp.sqrt(sum(squares))
    finite = jnp.isfinite(total) & jnp.isfinite(norm)
    good = finite
    if config.skip_norm:
        good = finite & (norm <= config.skip_norm)
    if config.clip_norm:
        clip = jnp.minimum(1.0, config.clip_norm / jnp.maximum(norm, 1e-12))
        grads = jax.tree.map(lambda g: g * clip, grads)

    @jax.named_scope("optimizer")
    def if_good(new, old):
        # A choice, not a branch: devices never wait for the host to decide.
        return jax.tree.map(lambda n, o: jnp.where(good, n, o), new, old)

    with jax.named_scope("optimizer"):
        updates, opt_state = optimizer.transformation.update(
            grads, state.opt_state, state.params, step=state.step, stage=stage
        )
        updated = optax.apply_updates(trainable, updates)
    updated = if_good(updated, trainable)
    bad_steps = jnp.where(good, 0, state.bad_steps + 1)
    next_state = TrainState(
        step=state.step + 1,
        params=merge(updated, frozen),
        opt_state=if_good(opt_state, state.opt_state),
        **next_loss_scale(state, finite, config),
        bad_steps=bad_steps,
        skipped=state.skipped + ~good,
    )
    counted = {"metrics": metrics, "total": total, "grad_norm": norm, "good": jnp.float32(1)}
    # What a skipped step measured may be NaN, and one NaN would spoil the sum of the interval.
    sums = jax.tree.map(lambda value: jnp.where(good, value, 0), counted)
    return next_state, {
        **sums,
        "tokens": count_tokens(batch),
        "steps": jnp.float32(1),
        "bad_steps": bad_steps,
    }


def count_tokens(batch: dict[str, Any]) -> Any:
    """float32: tokens of sources and targets that are not padding; of several {name: theirs}."""
    if "pack_ids" not in batch:
        return {name: count_tokens(rows) for name, rows in batch.items()}
    tokens = jnp.sum(batch["pack_ids"] > 0).astype(jnp.float32)
    if "decoder_pack_ids" in batch:
        tokens += jnp.sum(batch["decoder_pack_ids"] > 0).astype(jnp.float32)
    return tokens


def scan_microbatches(one, batch: dict[str, Any], microbatches: int, mesh: Mesh):
    """Sum what `one(rows, index)` returns over microbatches."""
    # Traced once, for the shapes and in the loop.
    one = jax.jit(one, inline=True)
    cut_batch = cut_rows(batch, microbatches, mesh)
    first = jax.tree.map(lambda x: x[0], cut_batch)
    shapes = jax.eval_shape(one, first, jnp.int32(0))
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def add(total, inputs):
        rows, index = inputs
        return jax.tree.map(jnp.add, total, one(rows, index)), None

    # A scan and not a loop of Python: the program holds one microbatch, whatever their number.
    total, _ = jax.lax.scan(add, zeros, (cut_batch, jnp.arange(microbatches)))
    return total


def next_loss_scale(
    state: TrainState, finite: jax.Array, config: OptimizerConfig
) -> dict[str, jax.Array]:
    """Halved by a step that is not finite, doubled after 2000 finite ones in a row, whether
    `skip_norm` skipped them or not; constant where there is no dynamic scale."""
    if not config.loss_scale:
        return {"loss_scale": state.loss_scale, "good_steps": state.good_steps}
    good_steps = jnp.where(finite, state.good_steps + 1, 0)
    grow = good_steps >= LOSS_SCALE_GROWTH_STEPS
    # Too large a scale shows itself as an infinity; that it is too small shows nowhere.
    grown = jnp.where(grow, state.loss_scale * 2, state.loss_scale)
    scale = jnp.where(finite, grown, state.loss_scale / 2)
    return {"loss_scale": scale, "good_steps": jnp.where(grow, 0, good_steps)}


def run_key(seed: int, rng_impl: str, mesh: Mesh) -> jax.Array:
    """A run's random key, on every device: an argument of the step, which all seeds share."""
    # By way of NumPy: a replicated array over several processes is made of each one's own copy.
    data = np.asarray(jax.random.key_data(jax.random.key(seed, impl=rng_impl)))
    placed = jax.make_array_from_callback(data.shape, replicated(mesh), lambda _: data)
    return jax.random.wrap_key_data(placed, impl=rng_impl)


def make_train_step(*, shardings: TrainState, **fixed) -> Any:
    """`train_step` jitted, (state, batch, key) -> (state, sums), its state donated."""
    everywhere = replicated(shardings.step.mesh)

    def run(state, batch, key):
        return train_step(state, batch, key=key, shardings=shardings, **fixed)

    return jax.jit(run, donate_argnums=0, out_shardings=(shardings, everywhere))


@dataclass
class Programs:
    """Compiles a step for each set of objectives with their factors, each set of parameters that is
    trained, and each length of rows, when it is first needed; the program that makes the first
    state in a thread, while the text is opened."""

    feed: Feed
    optimizer: Optimizer
    config: OptimizerConfig
    abstract: TrainState  # see `abstract_state`
    key: jax.Array  # the run's random key

    def __post_init__(self):
        self._shardings = jax.tree.map(lambda x: x.sharding, self.abstract)
        self._thread = ThreadPoolExecutor(1)
        self._state: Future | None = None
        self._steps: dict[tuple, Any] = {}
        self._temporaries = 0  # bytes of the largest program, on a CPU

    def begin_state(self) -> None:
        """Starts to compile the program of `random_state`."""
        lowered = lower_state(self.feed.model, self.optimizer, self.config, self._shardings)
        # Only XLA, which does not hold Python up, works in the thread.
        self._state = self._thread.submit(lowered.compile)

    def random_state(self, seed: int) -> TrainState:
        """A new state, each part made where it lies; the same numbers on every mesh."""
        if self._state is None:
            self.begin_state()
        return self._state.result()(jax.random.key(seed))

    def step(
        self,
        turn: Turn,
        step: int,
        state: TrainState,
        batch: dict[str, Any],
        compiling: Callable[[str], AbstractContextManager],
    ) -> tuple[TrainState, dict[str, Any]]:
        """(next state, sums), see `train_step`. step: of the run, the number of this one.
        compiling: opened, with the turn's label, while a program is made."""
        # A program serves all steps of the same trained parameters and factors, its constants.
        stage = latest(starts([self.config.frozen]), step)
        shapes = [array.shape for array in jax.tree.leaves(batch)]
        name = (*turn.factors.items(), stage, *shapes)
        if name not in self._steps:
            with compiling(turn.label):
                train_step = make_train_step(
                    objective=turn.objective,
                    stage=stage,
                    languages=len(self.feed.languages),
                    config=self.config,
                    shardings=self._shardings,
                    model=self.feed.model,
                    optimizer=self.optimizer,
                    microbatches=self.feed.microbatches,
                )
                lowered = train_step.lower(self.abstract, batch, self.key)
                program = self._steps[name] = lowered.compile()
            if self.feed.mesh.devices.flat[0].platform == "cpu":
                needed = program.memory_analysis().temp_size_in_bytes
                self._temporaries = max(self._temporaries, needed)
        after = self._steps[name](state, batch, self.key)
        # What is kept is for the next step: twice that fits no better.
        if self._temporaries > LARGE:
            give_back_memory(2 * self._temporaries)
        return after

    def close(self) -> None:
        self._thread.shutdown(wait=False)
