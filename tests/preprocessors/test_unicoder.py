import math

import numpy as np
import pytest

from tests.helpers import made
from xlingjax.errors import UserError
from xlingjax.preprocessors.unicoder import ClMlmFeatures, ClpcFeatures, ClwrFeatures


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
        assert len(chosen) == math.ceil(0.15 * (packs > 0).sum() - 1e-4)
        assert all(ids[c] == target for c, target in chosen)
        words = (packs > 0) & (ids >= 14)
        np.testing.assert_array_equal(
            codes[words] == 1, ids[words] >= 56
        )  # language and word go together
        assert {0, 1} == set(codes[words].tolist())
        first += [codes[packs == pack][0] for pack in range(1, packs.max() + 1)]
    assert set(first) >= {"even": {1}, "odd": {0}, "coin": {0, 1}}[parity]


def test_parities_are_named():
    with pytest.raises(UserError, match="'even', 'odd' or 'coin'"):
        ClMlmFeatures(parity="both")


def texts(fields, row):
    """The two texts of a row, without what opens and ends them."""
    ids, sides, packs = (fields[name][row] for name in ("input_ids", "sides", "pack_ids"))
    return tuple(
        tuple(ids[(packs > 0) & (sides == side) & (ids >= 14)].tolist()) for side in (0, 1)
    )


@pytest.mark.parametrize("negatives", [1, 3])
def test_half_of_the_pairs_are_translations(negatives):
    before, after = made.batch(ClpcFeatures(negatives=negatives), length=24)
    assert set(after["labels"].tolist()) == {0, 1} and after["labels"].mean() == 0.5
    assert (after["example_weights"] == 1).all() and before["pack_ids"].max() == 1
    rows = [texts(before, row) for row in range(len(after["labels"]))]
    right = {x: y for (x, y), label in zip(rows, after["labels"], strict=True) if label}
    wrong = [(x, y) for (x, y), label in zip(rows, after["labels"], strict=True) if not label]
    assert len(right) == 34 and len(wrong) == 34 * negatives
    assert all(y != right[x] and y in right.values() for x, y in wrong)
    np.testing.assert_array_equal(before["language_ids"], before["sides"])


def test_mined_negatives_stand_in_the_third_side():
    before, after = made.batch(ClpcFeatures(mined=True), length=24)
    rows = [texts(before, row) for row in range(len(after["labels"]))]
    assert after["labels"].mean() == 0.5 and len(rows) == 68
    for label, (_, y) in zip(after["labels"], rows, strict=True):
        assert y in made.texts(made.records(3), 1 if label else 2)


def test_negatives_that_say_the_same_are_left_out():
    same = made.Tokens(np.array([20, 2] * 4, np.uint16), np.full(4, 2, np.int32))
    records = made.Records(("de", "en"), (made.records(1, sentences=4).sides[0], same))
    assert ClpcFeatures().rows(records, (1, 40), 24, made.Xlmr).count == 0
