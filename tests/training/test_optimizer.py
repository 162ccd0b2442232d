"""Learning rates by step, the update rules by hand, decay masks, layer-wise decay, frozen
parameters."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from xlingjax.errors import UserError
from xlingjax.model.build import build_model
from xlingjax.model.config import preset
from xlingjax.model.params import flattened, path_names
from xlingjax.training.optimizer import (
    NAMES,
    OptimizerConfig,
    decayed,
    layer_rates,
    learning_rate_schedule,
    make_optimizer,
    merge,
    split,
    trainable_mask,
)

PARAMS = {
    "embeddings": {"tokens": {"embedding": jnp.full((6, 2), 0.5)}},
    "encoder": {
        "layers": {"mlp": {"kernel": jnp.full((3, 2, 4), 0.5), "bias": jnp.full((3, 4), 0.5)}}
    },
    "head": {"norm": {"scale": jnp.full((2,), 0.5)}},
}


@pytest.mark.parametrize(
    "schedule, warmup, steps, expected",
    [
        # XLM: 4000 steps up from 1e-7, then with the inverse square root: a quarter of the steps,
        # half the rate.
        ("inverse_sqrt", 4000, 10**6, {0: 1e-7, 2000: 5.005e-5, 4000: 1e-4, 16000: 5e-5}),
        ("inverse_sqrt", 0, 100, {1: 1e-4, 4: 5e-5}),
        ("linear", 10, 110, {0: 1e-5, 9: 1e-4, 10: 1e-4, 60: 5e-5, 109: 1e-6, 110: 0.0}),
        # Measured from step 0: at the end of the warm-up a tenth of the steps, and of the rate, is
        # gone.
        ("linear_from_0", 10, 100, {0: 1e-5, 9: 1e-4, 10: 9e-5, 50: 5e-5, 99: 1e-6, 100: 0.0}),
        ("constant", 4, 100, {0: 2.5e-5, 3: 1e-4, 99: 1e-4}),
    ],
)
def test_learning_rate(schedule, warmup, steps, expected):
    config = OptimizerConfig(learning_rate=1e-4, schedule=schedule, warmup_steps=warmup)
    rate = learning_rate_schedule(config, steps)
    for step, value in expected.items():
        np.testing.assert_allclose(rate(jnp.int32(step)), value, rtol=1e-4, err_msg=f"{step}")


@pytest.mark.parametrize(
    "schedule, half, options",
    [
        ("linear", 0.55, dict(decay_steps=0.2)),
        # Half of the decay leaves 1 - sqrt(1 / 2) of what is above the floor.
        ("1-sqrt", 0.1 + 0.9 * (1 - 0.5**0.5), dict(decay_steps=200)),
        ("cosine", 0.55, dict(decay_steps=200)),
    ],
)
def test_the_rate_holds_and_falls_to_its_floor_in_the_last_steps(schedule, half, options):
    config = OptimizerConfig(
        schedule=schedule, learning_rate=2.0, warmup_steps=10, floor=0.1, **options
    )
    rate = learning_rate_schedule(config, 1000)
    expected = {0: 0.1, 9: 1, 10: 1, 799: 1, 800: 1, 900: half, 1000: 0.1, 1100: 0.1}
    for step, share in expected.items():
        np.testing.assert_allclose(rate(step), 2 * share, rtol=1e-5, err_msg=str(step))


def test_cosine_falls_from_the_warm_up_on():
    rate = learning_rate_schedule(OptimizerConfig(schedule="cosine", warmup_steps=100), 1100)
    shares = [float(rate(step)) / 1e-4 for step in (99, 100, 350, 600, 850, 1100)]
    np.testing.assert_allclose(shares, [1, 1, 0.853553, 0.5, 0.146447, 0], atol=1e-6)


def test_warm_up_as_a_share_of_the_steps():
    shared = OptimizerConfig(schedule="linear", warmup_steps=0.1)
    counted = OptimizerConfig(schedule="linear", warmup_steps=12)
    assert (shared.warmup(120), shared.warmup(64), counted.warmup(120)) == (12, 6, 12)
    rates = [learning_rate_schedule(one, 120)(np.arange(121)) for one in (shared, counted)]
    np.testing.assert_array_equal(*rates)


def updated(config, params, *gradients):
    """The parameters after an update with each of the gradients, at a constant rate of 0.01."""
    config = dataclasses.replace(config, learning_rate=0.01, schedule="constant", warmup_steps=0)
    optimizer = make_optimizer(config, 10, params)
    rule, now = optimizer.transformation, optimizer.trainable_at(0)
    state = rule.init(params)
    for step, grads in enumerate(gradients):
        free, frozen = split(params, now)
        updates, state = rule.update(split(grads, now)[0], state, params, step=step)
        params = merge(optax.apply_updates(free, updates), frozen)
    return params


def test_adamw_and_adam_by_hand():
    """Two updates; decay beside the gradient (adamw) or inside it (adam), and on kernels and
    embeddings only."""
    b1, b2, eps, decay = 0.9, 0.98, 1e-6, 0.1
    for name in ("adamw", "adam"):
        config = OptimizerConfig(name=name, weight_decay=decay, eps=eps)
        grads = jax.tree.map(lambda p: jnp.full_like(p, 0.1), PARAMS)
        params = updated(config, PARAMS, grads, jax.tree.map(lambda g: 3 * g, grads))
        kernel = params["encoder"]["layers"]["mlp"]["kernel"]
        scale = params["head"]["norm"]["scale"]
        for has_decay, value in ((True, kernel), (False, scale)):
            p, m, v = 0.5, 0.0, 0.0
            for t, g in enumerate((0.1, 0.3), 1):
                g = g + (decay * p if has_decay and name == "adam" else 0)
                m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
                step = m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps)
                p -= 0.01 * (step + (decay * p if has_decay and name == "adamw" else 0))
            np.testing.assert_allclose(value, p, rtol=1e-6, err_msg=f"{name} {has_decay}")
        assert np.all(params["encoder"]["layers"]["mlp"]["bias"] == scale[0])


@pytest.mark.parametrize("decoupled", [False, True])
def test_stable_adamw_by_hand(decoupled):
    """Each layer of a stack has its own RMS; decay is shortened like the update, and is divided by
    the peak where it is free of the rate."""
    b1, b2, eps, decay = 0.9, 0.98, 1e-6, 0.1
    grads = [0.1 * jnp.arange(1, 4)[:, None, None] * jnp.ones((3, 2, 4)), None]
    # Only the first layer's gradients outgrow their second moment.
    grads[1] = jnp.asarray([3.0, 1.0, 0.5])[:, None, None] * grads[0]
    trees = [jax.tree.map(jnp.ones_like, PARAMS) for _ in grads]
    for tree, grad in zip(trees, grads, strict=True):
        tree["encoder"]["layers"]["mlp"]["kernel"] = grad
    config = OptimizerConfig(
        name="stable_adamw", weight_decay=decay, eps=eps, decoupled_decay=decoupled
    )
    kernel = updated(config, PARAMS, *trees)["encoder"]["layers"]["mlp"]["kernel"]
    for layer in range(3):
        p, m, v = 0.5, 0.0, 0.0
        for t, gradient in enumerate(grads, 1):
            g = float(gradient[layer, 0, 0])
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            second = v / (1 - b2**t)
            rate = 0.01 / max(1, np.sqrt(g * g / max(second, eps**2)))
            step = m / (1 - b1**t) / (np.sqrt(second) + eps)
            p -= rate * (step + decay * p / (0.01 if decoupled else 1))
        np.testing.assert_allclose(kernel[layer], p, rtol=1e-5)


def test_decay_mask_knows_stacked_biases():
    assert dict(zip(path_names(PARAMS), jax.tree.leaves(decayed(PARAMS)), strict=True)) == {
        "embeddings/tokens/embedding": True,
        "encoder/layers/mlp/kernel": True,
        "encoder/layers/mlp/bias": False,
        "head/norm/scale": False,
    }


def encoder_shapes(**options):
    return build_model(preset("tiny", **options)).abstract()


def test_layer_rates():
    """The figures of ERNIE-M's base model: 12 layers, 0.8."""
    shapes = encoder_shapes(layers=12, num_languages=3, num_labels=2, head="transform")
    rates = flattened(layer_rates(shapes, 0.8))
    by_layer = np.ravel(rates.pop("encoder/layers/ffn/in/kernel"))
    assert by_layer.shape == (12,) and rates["encoder/layers/ffn_norm/bias"].shape == (12, 1)
    assert [round(float(rate), 4) for rate in (by_layer[0], by_layer[-1])] == [0.0687, 0.8]
    np.testing.assert_allclose(by_layer, [0.8 ** (12 - i) for i in range(12)], rtol=1e-6)
    tables = [f"embeddings/{name}/embedding" for name in ("tokens", "positions", "languages")]
    assert {round(rates[name], 4) for name in tables} == {0.0550}
    whole = {name for name in rates if "/layers/" not in name} - {*tables}
    assert {"embeddings/norm/scale", "head/bias", "classifier/out/kernel"} <= whole
    assert {rates[name] for name in whole} == {1.0}


