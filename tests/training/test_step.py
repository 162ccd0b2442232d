"""k microbatches equal one batch, 8 devices equal one, and what makes a step be skipped."""

import dataclasses
import functools

import jax
import numpy as np
import optax
import pytest

from tests.helpers import tiny
from xlingjax.data.batches.loader import to_global
from xlingjax.model.build import build_model
from xlingjax.model.encoder import Encoder
from xlingjax.model.params import path_names
from xlingjax.model.partition import MeshConfig, batch_sharding, make_mesh
from xlingjax.objectives.back_translation import BackTranslation
from xlingjax.objectives.retrieval import Distillation, HardestNegative
from xlingjax.objectives.summed import Summed
from xlingjax.objectives.translation import Translation
from xlingjax.objectives.veco import VECO
from xlingjax.objectives.xglue import XFNP
from xlingjax.objectives.xlm import MLM
from xlingjax.training.optimizer import OptimizerConfig, make_optimizer
from xlingjax.training.progress import apart
from xlingjax.training.step import (
    abstract_state,
    initial_state,
    make_train_step,
    run_key,
)

OBJECTIVES = {name: tiny.objective(name) for name in (*tiny.OBJECTIVES, *tiny.LABELLED)}
# Adam divides a gradient by its size: eps keeps rounding noise in gradients that are 0 in theory
# from deciding it.
OPTIMIZER = OptimizerConfig(
    learning_rate=1e-2, schedule="constant", warmup_steps=0, eps=1e-4, weight_decay=0.1
)
ONE = MeshConfig(1, 1, 1)


def once(make):
    """`make`, called once for all tests that ask with the same arguments: a step takes seconds to
    compile."""
    made = {}

    def asked(*arguments):
        key = repr(arguments)
        return made[key] if key in made else made.setdefault(key, make(*arguments))

    return asked


@once
def parts(config, mesh_config, optimizer):
    """(mesh, update rule, shardings, parameters -> state)."""
    mesh, encoder = make_mesh(mesh_config), build_model(config)
    rule = make_optimizer(optimizer, 100, encoder.abstract())
    make = functools.partial(initial_state, optimizer=rule, config=optimizer)
    shardings = jax.tree.map(lambda x: x.sharding, abstract_state(mesh, encoder, rule, optimizer))
    return mesh, rule, shardings, jax.jit(make, out_shardings=shardings)


def setup(encoder, params, mesh_config, optimizer=OPTIMIZER):
    """(mesh, update rule, shardings, state); `params` go over NumPy, since a step takes the memory
    of its state."""
    *made, state = parts(encoder.config, mesh_config, optimizer)
    return *made, state(jax.tree.map(np.array, params))


@once
def train_step(config, objective, mesh_config, microbatches, optimizer):
    mesh, rule, shardings, _ = parts(config, mesh_config, optimizer)
    step = make_train_step(
        shardings=shardings,
        model=build_model(config, mesh),
        objective=objective,
        languages=len(tiny.LANGUAGES),
        optimizer=rule,
        config=optimizer,
        microbatches=microbatches,
    )
    key = run_key(0, "threefry2x32", mesh)
    return lambda state, batch: step(state, batch, key)


def step_of(encoder, params, objective, mesh_config=ONE, microbatches=1, optimizer=OPTIMIZER):
    mesh, _, _, state = setup(encoder, params, mesh_config, optimizer)
    step = train_step(encoder.config, objective, mesh_config, microbatches, optimizer)

    def place(rows, reads):
        shapes = {name: rows[name].shape for name in reads}
        return to_global({name: rows[name] for name in reads}, batch_sharding(mesh), shapes)

    def run(state, rows):
        if isinstance(objective, Summed):
            parts = {name: part for name, (part, _) in objective.parts.items()}
            return step(state, {name: place(rows[name], one.reads) for name, one in parts.items()})
        return step(state, place(rows, objective.reads))

    return state, run


def assert_close(a, b, tolerance=1e-5):
    for name, x, y in zip(path_names(a), jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, atol=tolerance, rtol=tolerance, err_msg=name)


