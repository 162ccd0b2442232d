import numpy as np
import pytest

from xlingjax.data.sampling import Sampling, expected_epochs, format_table, sampling_table, smoothed
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


def test_nothing_set_is_xlms_sampling():
    nothing = Sampling()
    assert (nothing.counts, nothing.same_language, nothing.uniform) == ("sentences", True, False)
    assert nothing == Sampling(None, None, None)
    with pytest.raises(AttributeError):
        nothing.alpha = 0.5


def test_modes():
    counts = {"de": 900, "en": 100}
    assert Sampling().shares(counts) == pytest.approx({"de": 0.8232, "en": 0.1768}, abs=1e-4)
    assert Sampling(temperature=2).shares(counts) == pytest.approx({"de": 0.75, "en": 0.25})
    assert Sampling(uniform=True).shares(counts) == {"de": 0.5, "en": 0.5}
    assert Sampling(weights={"en": 3, "de": 1}).shares(counts) == {"de": 0.25, "en": 0.75}
    with pytest.raises(UserError, match="alpha and uniform exclude each other"):
        Sampling(alpha=0.5, uniform=True)
    with pytest.raises(UserError, match="unknown: fr, missing: en"):
        Sampling(weights={"de": 1, "fr": 1}).shares(counts)
    with pytest.raises(UserError, match="counts must be sentences, tokens or mixture"):
        Sampling(counts="bytes")
    with pytest.raises(UserError, match="temperature must be above zero"):
        Sampling(temperature=0.0)
    with pytest.raises(UserError, match="exponent must not be negative"):
        Sampling(alpha=-1.0).shares(counts)


def test_table_and_expected_epochs():
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
    assert expected_epochs(table, 10) == pytest.approx(
        {"de": 3.0, "en": 10 * 4 * 0.25 / 1.5},
        abs=1e-3,
    )
    lines = format_table(table, steps=10).splitlines()
    assert lines[0].split()[-1] == "epochs" and lines[1].split() == [
        "de",
        "50",
        "800",
        "10",
        "75.00%",
        "3.00",
    ]