def test_layer_rates_of_a_decoder_count_its_own_layers():
    options = dict(layers=3, decoder_layers=2, decoder_embeddings="separate", head="transform")
    rates = flattened(layer_rates(encoder_shapes(**options), 0.5))
    np.testing.assert_allclose(np.ravel(rates["encoder/layers/ffn/in/kernel"]), [0.125, 0.25, 0.5])
    of_decoder = {name: rates[name] for name in rates if name.startswith("decoder/layers/")}
    assert any("/cross_attention/" in name for name in of_decoder)
    for rate in of_decoder.values():
        np.testing.assert_allclose(np.ravel(rate), [0.25, 0.5])
    found = {name: rates[name] for name in rates if name.endswith("tokens/embedding")}
    assert found == {
        "embeddings/tokens/embedding": 0.0625,
        "decoder_embeddings/tokens/embedding": 0.125,
    }
    assert rates["decoder_embeddings/norm/scale"] == rates["decoder_head/bias"] == 1.0


@pytest.mark.parametrize("name", [*NAMES, "adafactor"])
@pytest.mark.parametrize("frozen", [(), ("encoder/layers/",)])
def test_the_whole_update_is_decayed_by_layer_and_weight_decay_is_not(name, frozen):
    """Against the same update without: each parameter moves rate * decay^(N - i) as far, and
    shrinks as it did."""
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda p: jnp.asarray(rng.normal(size=p.shape), jnp.float32), PARAMS)
    grads = jax.tree.map(lambda p: jnp.asarray(rng.normal(size=p.shape), jnp.float32), PARAMS)
    moved = {}
    for layer_decay, weight_decay in ((1.0, 0.0), (0.5, 0.0), (0.5, 0.1)):
        config = OptimizerConfig(name, layer_decay=layer_decay, weight_decay=weight_decay)
        config = dataclasses.replace(config, frozen=frozen)
        free, _ = split(updated(config, params, grads), trainable_mask(params, frozen))
        moves = {path: leaf - flattened(params)[path] for path, leaf in flattened(free).items()}
        moved[layer_decay, weight_decay] = moves
    expected = {
        "encoder/layers/mlp/kernel": [0.125, 0.25, 0.5],
        "encoder/layers/mlp/bias": [0.125, 0.25, 0.5],
    }
    expected |= {"embeddings/tokens/embedding": 0.0625, "head/norm/scale": 1.0}
    assert {*moved[0.5, 0.0]} == {path for path in expected if not frozen or "/layers/" not in path}
    for path, plain in moved[1.0, 0.0].items():
        shape = (-1, *[1] * (plain.ndim - 1)) if "/layers/" in path else ()
        wanted = plain * np.reshape(expected[path], shape)
        np.testing.assert_allclose(moved[0.5, 0.0][path], wanted, atol=2e-7)
        if name != "adam":  # whose decay is part of the gradient
            shrunk = moved[0.5, 0.1][path] - moved[0.5, 0.0][path]
            decays = path.split("/")[-1] not in ("bias", "scale")
            whole = -0.01 * 0.1 * flattened(params)[path] * decays
            np.testing.assert_allclose(shrunk, whole, rtol=1e-3, atol=2e-7)


