"""What a step does with a loss that is worked out by hand: two parameters, and rows whose gradients
are what stands in them."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.training.test_step import once
from xlingjax.model.partition import MeshConfig, make_mesh
from xlingjax.objectives.base import Loss
from xlingjax.objectives.ramp import Ramp
from xlingjax.objectives.summed import Summed
from xlingjax.training.optimizer import OptimizerConfig, make_optimizer
from xlingjax.training.step import (
    LOSS_SCALE_GROWTH_STEPS,
    TrainState,
    abstract_state,
    count_tokens,
    initial_state,
    lower_state,
    make_train_step,
    next_loss_scale,
    run_key,
)

# A step of the size of the gradient.
SGD = OptimizerConfig("sgd", 1.0, "constant", 0, clip_norm=0.0)
MESH = make_mesh(MeshConfig(1, 1, 1))
KEY = run_key(5, "threefry2x32", MESH)


class Model:
    """Parameters "a" and "b"."""

    def abstract(self):
        return {name: jax.ShapeDtypeStruct((1,), jnp.float32) for name in "ab"}

    def logical_axes(self):
        return {"a": (None,), "b": (None,)}

    def init(self, key):
        return {"a": jax.random.normal(key, (1,)), "b": jnp.ones(1)}


@dataclasses.dataclass
class Sums:
    """a * sum of x + b * sum of y over the rows; each term counts its rows of `pack_ids`."""

    factors: dict = dataclasses.field(default_factory=lambda: {"x": 1.0, "y": 1.0})
    whole_batch = False

    @property
    def coefficients(self):
        return self.factors

    def weights(self, batch):
        count = (batch["pack_ids"] > 0).sum().astype(jnp.float32)
        return dict.fromkeys(self.factors, count)

    def loss(self, model, params, batch, rng, languages):
        named = zip("ab", self.factors, strict=True)
        terms = {term: (params[name] * batch[term]).sum() for name, term in named}
        drawn = -jnp.ones(()) if rng is None else jax.random.uniform(rng)
        # Metrics are sums over microbatches: a square tells which rows stood in one.
        index = batch["row"].sum() ** 2
        return Loss(terms, {"drawn": (drawn, drawn), "rows": (index, jnp.float32(languages))})


def rows_of(x, y, packs=None):
    packs = jnp.ones(len(x)) if packs is None else jnp.asarray(packs)
    numbers = {"x": x, "y": y, "row": range(len(x))}
    rows = {name: jnp.asarray([*values], jnp.float32) for name, values in numbers.items()}
    return rows | {"pack_ids": packs[:, None]}


@once
def compiled(config, objective, microbatches, more):
    """(the update rule, the step)."""
    model = Model()
    rule = make_optimizer(config, 100, model.abstract())
    shardings = jax.tree.map(lambda x: x.sharding, abstract_state(MESH, model, rule, config))
    fixed = dict(model=model, objective=objective, optimizer=rule, config=config, languages=3)
    return rule, make_train_step(shardings=shardings, microbatches=microbatches, **fixed, **more)


def stepping(config=SGD, objective=None, microbatches=1, **more):
    """(a state of parameters 0, the step)."""
    rule, step = compiled(config, objective or Sums(), microbatches, more)
    params = {name: jnp.zeros(1) for name in "ab"}
    return initial_state(params, rule, config), lambda state, batch: step(state, batch, KEY)


def changed(state):
    return [float(state.params[name][0]) for name in "ab"]


def test_the_gradient_is_the_sum_over_all_rows_by_the_number_of_predictions():
    state, step = stepping()
    before = state.params["a"]
    state, sums = step(state, rows_of([1, 2, 6], [4, 0, 2], packs=[1, 1, 0]))
    # Two of the three rows count, and the norm is that of the mean.
    assert changed(state) == [-4.5, -3.0]
    np.testing.assert_allclose(sums["grad_norm"], np.hypot(4.5, 3.0), rtol=1e-6)
    numbers = ("total", "good", "steps", "bad_steps", "tokens")
    assert [float(sums[name]) for name in numbers] == [0, 1, 1, 0, 2]
    assert (int(state.step), int(state.skipped), float(state.loss_scale)) == (1, 0, 1.0)
    # The step takes the memory of the state that it is given.
    assert before.is_deleted()
    state, sums = step(state, rows_of([1, 2, 6], [4, 0, 2], packs=[1, 1, 0]))
    assert float(sums["total"]) == -4.5 * 4.5 - 3.0 * 3.0 and int(state.step) == 2


def test_what_has_no_prediction_is_divided_by_one():
    state, step = stepping()
    state, _ = step(state, rows_of([1, 2], [3, 1], packs=[0, 0]))
    assert changed(state) == [-3, -4]


@pytest.mark.parametrize(
    ("clip", "moved", "size"), [(5.0, 1, 1.0), (2.5, 0.5, 1.0), (50.0, 1, 0.01), (2.5, 0.5, 0.01)]
)
def test_gradients_are_scaled_down_to_the_norm_and_never_up(clip, moved, size):
    """Of a norm of 5, and of 0.05: as much below one as above it."""
    config = dataclasses.replace(SGD, clip_norm=clip * size)
    state, step = stepping(config)
    state, sums = step(state, rows_of([3 * size], [4 * size]))
    np.testing.assert_allclose(changed(state), [-3 * moved * size, -4 * moved * size], rtol=1e-6)
    np.testing.assert_allclose(sums["grad_norm"], 5 * size, rtol=1e-6)


@pytest.mark.parametrize(("most", "skipped"), [(5.0, 0), (4.999, 1)])
def test_a_step_is_skipped_above_the_norm_and_not_at_it(most, skipped):
    state, step = stepping(dataclasses.replace(SGD, skip_norm=most))
    for number in (1, 2):
        state, sums = step(state, rows_of([3], [4]))
        assert float(sums["steps"]) == float(sums["tokens"]) == 1
        assert int(sums["bad_steps"]) == int(state.bad_steps) == number * skipped
        assert int(state.skipped) == number * skipped and float(sums["good"]) == 1 - skipped
        assert float(sums["grad_norm"]) == 5 * (1 - skipped)
        assert changed(state) == [-3 * number * (1 - skipped), -4 * number * (1 - skipped)]
    assert int(state.step) == 2


def test_what_is_not_finite_is_skipped_and_counted_until_a_step_is():
    state, step = stepping()
    for number in (1, 2):
        state, sums = step(state, rows_of([np.nan], [1]))
        assert (int(state.bad_steps), int(state.skipped)) == (number, number)
        assert float(sums["total"]) == float(sums["grad_norm"]) == 0
    state, sums = step(state, rows_of([1], [1]))
    assert (int(state.bad_steps), int(state.skipped), int(state.step)) == (0, 2, 3)
    assert changed(state) == [-1, -1]


@pytest.mark.parametrize("microbatches", [1, 3])
def test_microbatches_take_every_kth_row_and_draw_for_themselves(microbatches):
    """Dropout is of the run's key, the step and the microbatch: a run goes on with the same."""
    state, step = stepping(microbatches=microbatches)
    x = [1, 2, 3, 4, 5, 6]
    for number in (0, 1):
        state, sums = step(state, rows_of(x, x[::-1]))
        of_step = jax.random.fold_in(KEY, number)
        keys = [jax.random.fold_in(of_step, index) for index in range(microbatches)]
        drawn = sum(float(jax.random.uniform(key)) for key in keys)
        np.testing.assert_allclose(sums["metrics"]["drawn"], [drawn] * 2, rtol=1e-6)
        index, languages = sums["metrics"]["rows"]
        of_each = [sum(range(first, 6, microbatches)) for first in range(microbatches)]
        assert float(index) == sum(one**2 for one in of_each)
        assert float(languages) == 3 * microbatches and float(sums["steps"]) == 1
    np.testing.assert_allclose(changed(state), [-7, -7], rtol=1e-6)


