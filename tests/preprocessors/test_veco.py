import numpy as np
import pytest

from tests.helpers import made
from xlingjax.preprocessors.veco import VecoFeatures, VecoTextFeatures


@pytest.mark.parametrize(
    "features",
    [VecoFeatures(), VecoTextFeatures(), VecoFeatures(packing=False)],
    ids=lambda f: f.name,
)
def test_each_side_is_a_masked_row_of_its_own(features):
    before, after = made.batch(features)
    rate, checked = features.masking.rate, 0
    for row in range(len(after["pack_ids"])):
        packs, sides, ids = (before[name][row] for name in ("pack_ids", "sides", "input_ids"))
        assert features.packing or packs.max() == 1
        for pack in range(1, packs.max() + 1):
            for side in (0, 1):
                columns = np.flatnonzero((packs == pack) & (sides == side))
                opening = made.Xlmr.eos_id if side and features.sides == 2 else made.Xlmr.bos_id
                assert ids[columns[0]] == opening and ids[columns[-1]] == made.Xlmr.eos_id
                assert before["position_ids"][row, columns].tolist() == list(range(len(columns)))
        for side in (0, 1):
            real = np.flatnonzero((packs > 0) & (sides == side))
            chosen = made.slots(after, row, side)
            assert abs(len(chosen) - rate * len(real)) < 1
            assert all(
                sides[c] == side and packs[c] > 0 and ids[c] == target for c, target in chosen
            )
            starts = np.flatnonzero(before["position_ids"][row] == 0)
            assert not {c for c, _ in chosen} & {*starts.tolist()}
            checked += len(chosen)
        untouched = np.setdiff1d(np.arange(len(ids)), [c for c, _ in made.slots(after, row)])
        np.testing.assert_array_equal(after["input_ids"][row, untouched], ids[untouched])
    assert checked > 20


def test_sides_are_languages_of_pairs_and_one_language_of_text():
    before, _ = made.batch(VecoFeatures())
    real = before["pack_ids"] > 0
    np.testing.assert_array_equal(before["language_ids"][real], before["sides"][real])
    before, _ = made.batch(VecoTextFeatures())
    assert not before["language_ids"].any() and before["sides"].any()