@pytest.mark.long
def test_muon_moves_the_matrices_of_the_blocks_alike_in_all_directions():
    """Each layer's matrix, heads joined: an orthogonal update of Adam's size. All else is AdamW."""
    rng = np.random.default_rng(0)
    shapes = {"attention/query": (2, 8, 2, 4), "attention/out": (2, 2, 4, 8), "ffn/in": (2, 8, 32)}
    shapes["ffn/out"] = (2, 32, 8)
    layers = {}
    for name, shape in shapes.items():
        one, two = name.split("/")
        kernel = jnp.asarray(rng.normal(size=shape), jnp.float32)
        layers.setdefault(one, {})[two] = {"kernel": kernel, "bias": jnp.ones(shape[2:])}
    params = {
        "encoder": {"layers": layers},
        "embeddings": {"tokens": {"embedding": jnp.ones((6, 2))}},
    }
    grads = jax.tree.map(lambda p: jnp.asarray(rng.normal(size=p.shape), jnp.float32), params)
    after = {}
    for name in ("muon", "adamw"):
        after[name] = updated(OptimizerConfig(name=name, weight_decay=0.1), params, grads)
    for name, shape in shapes.items():
        one, two = name.split("/")
        old = layers[one][two]["kernel"]
        new = after["muon"]["encoder"]["layers"][one][two]["kernel"]
        columns = 8 if two == "out" else int(np.prod(shape[2:]))
        update = np.asarray((old - new) / 0.01 - 0.1 * old).reshape(2, -1, columns)
        for matrix in update:
            values = np.linalg.svd(matrix, compute_uv=False) / (0.2 * max(matrix.shape) ** 0.5)
            assert values.min() > 0.6 and values.max() < 1.3, name
        gradient = np.asarray(grads["encoder"]["layers"][one][two]["kernel"]).reshape(update.shape)
        assert (update * gradient).sum((1, 2)).min() > 0, name
    both = zip(jax.tree.leaves(after["muon"]), jax.tree.leaves(after["adamw"]), strict=True)
    same = [(m, a) for m, a in both if m.ndim < 3]
    assert len(same) > 1
    for m, a in same:
        np.testing.assert_allclose(m, a, rtol=1e-6)
    moved = updated(OptimizerConfig(name="muon", frozen=("ffn",)), params, grads)
    assert moved["encoder"]["layers"]["ffn"]["in"]["kernel"] is layers["ffn"]["in"]["kernel"]