@pytest.fixture(scope="module")
def whole(tiny_config):
    """(encoder, parameters) with the parts that any objective needs."""
    parts = dict(cross_attention=True, word_recovery=True, paraphrase=True)
    encoder = Encoder(tiny_config.replace(**parts, num_labels=3, classifier="plug_in"))
    return encoder, tiny.params(encoder)


# Those that others are like, in what they read and how they pay, are compared in `make test-long`.
ALIKE = ("clm", "tlm", "camlm", "btmlm", "clwr", "clpc", "cl_mlm", "plug_in")
MARKED = [pytest.param(n, marks=[pytest.mark.long] * (n in ALIKE)) for n in OBJECTIVES]


def one_and_eight(model, params, objective, rows):
    """(state, sums) of one step on one device, and of four microbatches on eight."""
    after = []
    for mesh, microbatches in ((ONE, 1), (MeshConfig(2, 2, 2), 4)):
        state, step = step_of(model, params, objective, mesh, microbatches)
        after.append(step(state, rows))
    assert_close(after[1][0].params, after[0][0].params)
    assert_close(after[1][1], after[0][1])
    return after[0]


@pytest.mark.parametrize("name", MARKED)
def test_four_microbatches_over_eight_devices_change_nothing(name, whole):
    state, _ = one_and_eight(*whole, OBJECTIVES[name], tiny.batch(name, rows=16))
    table, before = (p["embeddings"]["tokens"]["embedding"] for p in (state.params, whole[1]))
    # The step did something that could differ.
    assert np.abs(np.asarray(table) - np.asarray(before)).max() > 5e-3


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("tlm", 512),  # a row of which is cut into blocks in local layers
        pytest.param("mlm", 16, marks=pytest.mark.long),
        pytest.param("camlm", 16, marks=pytest.mark.long),
        pytest.param("veco", 16, marks=pytest.mark.long),
    ],
)
def test_nor_do_they_with_local_layers(name, length, tiny_config):
    encoder = Encoder(
        tiny_config.replace(
            layers=2,
            max_positions=1024,
            positions="rotary",
            window=4,
            first_norm=False,
            norm_order="pre",
            gated=True,
            ffn_bias="none",
            attention_bias=False,
            cross_attention=True,
        )
    )
    batch = tiny.batch(name, rows=16, length=length)
    one_and_eight(encoder, tiny.params(encoder), OBJECTIVES[name], batch)


def test_vectors_made_in_parts_are_those_of_the_batch(tiny_config):
    """Whatever the parts each pair is measured against all others, in less memory."""
    encoder = Encoder(tiny_config.replace(layers=4))
    params = tiny.params(encoder)
    rows = tiny.batch("tlm", rows=16)
    one_and_eight(encoder, params, HardestNegative(), rows)
    teacher = {"teacher_vectors": np.random.default_rng(0).normal(size=(16, 2, 32)).astype("f")}
    one_and_eight(encoder, params, Distillation(packing=True), rows | teacher)
    batch = {name: np.repeat(rows[name], 16, axis=0) for name in HardestNegative.reads}

    def memory(parts):
        objective = HardestNegative(parts=parts)
        loss = lambda params: objective.loss(encoder, params, batch, None, 4).terms  # noqa: E731
        grad = jax.jit(jax.grad(lambda params: loss(params)["hardest_negative"]))
        return grad.lower(params).compile().memory_analysis().temp_size_in_bytes

    assert memory(8) < memory(1) / 3


DECODERS = {
    "xfnp": XFNP(alphas=(1.0, 0.5)),
    "translation": Translation(),
    "back_translation": BackTranslation(),
    "span_corruption": Translation("span_corruption"),
    "masked_words": Translation("masked_words"),
}
"""Objectives of models with a decoder, without label smoothing: metrics then add up to the loss."""


@pytest.fixture(scope="module")
def decoder(tiny_config):
    """(model, parameters) with a decoder of two streams."""
    model = build_model(tiny_config.replace(layers=1, decoder_layers=1, streams=2))
    return model, jax.jit(model.init)(jax.random.key(0))


