import numpy as np
import pytest

from xlingjax.data.sampling import Sampling, format_table, sampling_table, smoothed
from xlingjax.errors import UserError


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [(1.0, (0.9, 0.1)), (0.7, (0.8232, 0.1768)), (0.3, (0.65907, 0.34093)), (0.0, (0.5, 0.5))],
)
def test_exponent_smoothing(alpha, expected):
    np.testing.assert_allclose(smoothed([900, 100], alpha), expected, atol=6e-5)


def test_an_absent_language_is_never_drawn():
    assert smoothed([3, 0, 1], 0.0).tolist() == [0.5, 0.0, 0.5]


def test_modes():
    counts = {"de": 900, "en": 100}
    assert Sampling().shares(counts) == pytest.approx({"de": 0.8232, "en": 0.1768}, abs=1e-4)
    assert Sampling(alpha=0.5).shares(counts) == pytest.approx({"de": 0.75, "en": 0.25})
    assert Sampling(alpha=0.0).shares(counts) == {"de": 0.5, "en": 0.5}
    assert Sampling(weights={"en": 3, "de": 1}).shares(counts) == {"de": 0.25, "en": 0.75}
    counts = {"de": 800, "en": 500, "sw": 200}
    for alpha, de in ((1.0, 0.8), (0.5, 2 / 3), (0.0, 0.5)):
        shares = Sampling(alpha=alpha, weights={"en": 3, "*": 1}).shares(counts)
        assert shares == pytest.approx({"de": de / 4, "en": 0.75, "sw": (1 - de) / 4})
    assert Sampling(weights={"sw": 2, "*": 0}).shares(counts) == {"de": 0, "en": 0, "sw": 1}
    counts = {"de": 900, "en": 100}
    with pytest.raises(UserError, match="unknown: fr, missing: en"):
        Sampling(weights={"de": 1, "fr": 1}).shares(counts)
    with pytest.raises(UserError, match="counts='bytes': 'sentences', 'tokens' or 'mixture' is"):
        Sampling(counts="bytes")
    with pytest.raises(UserError, match="alpha=-1.0: a number of 0 or more"):
        Sampling(alpha=-1.0)


def test_the_table():
    sizes = {
        "de": {"sentences": 50, "tokens": 800, "rows": 10},
        "en": {"sentences": 5, "tokens": 80, "rows": 1.5},
    }
    table = sampling_table(sizes, {"de": 0.75, "en": 0.25}, rows_per_step=4)
    counted = {"name": "de", "sentences": 50, "tokens": 800, "rows": 10}
    assert table[0] == counted | {"share": 0.75, "epochs_per_1000_steps": 300.0}
    line = format_table(table, steps=10).splitlines()[1]
    assert line.split() == ["de", "50", "800", "10", "75.00%", "3.00"]


@pytest.mark.parametrize("counts", [[], [0, 0], [3, -1]])
def test_counts_without_text_are_refused(counts):
    with pytest.raises(UserError, match="needs counts above zero"):
        smoothed(counts, 0.5)


def test_two_ways_to_sample_are_one_too_many():
    with pytest.raises(UserError, match="sampling options alpha and weights exclude each other"):
        Sampling(alpha=0.0, weights={})
