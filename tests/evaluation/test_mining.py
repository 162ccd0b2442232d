import tracemalloc

import numpy as np
import pytest

from xlingjax.errors import UserError
from xlingjax.evaluation import mining


def whole_numbers(rng, *shapes, limit):
    """Their products are exact, so that no order of summation changes a bit."""
    return (rng.integers(-limit, limit + 1, shape).astype(np.float64) for shape in shapes)


@pytest.mark.parametrize("limit", [2**20, 1])  # 1: nearly all cosines have equals
def test_neighbours_are_exact_in_chunks(limit):
    queries, index = whole_numbers(np.random.default_rng(0), (23, 8), (41, 8), limit=limit)
    scores = queries @ index.T
    best = np.argsort(-scores, axis=1, kind="stable")[:, :9]
    for chunk in (7, 40, 1024):  # 7: less than k; 40: one row is left
        cosines, rows = mining.neighbours(queries, index, 9, chunk=chunk)
        np.testing.assert_array_equal(rows, best)
        np.testing.assert_array_equal(cosines, np.take_along_axis(scores, best, axis=1))
    cosines, rows = mining.neighbours(queries.astype(np.float32), index[:3].astype(np.float32), 9, chunk=2)
    assert rows.shape == (23, 3) and cosines.dtype == np.float32


def test_neighbours_hold_no_more_than_a_chunk_of_each_side():
    """4 MB of cosines in all; a chunk and its sorting are less than a tenth of that."""
    queries, index = whole_numbers(np.random.default_rng(0), (64, 4), (8192, 4), limit=2**20)
    tracemalloc.start()
    mining.neighbours(queries, index, 3, chunk=64)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400_000


@pytest.mark.parametrize("margin", mining.MARGINS)
def test_scores_by_hand(margin):
    """One pair of each by the definition: cosine against the mean of both sides' mean neighbour cosines."""
    rng = np.random.default_rng(1)
    source, target = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in rng.normal(size=(2, 12, 6)))
    found = mining.mine(source, target, k=3, margin=margin)
    scores = source @ target.T
    best = -np.inf
    for i in range(12):
        for j in range(12):
            if j not in np.argsort(-scores[i])[:3] and i not in np.argsort(-scores[:, j])[:3]:
                continue
            around = (np.sort(scores[i])[-3:].mean() + np.sort(scores[:, j])[-3:].mean()) / 2
            score = {"ratio": scores[i, j] / around, "distance": scores[i, j] - around, "absolute": scores[i, j]}[
                margin
            ]
            best = max(best, score)
    assert found.scores[0] == pytest.approx(best)
    assert (np.diff(found.scores) <= 1e-12).all()
    assert len(set(found.source)) == len(found.source) and len(set(found.target)) == len(found.target)


def test_translations_among_noise_come_first():
    rng = np.random.default_rng(2)
    meaning = rng.normal(size=(30, 16))
    source = np.concatenate([meaning + 0.1 * rng.normal(size=meaning.shape), rng.normal(size=(20, 16))])
    target = np.concatenate([rng.normal(size=(20, 16)), meaning])
    found = mining.mine(source, target)
    assert set(zip(found.source[:30], found.target[:30], strict=True)) == {(i, 20 + i) for i in range(30)}
    kept = mining.mine(source, target, threshold=float(found.scores[29]))
    assert len(kept.scores) == 30


def test_candidates_are_neighbours_in_either_direction():
    """t0 is nearest to both of the source; that s1 is nearest to t1 only the other direction finds."""
    source, target = (np.stack([np.cos(a), np.sin(a)], axis=1) for a in (np.radians([0, 40]), np.radians([10, 80])))
    for x, y in ((source, target), (target, source)):
        found = mining.mine(x, y, k=1, margin="absolute")
        assert set(zip(found.source, found.target, strict=True)) == {(0, 0), (1, 1)}


def test_refusals():
    with pytest.raises(UserError, match="ratio, distance, absolute"):
        mining.mine(np.eye(3), np.eye(3), margin="mean")
    with pytest.raises(UserError, match="one is empty"):
        mining.mine(np.eye(3), np.zeros((0, 3)))


def test_equal_lines_are_searched_once():
    assert list(mining.unique(["a", "", "b", "a"])) == [(0, "a"), (2, "b")]