def test_factors_are_those_of_the_step():
    ramp = Ramp((0, 2), (1.0, 0.0))
    state, step = stepping(objective=Sums({"x": ramp, "y": 3.0}))
    for want in ([-1, -3], [-1.5, -6], [-1.5, -9], [-1.5, -12]):
        state, _ = step(state, rows_of([1], [1]))
        np.testing.assert_allclose(changed(state), want, atol=1e-6)


def test_what_is_trained_is_that_of_the_first_stage_where_none_is_named():
    config = dataclasses.replace(SGD, frozen={0: ["^a"], 1: ["^b"]})
    for more, want in (({}, [0, -1]), ({"stage": 1}, [-1, 0])):
        state, step = stepping(config, **more)
        assert changed(step(state, rows_of([1], [1]))[0]) == want


# --- Loss scales ----------------------------------------------------------------------------------


def test_a_loss_scale_grows_after_2000_finite_steps_in_a_row():
    assert LOSS_SCALE_GROWTH_STEPS == 2000
    config = dataclasses.replace(SGD, loss_scale=8.0)

    def after(good_steps, finite, config=config):
        state = types.SimpleNamespace(loss_scale=jnp.float32(8), good_steps=jnp.int32(good_steps))
        found = next_loss_scale(state, jnp.bool_(finite), config)
        return float(found["loss_scale"]), int(found["good_steps"])

    assert after(0, True) == (8, 1)
    assert after(1998, True) == (8, 1999)
    assert after(1999, True) == (16, 0)
    assert after(1999, False) == (4, 0)
    assert after(7, False, SGD) == (8, 7)