@pytest.mark.parametrize("name", ["lion", "sgd", "radam"])
def test_an_optimizer_of_optax_takes_our_rate_decay_and_layers(name):
    """Two updates of optax's own, at rates that the chain computes; frozen parameters stay."""
    grads = jax.tree.map(lambda p: jnp.full_like(p, 0.1), PARAMS)
    config = OptimizerConfig(name=name, frozen=("scale",), layer_decay=0.5)
    ours = updated(config, PARAMS, grads, grads)
    theirs = getattr(optax, name)(1.0, **({"weight_decay": 0.0} if name == "lion" else {}))
    state, expected = theirs.init(PARAMS), PARAMS
    for _ in range(2):
        updates, state = theirs.update(grads, state, expected)
        updates = jax.tree.map(lambda u, r: 0.01 * r * u, updates, layer_rates(PARAMS, 0.5))
        expected = optax.apply_updates(expected, updates)
    assert ours["head"]["norm"]["scale"] is PARAMS["head"]["norm"]["scale"]
    for path, leaf in flattened(split(ours, trainable_mask(PARAMS, ("scale",)))[0]).items():
        np.testing.assert_allclose(leaf, flattened(expected)[path], rtol=1e-6, err_msg=path)
        assert np.all(leaf != flattened(PARAMS)[path])


def test_frozen():
    mask = trainable_mask(PARAMS, ("^embeddings/", "bias$"))
    assert jax.tree.leaves(mask) == [False, False, True, True]
    trainable, frozen = split(PARAMS, mask)
    assert path_names(trainable) == ["encoder/layers/mlp/kernel", "head/norm/scale"]
    assert path_names(frozen) == ["embeddings/tokens/embedding", "encoder/layers/mlp/bias"]
    jax.tree.map(np.testing.assert_array_equal, merge(trainable, frozen), PARAMS)
    with pytest.raises(UserError, match="frozen='embedings' matches no parameter; paths are like"):
        trainable_mask(PARAMS, ("embedings",))
    with pytest.raises(UserError, match="nothing is left to train"):
        trainable_mask(PARAMS, ("",))


@pytest.mark.parametrize(
    "config, message",
    [
        (
            dict(name="lbfgs"),
            "optimizer 'lbfgs' is not one of adamw, .* optax has none of that name$",
        ),
        (dict(name="scale_by_adam"), "optax has none of that name"),
        (dict(name="lion", options={"b3": 0.9}), "lion of optax has no 'b3'; it has b1, b2"),
        (dict(options={"b1": 0.9}), "optimizers of optax; adamw is not from there"),
        (dict(schedule="wsd"), "schedule='wsd': 'linear', "),
        (dict(learning_rate=0.0), "learning_rate=0.0: a number above 0"),
        (dict(layer_decay=0.0), "layer_decay=0.0: a number above 0 and at most 1"),
        (dict(schedule="linear", warmup_steps=0.96), "a warm-up of 10 and a decay of 1 do not fit"),
        (dict(schedule="linear_from_0", warmup_steps=10), "do not fit into 10 steps"),
        (dict(schedule="1-sqrt", warmup_steps=5, decay_steps=6), "of 5 and a decay of 6 do not"),
    ],
)
def test_refusals(config, message):
    with pytest.raises(UserError, match=message):
        make_optimizer(OptimizerConfig(**config), 10, PARAMS)


@pytest.mark.parametrize("name", ["adamw", "adam", "adafactor"])
def test_weight_decay_can_be_switched_on_and_off_without_changing_the_state(name):
    """So that a checkpoint of either can be continued as the other."""
    structures = set()
    for decay in (0.0, 0.1):
        rule = make_optimizer(OptimizerConfig(name=name, weight_decay=decay), 10, PARAMS)
        structures.add(jax.tree.structure(rule.transformation.init(PARAMS)))
    assert len(structures) == 1
