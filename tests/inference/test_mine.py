import numpy as np
import pytest

from xlingjax.errors import UserError
from xlingjax.inference import mine


@pytest.mark.parametrize("margin", mine.MARGINS)
def test_pairs_by_the_definition(margin):
    """Of a sentence's three nearest the one of the best margin; all of these from both sides, the
    best first."""
    rng = np.random.default_rng(0)
    source, target = (
        x / np.linalg.norm(x, axis=1, keepdims=True) for x in rng.normal(size=(2, 12, 6))
    )
    cosines = source @ target.T

    def score(i, j):
        around = (np.sort(cosines[i])[-3:].mean() + np.sort(cosines[:, j])[-3:].mean()) / 2
        return {
            "ratio": cosines[i, j] / around,
            "distance": cosines[i, j] - around,
            "absolute": cosines[i, j],
        }[margin]

    forward = [
        max(((i, j) for j in np.argsort(-cosines[i])[:3]), key=lambda pair: score(*pair))
        for i in range(12)
    ]
    backward = [
        max(((i, j) for i in np.argsort(-cosines[:, j])[:3]), key=lambda pair: score(*pair))
        for j in range(12)
    ]
    expected = []
    for i, j in sorted({*forward, *backward}, key=lambda pair: -score(*pair)):
        if all(i != a and j != b for a, b in expected):
            expected.append((i, j))
    found = mine.mine(source, target, k=3, margin=margin)
    assert list(zip(found.source, found.target, strict=True)) == expected and len(expected) < 12
    assert found.scores == pytest.approx([score(i, j) for i, j in expected], rel=1e-5)


def test_translations_among_noise_come_first():
    rng = np.random.default_rng(2)
    meaning = rng.normal(size=(30, 16))
    source = np.concatenate(
        [meaning + 0.1 * rng.normal(size=meaning.shape), rng.normal(size=(20, 16))]
    )
    target = np.concatenate([rng.normal(size=(20, 16)), meaning])
    found = mine.mine(source, target)
    assert set(zip(found.source[:30], found.target[:30], strict=True)) == {
        (i, 20 + i) for i in range(30)
    }
    kept = mine.mine(source, target, threshold=float(found.scores[29]))
    assert len(kept.scores) == 30


def test_candidates_are_neighbours_in_either_direction():
    """t0 is nearest to both of the source; that s1 is nearest to t1 only the other direction
    finds."""
    source, target = (
        np.stack([np.cos(a), np.sin(a)], axis=1)
        for a in (np.radians([0, 40]), np.radians([10, 80]))
    )
    for x, y in ((source, target), (target, source)):
        found = mine.mine(x, y, k=1, margin="absolute")
        assert set(zip(found.source, found.target, strict=True)) == {(0, 0), (1, 1)}


def test_only_the_best_neighbour_of_a_sentence_is_a_candidate():
    """Both of the source are nearest to t0, both of the target to s0: s1 and t1 are each other's
    second choice, which
    k neighbours would offer, and stay alone."""
    source, target = (
        np.stack([np.cos(a), np.sin(a)], axis=1)
        for a in (np.radians([0, 60]), np.radians([0, -60]))
    )
    found = mine.mine(source, target, k=2, margin="absolute")
    assert list(zip(found.source, found.target, strict=True)) == [(0, 0)]


def test_identical_corpora_are_paired_on_the_diagonal():
    corpus = np.random.default_rng(3).normal(size=(40, 6))
    found = mine.mine(corpus, corpus)
    assert len(found.source) == 40 and (found.source == found.target).all()


def test_refusals():
    with pytest.raises(UserError, match="ratio, distance, absolute"):
        mine.mine(np.eye(3), np.eye(3), margin="mean")
    with pytest.raises(UserError, match="one is empty"):
        mine.mine(np.eye(3), np.zeros((0, 3)))
