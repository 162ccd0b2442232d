import numpy as np
import pytest

from xlingjax.data.sampling import Sampling, format_table, sampling_table, smoothed
from xlingjax.errors import UserError


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [
        (1.0, (0.9, 0.1)),
        (0.7, (0.8232, 0.1768)),
        (0.5, (0.75, 0.25)),
        (0.3, (0.65907, 0.34093)),
        (0.1, (0.5547, 0.4453)),
        (0.0, (0.5, 0.5)),
    ],
)
def test_exponent_smoothing(alpha, expected):
    np.testing.assert_allclose(smoothed([900, 100], alpha), expected, atol=6e-5)


def test_an_absent_language_is_never_drawn():
    assert smoothed([3, 0, 1], 0.0).tolist() == [0.5, 0.0, 0.5]


def test_modes():
    counts = {"de": 900, "en": 100}
    assert Sampling().shares(counts) == pytest.approx({"de": 0.8232, "en": 0.1768}, abs=1e-4)
    assert Sampling(alpha=0.5).shares(counts) == Sampling(temperature=2).shares(counts)
    assert Sampling(temperature=2).shares(counts) == pytest.approx({"de": 0.75, "en": 0.25})
    assert Sampling(uniform=True).shares(counts) == {"de": 0.5, "en": 0.5}
    assert Sampling(weights={"en": 3, "de": 1}).shares(counts) == {"de": 0.25, "en": 0.75}
    with pytest.raises(UserError, match="alpha and uniform exclude each other"):
        Sampling(alpha=0.5, uniform=True)
    with pytest.raises(UserError, match="unknown: fr, missing: en"):
        Sampling(weights={"de": 1, "fr": 1}).shares(counts)
    with pytest.raises(
        UserError, match="counts='bytes': 'sentences', 'tokens' or 'mixture' is needed"
    ):
        Sampling(counts="bytes")
    with pytest.raises(UserError, match="temperature=0.0: a number above 0"):
        Sampling(temperature=0.0)
    with pytest.raises(UserError, match="alpha=-1.0: a number of 0 or more"):
        Sampling(alpha=-1.0)


def test_the_table():
    sizes = {
        "de": {"sentences": 50, "tokens": 800, "rows": 10},
        "en": {"sentences": 5, "tokens": 80, "rows": 1.5},
    }
    table = sampling_table(sizes, {"de": 0.75, "en": 0.25}, rows_per_step=4)
    assert table[0] == {
        "name": "de",
        "sentences": 50,
        "tokens": 800,
        "rows": 10,
        "share": 0.75,
        "epochs_per_1000_steps": 300.0,
    }
    lines = format_table(table, steps=10).splitlines()
    assert lines[0].split()[-1] == "epochs" and lines[1].split() == [
        "de",
        "50",
        "800",
        "10",
        "75.00%",
        "3.00",
    ]


def test_a_table_rounds_and_is_of_a_thousand_steps_where_no_number_is_given():
    sizes = {"de": {"sentences": 50.6, "tokens": 800.4, "rows": 7.7}}
    table = sampling_table(sizes, {"de": 2 / 3}, rows_per_step=3)
    epochs = 1000 * 3 * (2 / 3) / 7.7
    assert table == [
        {
            "name": "de",
            "sentences": 51,
            "tokens": 800,
            "rows": 8,
            "share": 0.666667,
            "epochs_per_1000_steps": round(epochs, 4),
        }
    ]
    assert round(epochs, 4) != round(epochs, 5)
    title, line = format_table(table).splitlines()
    assert title.split()[-2:] == ["epochs/1k", "steps"]
    assert line.split()[-2:] == ["66.67%", "259.74"]
    assert format_table(table, steps=5000).splitlines()[1].split()[-1] == "1298.70"
    # No step is no number of steps.
    assert format_table(table, steps=0) == format_table(table)


@pytest.mark.parametrize("counts", [[], [0, 0], [3, -1]])
def test_counts_without_text_are_refused(counts):
    with pytest.raises(UserError, match="needs counts above zero"):
        smoothed(counts, 0.5)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"alpha": 0.0, "temperature": 1.0}, "alpha and temperature"),
        ({"temperature": 1.0, "weights": {}}, "temperature and weights"),
        ({"weights": {}, "uniform": True}, "weights and uniform"),
    ],
)
def test_two_ways_to_sample_are_one_too_many(given, names):
    with pytest.raises(UserError, match=f"sampling options {names} exclude each other"):
        Sampling(**given)
    for name, value in given.items():
        assert getattr(Sampling(**{name: value}), name) == value
