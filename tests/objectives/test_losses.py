import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from xlingjax.model.partition import MeshConfig, make_mesh
from xlingjax.objectives.base import metrics_by_language
from xlingjax.objectives.losses import _chunks, best_ids, cross_entropy, gather_positions

TOKENS, VOCAB, ROWS, DIM = 22, 50, 64, 8


@pytest.fixture(scope="module")
def inputs():
    rng = np.random.default_rng(0)
    return (
        rng.normal(size=(TOKENS, DIM)).astype(np.float32),
        rng.normal(size=(ROWS, DIM)).astype(np.float32),
        rng.normal(size=ROWS).astype(np.float32),
        rng.integers(0, VOCAB, TOKENS).astype(np.int32),
        np.where(rng.random(TOKENS) < 0.3, 0, rng.random(TOKENS) * 2).astype(np.float32),
    )


def in_numpy(h, table, bias, targets, weights):
    """float64 loss per token, hits, and the gradients of the weighted sum, by the textbook."""
    h, table, bias = (np.asarray(x, np.float64) for x in (h, table, bias))
    logits = h @ table[:VOCAB].T + bias[:VOCAB]
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    nll = -np.log(p[np.arange(TOKENS), targets]) * (weights > 0)
    correct = (logits.argmax(1) == targets) * (weights > 0)
    dlogits = p.copy()
    dlogits[np.arange(TOKENS), targets] -= 1
    dlogits *= weights[:, None]
    dtable, dbias = np.zeros(table.shape), np.zeros(bias.shape)
    dtable[:VOCAB], dbias[:VOCAB] = dlogits.T @ h, dlogits.sum(0)
    return nll, correct, (dlogits @ table[:VOCAB], dtable, dbias)


@pytest.mark.parametrize("chunk", [0, 7])
def test_smoothed_targets_equal_numpy(inputs, chunk):
    h, table, bias, targets, weights = inputs
    logits = (h @ table[:VOCAB].T + bias[:VOCAB]).astype(np.float64)
    log = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    target = np.full((TOKENS, VOCAB), 0.2 / VOCAB)
    target[np.arange(TOKENS), targets] += 0.8

    def loss(h, table, bias):
        out = cross_entropy(
            h, table, bias, targets, weights, vocab_size=VOCAB, chunk=chunk, smoothing=0.2
        )
        return out.loss, out

    (total, out), grads = jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(h, table, bias)
    np.testing.assert_allclose(total, -(weights[:, None] * target * log).sum(), rtol=1e-6)
    np.testing.assert_allclose(out.nll_T, in_numpy(*inputs)[0], atol=2e-6)
    dlogits = weights[:, None] * (np.exp(log) - target)
    np.testing.assert_allclose(grads[0], dlogits @ table[:VOCAB], atol=1e-5)
    np.testing.assert_allclose(grads[1][:VOCAB], dlogits.T @ h, atol=1e-5)
    np.testing.assert_allclose(grads[2][:VOCAB], dlogits.sum(0), atol=1e-5)
    assert np.abs(grads[1][VOCAB:]).max() == np.abs(grads[2][VOCAB:]).max() == 0


@pytest.mark.parametrize(
    "chunk",
    [0, pytest.param(1, marks=pytest.mark.long), 7, pytest.param(11, marks=pytest.mark.long), 100],
)  # 7 needs padding, 11 divides
def test_loss_and_gradients_equal_numpy(inputs, chunk):
    h, table, bias, targets, weights = inputs

    def loss(h, table, bias):
        out = cross_entropy(h, table, bias, targets, weights, vocab_size=VOCAB, chunk=chunk)
        return 0.5 * out.loss, out

    (half, out), grads = jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(h, table, bias)
    nll, correct, want = in_numpy(*inputs)
    np.testing.assert_allclose(half, 0.5 * (nll * weights).sum(), rtol=1e-6)
    np.testing.assert_allclose(out.nll_T, nll, atol=2e-6)
    np.testing.assert_array_equal(out.correct_T, correct)
    for got, expected in zip(grads, want, strict=True):
        np.testing.assert_allclose(got, 0.5 * expected, atol=3e-6)
    assert np.abs(grads[1][VOCAB:]).max() == 0
    evaluated = cross_entropy(*inputs, vocab_size=VOCAB, chunk=chunk)
    np.testing.assert_allclose(evaluated.nll_T, nll, atol=2e-6)


