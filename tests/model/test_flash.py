"""The TPU's kernel with masks and dropout, interpreted on CPU: what the backend xla computes,
values and gradients, under every mask of the papers. That a TPU's compiler takes it: test_tpu.py.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlingjax.model import attention, flash, masks
from xlingjax.model.attention import Refused, bind
from xlingjax.model.masks import Fields, Mask
from xlingjax.model.partition import MeshConfig, batch_sharding, make_mesh

MASKS = {
    name: mask
    for name, mask in vars(masks).items()
    if isinstance(mask, Mask) and not name.startswith("_")
}
ROWS, LENGTH, HEADS, SIZE = 8, 128, 4, 16


@pytest.fixture(autouse=True, params=["tpu", "gpu"])
def platform(request, monkeypatch):
    """Both kernels."""
    monkeypatch.setattr(attention, "_platform", lambda mesh: request.param)
    interpreted = partial(attention._flash, interpret=True)
    monkeypatch.setitem(attention._BACKENDS, "flash", (attention._prepare_flash, interpreted))
    return request.param


def packs_of(length, rows=8):
    """Rows of one to three examples and padding of unequal width."""
    rng = np.random.default_rng(length)
    packs = np.zeros((rows, length), np.int32)
    for row in range(rows):
        begin = 0
        for number in range(1, 2 + row % 3):
            end = min(begin + int(rng.integers(length // 5, length // 3)), length)
            packs[row, begin:end], begin = number, end
    return packs


def fields_of(length, seed):
    """Rows of several examples in two languages, a third of their tokens MASKs, and padding."""
    rng = np.random.default_rng(seed)
    packs = packs_of(length)
    batch = {"input_ids": packs, "pack_ids": packs}
    for name, share in (("sides", 0.5), ("is_mask", 0.3), ("language_ids", 0.5)):
        batch[name] = (rng.random(packs.shape) < share).astype(np.int32) * (packs > 0)
    return Fields.from_batch({name: jnp.asarray(array) for name, array in batch.items()})


def qkv_of(length, keys, dtype=jnp.float32):
    numbers = jax.random.split(jax.random.key(0), 4)
    shapes = [(ROWS, tokens, HEADS, SIZE) for tokens in (length, keys, keys, length)]
    made = [
        jax.random.normal(number, shape, dtype)
        for number, shape in zip(numbers, shapes, strict=True)
    ]
    return made[:3], made[3]


def gradients(backend, mask, fields, qkv, weights, mesh=None, rate=0.0, key=None):
    """Values and the gradients of q, k and v."""

    def weighed(q, k, v):
        out = bind(mask, *fields, backend, rate, mesh)(q, k, v, key)
        return (out * weights).sum(), out

    (_, out), grads = jax.jit(jax.value_and_grad(weighed, (0, 1, 2), has_aux=True))(*qkv)
    return [np.asarray(x) for x in (out, *grads)]


def assert_is_xla(backend, mask):
    """Values and gradients under the mask."""
    fields = [fields_of(LENGTH, 1)] * 2
    qkv, weights = qkv_of(LENGTH, LENGTH)
    found = gradients(backend, mask, fields, qkv, weights)
    for one, other in zip(found, gradients("xla", mask, fields, qkv, weights), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert np.abs(found[0]).max() > 0.5


@pytest.mark.parametrize("name", MASKS)
def test_values_and_gradients_are_those_of_xla(name):
    assert_is_xla("flash", MASKS[name])


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [((128, 256), (2, 2, 2)), ((256, 128), (1, 8, 1)), ((128, 128), (2, 1, 4))],
)
def test_on_meshes_in_blocks_and_to_other_keys(lengths, sizes, monkeypatch):
    # As many queries at a time as make 128 x 128 scores.
    monkeypatch.setattr(flash, "_ELEMENTS", 1 << 14)
    mesh = make_mesh(MeshConfig(*sizes))
    fields = [fields_of(lengths[0], 1), fields_of(lengths[1], 2)]
    qkv, weights = qkv_of(*lengths)
    mask = masks.bidirectional
    placed = jax.device_put(qkv, batch_sharding(mesh))
    found = gradients("flash", mask, fields, placed, weights, mesh)
    for one, other in zip(found, gradients("xla", mask, fields, qkv, weights), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    # Dropout, too, is the same whatever the mesh and the blocks.
    key = jax.random.key(3)
    here = gradients("flash", mask, fields, qkv, weights, None, 0.2, key)
    monkeypatch.setattr(flash, "_ELEMENTS", 1 << 20)
    there = gradients("flash", mask, fields, placed, weights, mesh, 0.2, key)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


RATE = 0.1


@pytest.mark.parametrize("size", [16, 64])
def test_heads_that_stand_together_are_those_that_stand_alone(platform, size, monkeypatch):
    """Of TPUs: two heads of 64 fill the lanes, eight of 16."""
    if platform == "gpu":
        pytest.skip("its kernel takes a head at a time")
    monkeypatch.setattr(flash, "_ELEMENTS", 1 << 14)
    heads, length, keys = 2 * 128 // size, 256, 128
    kernel = flash.Kernel(masks.camlm, RATE, True, length, keys, size, keys - 1)
    numbers = jax.random.split(jax.random.key(0), 4)
    q, k, v, weights = (
        jax.random.normal(number, (2, tokens, heads, size))
        for number, tokens in zip(numbers, (length, keys, keys, length), strict=True)
    )
    fields = [jax.tree.map(lambda x: x[:2], fields_of(tokens, 1)) for tokens in (length, keys)]
    sides = flash.fields_of(fields[0], 1), flash.fields_of(fields[1], 2)
    seeds = flash.seeds_of(jax.random.key(5), 2, heads)

    def found(of):
        def weighed(q, k, v):
            out = flash.attend(kernel, q, k, v, *sides, seeds[:, of])
            return (out * weights[:, :, of]).sum(), out

        grads = jax.value_and_grad(weighed, (0, 1, 2), has_aux=True)
        (_, out), grads = jax.jit(grads)(*(x[:, :, of] for x in (q, k, v)))
        return out, *grads

    together = found(slice(None))
    for head in (0, 1, heads - 1):
        alone = found(slice(head, head + 1))
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_allclose(one[:, :, head : head + 1], other, rtol=1e-5, atol=1e-5)


@pytest.fixture
def dropped(platform):
    """bool [2, B, H, L, S]: which weights two calls drop, seen through values that are a unit
    matrix."""
    fields = Fields.from_batch(
        {name: jnp.ones((4, LENGTH), int) for name in ("input_ids", "pack_ids")}
    )
    q = jnp.zeros((4, LENGTH, HEADS, LENGTH))
    unit = jnp.broadcast_to(jnp.eye(LENGTH)[None, :, None], (4, LENGTH, HEADS, LENGTH))
    bound = bind(masks.full, fields, fields, "flash", RATE)
    out = [
        attention._flash(bound, q, q, unit, RATE, jax.random.key(seed), interpret=True)
        for seed in range(2)
    ]
    # Even weights, of which those that stay keep the mean.
    weights = np.asarray(out).transpose(0, 1, 3, 2, 4) * LENGTH
    stays = weights[weights > 0]
    np.testing.assert_allclose(stays, 1 / (1 - RATE), rtol=1e-5)
    return weights == 0


def test_dropout_has_its_rate_everywhere(dropped):
    count = dropped.size
    assert dropped.mean() == pytest.approx(RATE, abs=4 * np.sqrt(RATE * (1 - RATE) / count))
    for axis in range(1, 5):
        others = tuple(i for i in range(5) if i != axis)
        rates = dropped.mean(others)
        of_each = count / len(rates)
        # Six standard deviations of the largest of a few hundred.
        assert np.abs(rates - RATE).max() < 6 * np.sqrt(RATE * (1 - RATE) / of_each), axis


def test_dropout_is_another_in_each_step_row_head_query_and_key(dropped):
    """Neighbours agree as often as independent draws do."""
    centred = dropped - RATE
    spread = RATE * (1 - RATE)
    for axis in range(5):
        ahead = np.take(centred, range(1, dropped.shape[axis]), axis)
        behind = np.take(centred, range(dropped.shape[axis] - 1), axis)
        found = (ahead * behind).mean() / spread
        assert abs(found) < 6 / np.sqrt(ahead.size), axis
    assert (
        len({row.tobytes() for row in dropped.reshape(-1, LENGTH)}) > 0.999 * 2 * 4 * HEADS * LENGTH
    )


def test_gradients_are_of_the_weights_that_were_dropped():
    """Against differences of the values."""
    fields = [fields_of(LENGTH, 1)] * 2
    qkv, weights = qkv_of(LENGTH, LENGTH)
    key = jax.random.key(5)
    bound = bind(masks.camlm, *fields, "flash", 0.3)

    def value(q, k, v):
        return (bound(q, k, v, key) * weights).sum()

    grads = jax.grad(value, (0, 1, 2))(*qkv)
    for index, grad in enumerate(grads):
        way = jax.random.normal(jax.random.key(7 + index), qkv[index].shape)
        step = 1e-2
        moved = [
            value(*(x + sign * step * way if i == index else x for i, x in enumerate(qkv)))
            for sign in (1, -1)
        ]
        slope = (moved[0] - moved[1]) / (2 * step)
        assert slope == pytest.approx(float((grad * way).sum()), rel=2e-2, abs=0.5)


def test_what_it_cannot_do_is_refused(platform, monkeypatch):
    def refused(said, length=LENGTH, dtype=jnp.float32, mesh=None, rows=8, size=SIZE):
        ones = jnp.ones((rows, length), int)
        fields = Fields.from_batch({"input_ids": ones, "pack_ids": ones})
        q = jnp.zeros((rows, length, HEADS, size), dtype)
        with pytest.raises(Refused, match=said):
            jax.eval_shape(
                lambda q: bind(masks.bidirectional, fields, fields, "flash", 0.0, mesh)(q, q, q), q
            )

    refused("takes rows of 128 n tokens, .* not of 100", length=100)
    if platform == "tpu":
        refused("does not compute in float16", dtype=jnp.float16)
    else:
        # XLM-17's, 1,280 in 16 heads.
        refused("heads of 16, 32, 64 ... on GPUs, not of 80; use xla", size=80)
        refused("on GPUs, not of 8; use xla", size=8)
    refused("cannot spread 6 rows over 8 devices", mesh=make_mesh(), rows=6)
    monkeypatch.setattr(attention, "_platform", lambda mesh: "cpu")
    refused("flash needs a TPU, or a GPU .* and this is cpu")


def test_older_chips_take_shorter_rows():
    """The compiler of TPUs refuses 3,072 tokens on a v4: 18.5 MB of 16."""
    assert not flash.takes(3072, "TPU v4") and flash.takes(2048, "TPU v4")
    assert flash.takes(8192, "TPU v5 lite") and not flash.takes(8320, "TPU v5 lite")
    assert flash.takes(16_384, "NVIDIA H100 80GB HBM3") and not flash.takes(100)