@pytest.mark.long
@pytest.mark.parametrize("name", DECODERS)
def test_four_microbatches_over_eight_devices_change_nothing_for_decoders(decoder, name):
    objective, rows = DECODERS[name], tiny.batch(name, rows=16)
    state, sums = one_and_eight(*decoder, objective, rows)
    now, before = (p["decoder"]["streams"]["embedding"] for p in (state.params, decoder[1]))
    moved = np.abs(np.asarray(now) - np.asarray(before)).min(1) > 1e-3
    # The step did something that could differ; as an ordinary decoder, to the row of stream 0.
    assert moved.tolist() == [name == "xfnp", True]
    metrics = [sums["metrics"][f"{term}/loss"] for term in objective.coefficients]
    factors = objective.coefficients.values()
    total = sum(factor * loss for factor, (loss, _) in zip(factors, metrics, strict=True))
    expected = total / sum(weight for _, weight in metrics)
    np.testing.assert_allclose(sums["total"], expected, rtol=1e-5)
    packs = (rows["pack_ids"], rows["decoder_pack_ids"])
    assert float(sums["tokens"]) == sum((one > 0).sum() for one in packs)


def unclipped(state, sums):
    """The first moments after one step, of the gradients as they were before they were clipped."""
    scale = max(1.0, float(sums["grad_norm"]) / OPTIMIZER.clip_norm)
    return jax.tree.map(lambda moment: np.asarray(moment) * scale, state.opt_state[0].mu)


@pytest.mark.long
def test_summed_losses_have_the_sum_of_the_gradients(whole):
    """Each times its factor, over four microbatches and eight devices; metrics and tokens stay each
    one's own."""
    names, moments, alone = {"camlm": 1.0, "mlm": 2.0}, {}, {}
    rows = {name: tiny.batch(name, rows=16) for name in names}
    for name in names:
        state, step = step_of(*whole, OBJECTIVES[name])
        state, alone[name] = step(state, rows[name])
        moments[name] = unclipped(state, alone[name])
    summed = Summed({name: (OBJECTIVES[name], factor) for name, factor in names.items()})
    state, step = step_of(*whole, summed, MeshConfig(2, 2, 2), 4)
    state, sums = step(state, rows)
    added = jax.tree.map(lambda a, b: a + 2 * b, moments["camlm"], moments["mlm"])
    assert_close(unclipped(state, sums), added, 1e-6)
    total = alone["camlm"]["total"] + 2 * alone["mlm"]["total"]
    np.testing.assert_allclose(sums["total"], total, rtol=1e-5)
    for name, own in apart(sums).items():
        assert_close(own["metrics"], alone[name]["metrics"])
        assert float(own["tokens"]) == float(alone[name]["tokens"])


@pytest.mark.long
def test_muon_is_the_same_on_a_mesh(tiny_encoder, tiny_params, tiny_batches):
    """Newton-Schulz runs over matrices that lie in pieces; their momentum lies as they do."""
    optimizer = OptimizerConfig(**{**vars(OPTIMIZER), "name": "muon"})
    after = []
    for mesh in (ONE, MeshConfig(2, 2, 2)):
        state, step = step_of(tiny_encoder, tiny_params, MLM(), mesh, optimizer=optimizer)
        for _ in range(2):
            state, _ = step(state, tiny_batches["mlm"])
        after.append(state)
    assert_close(after[0].params, after[1].params, 1e-4)
    kernel = after[1].params["encoder"]["layers"]["ffn"]["in"]["kernel"]
    momenta = jax.tree.leaves(after[1].opt_state)
    assert kernel.sharding.spec in {leaf.sharding.spec for leaf in momenta}


def test_float16_trains_with_a_loss_scale(tiny_config, tiny_params, tiny_batches):
    """The update is float32's up to rounding, which a large eps does not blow up where the gradient
    is hardly more than that. A scale that overflows is halved until it does not."""
    plain = dataclasses.replace(OPTIMIZER, eps=1e-2)
    state, step = step_of(Encoder(tiny_config), tiny_params, MLM(), optimizer=plain)
    expected, expected_sums = step(state, tiny_batches["mlm"])
    optimizer = dataclasses.replace(plain, loss_scale=2.0**24)
    half = Encoder(tiny_config.replace(dtype="float16"))
    state, step = step_of(half, tiny_params, MLM(), optimizer=optimizer)
    for _ in range(12):
        state, sums = step(state, tiny_batches["mlm"])
        if float(sums["good"]):
            break
    assert int(state.skipped) > 0 and float(state.loss_scale) == 2.0 ** (24 - int(state.skipped))
    np.testing.assert_allclose(sums["grad_norm"], expected_sums["grad_norm"], rtol=1e-2)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(state.params)} == {"float32"}
    assert_close(state.params, expected.params, 5e-4)