def test_huge_logits_stay_finite(inputs):
    h, table, bias, targets, weights = inputs
    loss = lambda h: cross_entropy(h, table, bias, targets, weights, vocab_size=VOCAB).loss  # noqa: E731
    value, grad = jax.value_and_grad(loss)(h * 1e4)
    assert np.isfinite(value)
    assert np.isfinite(grad).all()


def test_bfloat16_states_are_summed_in_float32(inputs):
    h, table, bias, targets, weights = inputs
    h, table = (jnp.asarray(x, jnp.bfloat16) for x in (h, table))

    def loss(h, table):
        return cross_entropy(h, table, bias, targets, weights, vocab_size=VOCAB, chunk=7).loss

    value, (dh, dtable) = jax.value_and_grad(loss, (0, 1))(h, table)
    nll, _, want = in_numpy(
        np.asarray(h, np.float32), np.asarray(table, np.float32), bias, targets, weights
    )
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, (nll * weights).sum(), rtol=1e-5)
    assert dh.dtype == dtable.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(dtable, np.float32), want[1], atol=0.05)


def test_chunks_never_hold_all_logits():
    tokens, vocab, dim = 512, 4096, 16

    def temporary(chunk):
        def loss(h, table, bias):
            out = cross_entropy(
                h,
                table,
                bias,
                jnp.zeros(tokens, int),
                jnp.ones(tokens),
                vocab_size=vocab,
                chunk=chunk,
            )
            return out.loss

        shapes = [
            jax.ShapeDtypeStruct(s, jnp.float32) for s in ((tokens, dim), (vocab, dim), (vocab,))
        ]
        return (
            jax.jit(jax.grad(loss, (0, 1, 2)))
            .lower(*shapes)
            .compile()
            .memory_analysis()
            .temp_size_in_bytes
        )

    logits = tokens * vocab * 4
    assert temporary(0) >= logits
    assert temporary(64) < logits / 2


@pytest.mark.parametrize("chunk", [0, 128])
def test_split_over_devices_equals_one_device_and_never_gathers_logits(chunk):
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    rows = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
    vocabulary = NamedSharding(mesh, PartitionSpec(("fsdp", "tensor")))
    tokens, vocab, dim = 512, 1024, 32
    rng = np.random.default_rng(0)
    h, table, bias = (
        rng.normal(size=s).astype(np.float32) for s in ((tokens, dim), (vocab, dim), (vocab,))
    )
    targets, weights = rng.integers(0, 1000, tokens), rng.random(tokens).astype(np.float32)

    def loss(h, table, bias, targets, weights):
        out = cross_entropy(h, table, bias, targets, weights, vocab_size=1000, chunk=chunk)
        return out.loss, out.nll_T

    step = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)
    split = jax.jit(
        step,
        in_shardings=(rows, vocabulary, vocabulary, rows, rows),
        out_shardings=((None, rows), (rows, vocabulary, vocabulary)),
    )
    one = jax.jit(step)(h, table, bias, targets, weights)
    many = split(h, table, bias, targets, weights)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5), many, one)
    text = split.lower(h, table, bias, targets, weights).compile().as_text()
    gathers = [
        line for line in text.splitlines() if " all-gather(" in line or " all-to-all(" in line
    ]
    most = max(chunk or tokens, 1) * dim  # the states of a chunk: logits would be 32 times that
    sizes = [
        np.prod([int(n) for n in line.split("[")[1].split("]")[0].split(",")]) for line in gathers
    ]
    assert gathers
    assert max(sizes) <= most


