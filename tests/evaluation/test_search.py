import tracemalloc

import numpy as np
import pytest

from xlingjax.evaluation import mining, retrieval, search
from xlingjax.partition import MeshConfig, make_mesh


def whole_numbers(rng, *shapes, limit):
    """Their products are exact, so that no order of summation changes a bit."""
    return (rng.integers(-limit, limit + 1, shape).astype(np.float64) for shape in shapes)


def expected(queries, index, k):
    scores = queries @ index.T
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, best, axis=1), best


@pytest.mark.parametrize("limit", [2**20, 1])  # 1: nearly all products have equals
@pytest.mark.parametrize("k", [1, 9])
def test_the_host_is_exact_in_chunks(limit, k):
    queries, index = whole_numbers(np.random.default_rng(0), (23, 8), (41, 8), limit=limit)
    for chunk in (7, 40, 1024):  # 7: less than k; 40: one row is left
        products, rows = search.neighbours(queries, index, k, chunk=chunk)
        for found, right in zip((products, rows), expected(queries, index, k), strict=True):
            np.testing.assert_array_equal(found, right)
    products, rows = search.neighbours(queries.astype(np.float32), index[:3].astype(np.float32), 9, chunk=2)
    assert rows.shape == (23, 3) and products.dtype == np.float32


def test_the_host_holds_no_more_than_a_chunk_of_each_side():
    """4 MB of products in all; a chunk and its sorting are less than a tenth of that."""
    queries, index = whole_numbers(np.random.default_rng(0), (64, 4), (8192, 4), limit=2**20)
    tracemalloc.start()
    search.neighbours(queries, index, 3, chunk=64)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400_000


MESHES = {"one device": None, "eight": MeshConfig(data=8), "eight on three axes": MeshConfig(data=2, fsdp=2, tensor=2)}


@pytest.mark.parametrize("mesh", MESHES, ids=lambda name: name.replace(" ", "-"))
def test_devices_find_what_numpy_finds(mesh):
    mesh = MESHES[mesh] and make_mesh(MESHES[mesh])
    for limit in (1000, 1):  # 1: nearly all have equals, in other chunks and on other devices too
        queries, index = whole_numbers(np.random.default_rng(1), (150, 8), (1100, 8), limit=limit)
        for k in (1, 5):
            products, rows = search.on_devices(queries, index, k, chunk=128, mesh=mesh)
            for found, right in zip((products, rows), expected(queries, index, k), strict=True):
                np.testing.assert_array_equal(found, right)


def test_devices_that_hold_no_row_and_an_index_of_equal_rows():
    mesh = make_mesh(MeshConfig(data=8))
    queries, index = np.ones((3, 4), np.float32), -np.ones((5, 4), np.float32)  # padding would score 0, above them all
    products, rows = search.on_devices(queries, index, 9, mesh=mesh)
    assert rows.tolist() == [[0, 1, 2, 3, 4]] * 3 and (products == -4).all()
    zero, signed = np.array([[1.0, -1.0]]), np.array([[0.0, 0.0], [-0.0, 0.0], [0.0, -0.0]])
    assert search.on_devices(-zero, signed, 3)[1].tolist() == [[0, 1, 2]]


@pytest.fixture
def accelerator(monkeypatch):
    """As if JAX ran on a GPU: everything searches by `on_devices`."""
    monkeypatch.setattr(search.jax, "default_backend", lambda: "gpu")


def test_retrieval_and_mining_on_devices_give_what_they_give_on_the_host(accelerator, monkeypatch):
    rng = np.random.default_rng(2)
    source, target = rng.normal(size=(2, 60, 8)).astype(np.float32)
    target[:40] = source[:40] + 0.3 * target[:40]
    mesh = make_mesh(MeshConfig(data=8))
    on_devices = retrieval.score_layer(source, target, mesh), mining.mine(source, target, mesh=mesh)
    monkeypatch.undo()
    on_host = retrieval.score_layer(source, target), mining.mine(source, target)
    assert on_devices[0] == on_host[0] and 0 < on_host[0]["raw_en_to_xx"] < 1
    for name in ("source", "target"):
        np.testing.assert_array_equal(getattr(on_devices[1], name), getattr(on_host[1], name))
    np.testing.assert_allclose(on_devices[1].scores, on_host[1].scores, rtol=1e-5)
