import numpy as np
from scipy import stats

from xlingjax.data.rows.draws import REPLACE, SELECT, Draws, gumbel, seed_of


def test_a_share_of_the_rows_sees_the_draws_of_the_whole():
    whole = Draws(3, 7, 8).uniform(SELECT, 5)
    assert whole.dtype == np.float32
    part = Draws(3, 7, 8, first=2, count=4).uniform(SELECT, 5)
    np.testing.assert_array_equal(part, whole[2:6])
    for other in (
        Draws(4, 7, 8).uniform(SELECT, 5),
        Draws(3, 8, 8).uniform(SELECT, 5),
        Draws(3, 7, 8).uniform(REPLACE, 5),
    ):
        assert not np.isin(other, whole).any()
    integers = Draws(3, 7, 1000).uniform(SELECT, 2, maxval=5)
    assert integers.min() == 0 and integers.max() == 4 and integers.dtype == np.int32


def test_draws_of_neighbouring_steps_and_purposes_are_even_and_independent():
    drawn = np.stack(
        [Draws(seed_of("mlm", 1), step, 40).uniform(purpose, 50).ravel()
         for step in range(8) for purpose in (SELECT, REPLACE)]
    )  # fmt: skip
    assert stats.kstest(drawn.ravel(), "uniform").pvalue > 1e-3
    correlation = np.corrcoef(drawn)
    assert abs(correlation[~np.eye(len(drawn), dtype=bool)]).max() < 4 / np.sqrt(drawn.shape[1])


def test_the_largest_of_gumbel_noise_draws_by_weight():
    weights = np.array([0.6, 0.3, 0.1])
    noise = gumbel(Draws(0, 0, 20_000).uniform(SELECT, 3))
    shares = np.bincount((np.log(weights) + noise).argmax(axis=1)) / 20_000
    assert abs(shares - weights).max() < 0.012
    assert np.isfinite(gumbel(np.array([0.0, 1.0]))).all()