def test_gather_positions_and_its_gradient():
    h_BLD = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    positions_BM = np.array([[3, 1], [0, 0]])
    np.testing.assert_array_equal(
        gather_positions(h_BLD, positions_BM),
        [[h_BLD[0, 3], h_BLD[0, 1]], [h_BLD[1, 0], h_BLD[1, 0]]],
    )
    grad = jax.grad(lambda h: gather_positions(h, positions_BM).sum())(h_BLD)
    np.testing.assert_array_equal(grad[..., 0], [[0, 1, 0, 1], [2, 0, 0, 0]])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_the_cotangent_is_not_rounded_to_the_dtype_of_the_gradients(inputs, dtype):
    """A loss scale that bfloat16 cannot express and float16 cannot hold."""
    h, table, bias, targets, weights = inputs
    h, table, factor = h.astype(dtype), table.astype(dtype), 2.0**17 * 1.006

    def grads(factor):
        def loss(h, table):
            return (
                factor
                * cross_entropy(h, table, bias, targets, weights / 1024, vocab_size=VOCAB).loss
            )

        return jax.grad(loss, (0, 1))(h, table)

    for got, once in zip(grads(factor), grads(1.0), strict=True):
        assert got.dtype == dtype and jnp.isfinite(got).all()
        np.testing.assert_array_equal(got, (once.astype(jnp.float32) * factor).astype(dtype))


@pytest.mark.parametrize("chunk", [0, 7, 11, 100])
def test_the_best_id_of_each_state_is_none_of_padding_nor_banned(inputs, chunk):
    h, table, bias, _, _ = inputs
    logits = h @ table.T + bias
    # The highest of all, were they not out.
    bias = np.where(np.arange(ROWS) < VOCAB, bias, 100.0).astype(np.float32)
    ids = best_ids(h, table, bias, vocab_size=VOCAB, chunk=chunk)
    assert ids.dtype == jnp.int32
    np.testing.assert_array_equal(ids, logits[:, :VOCAB].argmax(1))
    banned = np.unique(ids)[:2]
    logits[:, banned] = -np.inf
    ids = best_ids(h, table, bias, vocab_size=VOCAB, chunk=chunk, banned=banned)
    np.testing.assert_array_equal(ids, logits[:, :VOCAB].argmax(1))


@pytest.mark.parametrize("chunk", [0, 1000])
def test_ids_are_drawn_from_the_softmax_anew_for_every_state(chunk):
    logits = np.log([0.5, 0.3, 0.2]).astype(np.float32)
    table = np.stack([logits, np.zeros(3, np.float32)], 1)
    states = np.tile(np.array([1, 0], np.float32), (4000, 1))
    bias = np.zeros(3, np.float32)
    draw = lambda key, **more: best_ids(  # noqa: E731
        states, table, bias, vocab_size=3, chunk=chunk, key=key, **more
    )
    ids = np.asarray(draw(jax.random.key(0)))
    shares = [np.mean(ids == one) for one in range(3)]
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=0.03)
    # As often as two draws of one distribution: 0.25 + 0.09 + 0.04.
    for other in (np.roll(ids, 1), np.roll(ids, 4), np.asarray(draw(jax.random.key(1)))):
        assert np.mean(ids == other) == pytest.approx(0.38, abs=0.04)
    assert set(np.unique(draw(jax.random.key(0), banned=np.array([1])))) == {0, 2}


@pytest.mark.parametrize(
    ("tokens", "chunk", "count"),
    [(22, 0, 1), (22, 11, 2), (22, 7, 4), (26, 4, 13), (22, 5, 5), (7, 100, 1), (30, 7, 5)],
)  # 13 equal ones rather than 7 with padding, but not 11 rather than 5
def test_chunks_are_equal_where_few_more_make_them_so(tokens, chunk, count):
    assert _chunks(tokens, chunk) == count


def test_metrics_by_language():
    nll = np.array([1.0, 2.0, 4.0, 8.0], np.float32)
    weights, languages = np.array([1, 1, 0, 0.5], np.float32), np.array([0, 2, 2, 2])
    metrics = metrics_by_language("x", {"loss": nll}, weights, languages, 4)
    assert set(metrics) == {"x/loss", "x/loss_by_language"}
    np.testing.assert_array_equal(metrics["x/loss"], [7, 2.5])
    np.testing.assert_array_equal(metrics["x/loss_by_language"], [[1, 0, 6, 0], [1, 0, 1.5, 0]])