@pytest.mark.parametrize("scale", [0.0, 1024.0])
def test_a_loss_scale_changes_no_update(scale):
    config = dataclasses.replace(SGD, loss_scale=scale, clip_norm=2.5)
    state, step = stepping(config)
    assert float(state.loss_scale) == (scale or 1.0)
    state, sums = step(state, rows_of([3], [4]))
    np.testing.assert_allclose(changed(state), [-1.5, -2.0], rtol=1e-6)
    assert float(sums["grad_norm"]) == 5 and int(state.good_steps) == (scale > 0)


# --- States and keys ------------------------------------------------------------------------------


def test_a_new_state_is_the_models_own_beginning_placed_as_it_is_to_lie():
    model = Model()
    rule = make_optimizer(SGD, 100, model.abstract())
    placed = abstract_state(MESH, model, rule, SGD)
    assert isinstance(placed, TrainState) and placed.params["a"].shape == (1,)
    shardings = jax.tree.map(lambda x: x.sharding, placed)
    made = lower_state(model, rule, SGD, shardings).compile()(jax.random.key(4))
    np.testing.assert_allclose(made.params["a"], model.init(jax.random.key(4))["a"], rtol=1e-6)
    assert jax.tree.map(lambda x: x.sharding, made) == shardings


def test_tokens_are_those_of_sources_and_of_targets():
    source = {"pack_ids": jnp.array([[1, 2, 0], [1, 0, 0]])}
    both = {**source, "decoder_pack_ids": jnp.array([[1, 1], [3, 0]])}
    assert float(count_tokens(source)) == 3 and float(count_tokens(both)) == 6
    found = count_tokens({"one": source, "two": both})
    assert {name: float(count) for name, count in found.items()} == {"one": 3, "two": 6}


def test_several_objectives_are_summed_by_their_factors_and_draw_apart():
    parts = {"one": (Sums({"x": 1.0, "y": 2.0}), 3.0), "two": (Sums({"x": 0.5, "y": 0.0}), 1.0)}
    objective = Summed(parts)
    assert objective.coefficients == {"one/x": 3.0, "one/y": 6.0, "two/x": 0.5, "two/y": 0.0}
    batch = {"one": rows_of([1, 1], [1, 1]), "two": rows_of([5], [7])}
    weights = {term: float(weight) for term, weight in objective.weights(batch).items()}
    assert weights == {"one/x": 2, "one/y": 2, "two/x": 1, "two/y": 1}
    params = {name: jnp.ones(1) for name in "ab"}
    loss = objective.loss(None, params, batch, jax.random.key(1), 3)
    terms = {term: float(value) for term, value in loss.terms.items()}
    assert terms == {"one/x": 2, "one/y": 2, "two/x": 5, "two/y": 7}
    one, two = (float(loss.metrics[name]["drawn"][0]) for name in parts)
    keys = [jax.random.fold_in(jax.random.key(1), number) for number in (0, 1)]
    assert [one, two] == [float(jax.random.uniform(key)) for key in keys] and one != two
    evaluated = objective.loss(None, params, batch, None, 3).metrics
    assert [float(evaluated[name]["drawn"][0]) for name in parts] == [-1, -1]
