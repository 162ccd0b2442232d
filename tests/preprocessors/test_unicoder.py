import numpy as np
import pytest

from tests.helpers import made
from xlingjax.preprocessors.unicoder import ClMlmFeatures, ClwrFeatures


def test_every_ordinary_piece_of_a_pair_is_recovered():
    before, after = made.batch(ClwrFeatures())
    ordinary = (before["input_ids"] >= 14) & (before["pack_ids"] > 0)
    np.testing.assert_array_equal(after["target_weights"], ordinary.astype(np.float32))
    np.testing.assert_array_equal(after["input_ids"], before["input_ids"])  # nothing is masked
    for row in range(3):
        packs, sides = before["pack_ids"][row], before["sides"][row]
        for side in (0, 1):
            columns = np.flatnonzero((packs == 1) & (sides == side))
            assert before["input_ids"][row, columns[0]] == made.Xlmr.bos_id
            assert before["position_ids"][row, columns].tolist() == list(range(len(columns)))


@pytest.mark.parametrize("parity", ["even", "odd", "coin"])
def test_documents_change_language_and_are_masked_as_one_text(parity):
    features = ClMlmFeatures(parity=parity, truncate=False)
    before, after = made.batch(features)
    first = []
    for row in range(len(after["pack_ids"])):
        packs, ids, codes = (
            before[name][row] for name in ("pack_ids", "input_ids", "language_ids")
        )
        chosen = made.slots(after, row)
        assert abs(len(chosen) - 0.15 * (packs > 0).sum()) < 1
        assert all(ids[c] == target for c, target in chosen)
        words = (packs > 0) & (ids >= 14)
        # Language and word go together.
        np.testing.assert_array_equal(codes[words] == 1, ids[words] >= 56)
        assert {0, 1} == set(codes[words].tolist())
        first += [codes[packs == pack][0] for pack in range(1, packs.max() + 1)]
    assert set(first) >= {"even": {1}, "odd": {0}, "coin": {0, 1}}[parity]