@pytest.mark.long
def test_stages_train_one_part_at_first_and_leave_the_rest_as_it_is(whole, tiny_batches):
    """VECO's first phase: what is not cross-attention keeps its bits, and so do its moments."""
    first_phase = ["^(?!.*cross_attention)"]
    optimizer = dataclasses.replace(OPTIMIZER, frozen={0: first_phase, 2: [], 3: first_phase})
    objective, rows = VECO(plug_out=False), tiny_batches["veco"]
    mesh, rule, shardings, state = setup(*whole, ONE, optimizer)
    fixed = dict(shardings=shardings, model=whole[0], objective=objective, languages=3)
    fixed |= dict(optimizer=rule, config=optimizer, microbatches=1)
    steps = [make_train_step(**fixed, stage=stage) for stage in (0, 2, 3)]
    batch, key = {name: rows[name] for name in objective.reads}, run_key(0, "threefry2x32", mesh)

    def only_the_cross_attention_moved(before, after):
        for name, old, new in zip(
            path_names(after), *map(jax.tree.leaves, (before, after)), strict=True
        ):
            if name.startswith(("params", "opt_state")) and "count" not in name:
                assert ("cross_attention" in name) != np.array_equal(old, new), name

    before = jax.tree.map(np.array, state)
    for _ in range(2):
        state, _ = steps[0](state, batch, key)
    only_the_cross_attention_moved(before, state)
    halfway = jax.tree.map(np.array, state.params)
    state, _ = steps[1](state, batch, key)
    tables = [p["embeddings"]["tokens"]["embedding"] for p in (state.params, halfway)]
    moved = np.abs(np.asarray(tables[0]) - tables[1])
    # Adam's first update of a parameter is its learning rate in size, whenever it comes.
    assert 0.8 * OPTIMIZER.learning_rate < moved.max() < 1.3 * OPTIMIZER.learning_rate
    before = jax.tree.map(np.array, state)
    state, _ = steps[2](state, batch, key)
    only_the_cross_attention_moved(before, state)  # nor do moments decay that are no longer 0


@pytest.mark.parametrize("name", ["adamw", "adam", "muon"])
def test_a_late_start_is_a_start(name):
    """A parameter that is trained from step 500 on moves as it would from step 0 on, decay
    included."""
    rng = np.random.default_rng(0)
    params = {
        "encoder": {"layers": {"ffn": {"kernel": rng.normal(size=(2, 4, 6))}}},
        "head": rng.normal(size=(5, 3)),
        "trained_before": rng.normal(size=3),
    }
    params = jax.tree.map(np.float32, params)
    grads = [jax.tree.map(lambda p: np.float32(rng.normal(size=p.shape)), params) for _ in range(4)]
    config = OptimizerConfig(name, 1e-2, "constant", 0, b2=0.999, weight_decay=0.1)

    def moved(frozen, first):
        rule = make_optimizer(dataclasses.replace(config, frozen=frozen), 1000, params)
        state, now = rule.transformation.init(params), params
        # Counts go on while a parameter is frozen, its moments stay 0.
        state = jax.tree.map(lambda x: x + first if x.ndim == 0 else x, state)
        for step, grad in enumerate(grads, first):
            updates, state = rule.transformation.update(grad, state, now, step=step, stage=step)
            now = optax.apply_updates(now, updates)
        return now

    expected, found = moved((), 0), moved({0: ["encoder|head"], 500: []}, 500)
    del expected["trained_before"], found["trained_before"]
    if name == "muon":  # its momentum begins a little differently; how far a matrix moves does not
        kernel = params["encoder"]["layers"]["ffn"]["kernel"]
        kernels = [one.pop("encoder")["layers"]["ffn"]["kernel"] for one in (found, expected)]
        far = [np.linalg.norm(one - kernel) for one in kernels]
        np.testing.assert_allclose(*far, rtol=0.05)
    assert_close(found, expected, 2e-3)
