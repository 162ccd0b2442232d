import numpy as np
import pytest

from xlingjax.report import drawing, html, intervals


def roots(share, count):
    """Where (share - x)^2 = z^2 x (1 - x) / count: the two shares that the one seen is 1.96
    deviations from."""
    z2 = 1.959964**2 / count
    return sorted(np.roots([1 + z2, -(2 * share + z2), share**2]).real)


@pytest.mark.parametrize("share, count", [(0.5, 100), (0.75, 300), (0.02, 50), (0.0, 100)])
def test_the_interval_of_a_share_is_where_it_is_two_deviations_off(share, count):
    np.testing.assert_allclose(intervals.of_share(share, count), roots(share, count), atol=1e-7)


def test_a_picture_takes_the_pages_ink_and_keeps_its_size():
    figures, (axis,) = drawing.styled(drawing.panels)(1)
    axis.plot([0, 1], [1, 2], color=drawing.COLOURS[0], label="قطة")
    axis.set_title("猫 $5")
    source = html.part("parts", "figures", drawing.labelled(figures, "a cat"))
    assert "猫 $5" in source and "var(--series-0)" in source and drawing.COLOURS[0] not in source
    # 3.4 inches of 72 points.
    assert 'style="width:244.8pt"' in source and source.count("<figure") == 1
    assert 'aria-label="a cat: ' in source
