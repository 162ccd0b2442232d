import numpy as np
import pytest

from xlingjax.evaluation import retrieval
from xlingjax.inference import mine, search
from xlingjax.model.partition import MeshConfig, make_mesh

MESHES = {
    "one": None,
    "eight": MeshConfig(data=8),
    "three-axes": MeshConfig(data=2, fsdp=2, tensor=2),
}


def whole_numbers(rng, *shapes, limit):
    """Their products are exact, so that no order of summation changes a bit."""
    return (rng.integers(-limit, limit + 1, shape).astype(np.float32) for shape in shapes)


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize(
    "limit", [1000, 1]
)  # 1: nearly all products have equals, in other chunks and devices too
def test_what_a_stable_sort_of_all_products_gives(mesh, limit):
    mesh = MESHES[mesh] and make_mesh(MESHES[mesh])
    queries, index = whole_numbers(np.random.default_rng(0), (150, 8), (1100, 8), limit=limit)
    scores = queries @ index.T
    order = np.argsort(-scores, axis=1, kind="stable")
    for k, chunk in ((1, 128), (5, 128), (5, 3)):  # 3: less than k
        products, rows = search.neighbours(queries, index, k, chunk=chunk, mesh=mesh)
        np.testing.assert_array_equal(rows, order[:, :k])
        np.testing.assert_array_equal(products, np.take_along_axis(scores, order[:, :k], axis=1))


def test_padding_is_never_found():
    """It would score 0, above all rows; of eight devices seven hold nothing else."""
    queries, index = np.ones((3, 4), np.float32), -np.ones((5, 4), np.float32)
    for mesh in (None, make_mesh(MeshConfig(data=8))):
        products, rows = search.neighbours(queries, index, 9, mesh=mesh)
        assert rows.tolist() == [[0, 1, 2, 3, 4]] * 3 and (products == -4).all()


def test_retrieval_and_mining_on_eight_devices_are_those_on_one():
    rng = np.random.default_rng(2)
    source, target = rng.normal(size=(2, 60, 8)).astype(np.float32)
    target[:40] = source[:40] + 0.3 * target[:40]
    mesh = make_mesh(MeshConfig(data=8))
    scores = retrieval.shares(retrieval.searched(source, target))
    assert (
        retrieval.shares(retrieval.searched(source, target, mesh)) == scores
        and 0 < scores["raw_en_to_xx"] < 1
    )
    one, eight = mine.mine(source, target), mine.mine(source, target, mesh=mesh)
    for name in ("source", "target"):
        np.testing.assert_array_equal(getattr(one, name), getattr(eight, name))
    np.testing.assert_allclose(one.scores, eight.scores, rtol=1e-5)
