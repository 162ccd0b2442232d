"""Masking checked against what it must do, not against another copy of itself."""

import numpy as np
import pytest

from tests.helpers.made import Xlm, Xlmr, slots
from tests.helpers.made import batch as batch_of
from xlingjax.data.rows.draws import Draws
from xlingjax.preprocessors.veco import VecoFeatures
from xlingjax.preprocessors.xlm import Masking, MlmFeatures, masker

B, L = 512, 40


def batch(real=L, packs=None, ids=None, rows=B):
    """Rows of `real` ordinary tokens in `</s> ... </s>`, then pads."""
    rng = np.random.default_rng(0)
    tokens = (
        rng.integers(14, 100, (rows, L)) if ids is None else np.broadcast_to(ids, (rows, L)).copy()
    )
    pack = (
        np.ones((rows, L), np.int64) if packs is None else np.broadcast_to(packs, (rows, L)).copy()
    )
    if ids is None:
        tokens[:, 0] = tokens[:, real - 1] = 1
    tokens[:, real:], pack[:, real:] = 2, 0
    return {"input_ids": tokens.astype(np.int32), "pack_ids": pack.astype(np.int32)}


def run(masking, given, *, vocabulary=Xlm, counts=None, slots=None, seed=1, step=0):
    counts = np.ones(vocabulary.size, np.int64) if counts is None else counts
    slots = slots or masking.slots(L)
    mask = masker(masking, vocabulary, counts, slots)
    rows = given["input_ids"].shape[0]
    return mask(given, Draws(seed, step, rows))


def chosen(made, row):
    return made["masked_positions"][row][made["masked_weights"][row] > 0].tolist()


@pytest.mark.parametrize(
    "masking", [Masking(), Masking(count="bernoulli", subsampling=0.0), Masking(validation=True)]
)
def test_slots_hold_the_originals_and_nothing_else_changes(masking):
    given = batch(real=31)
    made = run(masking, given)
    ids = given["input_ids"]
    for row in range(B):
        where = chosen(made, row)
        assert where == sorted(set(where)) and 0 not in where and max(where, default=1) < 31
        used = made["masked_weights"][row] > 0
        assert used.tolist() == sorted(used.tolist(), reverse=True)
        assert (made["masked_targets"][row][used] == ids[row, where]).all()
        assert (made["masked_targets"][row][~used] == 0).all() and (
            made["masked_positions"][row][~used] == 0
        ).all()
        untouched = np.setdiff1d(np.arange(L), where)
        assert (made["input_ids"][row, untouched] == ids[row, untouched]).all()


@pytest.mark.parametrize("rate", [0.15, 0.25])
def test_exact_counts_are_the_rate_rounded_so_that_the_mean_is_the_rate(rate):
    """Whole numbers stay: 0.15 * 20 is 3.0000000000000004 in floating point."""
    for real in (5, 7, 9, 16, 20, 31, 40):
        made = run(Masking(rate, subsampling=0.0), batch(real=real, rows=4096))
        counts = made["masked_weights"].sum(axis=1)
        up = rate * real - np.floor(rate * real + 1e-9)
        assert (abs(counts - rate * real) < 1).all()
        assert abs(counts.mean() - rate * real) <= 4 * np.sqrt(abs(up * (1 - up)) / 4096) + 1e-9


def test_short_sides_of_pairs_are_masked_by_the_rate():
    """Always rounded up they are by 28 % for 25."""
    features = VecoFeatures(packing=False)
    made_of = dict(sentences=4000, shortest=5, longest=12)
    before, after = batch_of(features, **made_of)
    for side in (0, 1):
        tokens = ((before["pack_ids"] > 0) & (before["sides"] == side)).sum(axis=1)
        masked = sum(len(slots(after, row, side)) for row in range(len(tokens)))
        assert abs(masked / tokens.sum() - 0.25) < 4 * np.sqrt(0.25 * len(tokens)) / tokens.sum()


def test_eighty_ten_ten():
    given = batch()
    made = run(Masking(subsampling=0.0), given)
    used = made["masked_weights"] > 0
    shown = np.take_along_axis(made["input_ids"], made["masked_positions"], 1)[used]
    target = made["masked_targets"][used]
    total = used.sum()
    assert abs((shown == 5).mean() - 0.8) < 3 * np.sqrt(0.16 / total)
    # 10 % kept and the random tokens that hit the original by chance.
    kept = (shown == target).mean()
    assert abs(kept - 0.1 - 0.1 / 86) < 3 * np.sqrt(0.09 / total)
    other = shown[(shown != 5) & (shown != target)]
    assert other.min() >= 14 and len(set(other.tolist())) > 75


def test_random_range_all_may_show_special_ids():
    made = run(Masking(mask=0.0, random=1.0, random_range="all", subsampling=0.0), batch())
    shown = np.take_along_axis(made["input_ids"], made["masked_positions"], 1)[
        made["masked_weights"] > 0
    ]
    assert set(range(14)) <= set(shown.tolist()) and shown.max() == 99
    made = run(Masking(mask=0.0, random=1.0), batch(), vocabulary=Xlmr)
    shown = np.take_along_axis(made["input_ids"], made["masked_positions"], 1)[
        made["masked_weights"] > 0
    ]
    assert shown.min() == 4 and shown.max() == 98


def test_all_positions_are_equally_likely_without_subsampling():
    made = run(Masking(subsampling=0.0), batch(rows=8 * B))
    counts = np.bincount(made["masked_positions"][made["masked_weights"] > 0], minlength=L)
    expected = 8 * B * 6 / 39
    assert counts[0] == 0 and abs(counts[1:] - expected).max() < 4.5 * np.sqrt(expected)
    assert counts[39] > 0  # the closing `</s>` may be chosen


def test_subsampling_chooses_counts_100_and_1_in_ratio_1_to_10():
    counts = np.ones(100, np.int64)
    counts[50] = 100
    ids = np.where(np.arange(L) % 2, 50, 60)
    made = run(Masking(rate=0.025, subsampling=0.5), batch(ids=ids, rows=4096), counts=counts)
    targets = made["masked_targets"][made["masked_weights"] > 0]
    frequent, rare = (targets == 50).sum(), (targets == 60).sum()
    assert frequent + rare == 4096  # one prediction a row
    expected = 4096 * (20 * 0.1) / (20 * 0.1 + 19)  # column 0 holds a rare token and is protected
    assert abs(frequent - expected) < 4 * np.sqrt(expected)


def test_subsampling_never_chooses_special_tokens_and_defaults_to_the_layout():
    ids = np.where(np.arange(L) % 3, 20, 1)
    made = run(Masking(rate=0.4), batch(ids=ids, rows=64))
    assert set(made["masked_targets"][made["masked_weights"] > 0].tolist()) == {20}
    made = run(Masking(rate=0.4, subsampling=0.0), batch(ids=ids, rows=64))
    assert set(made["masked_targets"][made["masked_weights"] > 0].tolist()) == {1, 20}
    assert Masking().exponent(Xlm) == 0.5 and Masking().exponent(Xlmr) == 0.0
    assert (
        Masking(count="bernoulli").exponent(Xlm) == 0.0
        and Masking(validation=True).exponent(Xlm) == 0.0
    )


def test_the_first_token_of_every_packed_example_is_protected():
    packs = np.repeat([1, 2, 3, 4], 10)
    made = run(Masking(rate=0.9, subsampling=0.0), batch(packs=packs, rows=64))
    positions = made["masked_positions"][made["masked_weights"] > 0]
    assert set(positions.tolist()) == set(range(L)) - {0, 10, 20, 30}
    # All that may be, fewer than ceil(0.9 * 40).
    assert made["masked_weights"].sum(axis=1).tolist() == [36] * 64


def test_bernoulli_counts_vary_and_average_the_rate():
    made = run(Masking(count="bernoulli"), batch())
    counts = made["masked_weights"].sum(axis=1)
    assert counts.std() > 1.5
    assert abs(counts.mean() - 0.15 * 39) < 4 * np.sqrt(39 * 0.15 * 0.85 / B)


def test_too_few_slots_keep_a_random_choice_of_the_draws():
    made = run(Masking(rate=0.5, count="bernoulli"), batch(), slots=4)
    assert made["masked_weights"].min() == 1
    counts = np.bincount(made["masked_positions"].ravel(), minlength=L)[1:]
    assert abs(counts - B * 4 / 39).max() < 5 * np.sqrt(B * 4 / 39)


def test_validation_shows_only_mask_and_predicts_in_every_row():
    masking = Masking(validation=True)
    made = run(masking, batch(real=4))
    used = made["masked_weights"] > 0
    assert used.sum(axis=1).min() == 1 and used.sum(axis=1).max() > 1
    assert (np.take_along_axis(made["input_ids"], made["masked_positions"], 1)[used] == 5).all()


def test_validation_masks_do_not_follow_the_runs_seed():
    given = batch(rows=8)
    features = MlmFeatures(Masking(validation=True))
    mask = features.map(Xlm, np.ones(100), L)
    first, other = (mask(given, Draws(seed, 3, 8)) for seed in (1, 2))
    np.testing.assert_array_equal(first["input_ids"], other["input_ids"])
    # As those of a run of seed 0.
    zero = run(features.masking, given, seed=0, step=3)
    for name, values in zero.items():
        np.testing.assert_array_equal(first[name], values, err_msg=name)
    mask = MlmFeatures().map(Xlm, np.ones(100), L)
    first, other = (mask(given, Draws(seed, 3, 8)) for seed in (1, 2))
    assert (first["input_ids"] != other["input_ids"]).any()


def test_masks_are_fresh_at_every_step_and_equal_for_an_equal_step():
    given = batch(rows=32)
    masks = [run(Masking(), given, step=step)["masked_positions"] for step in (0, 1, 0)]
    assert (masks[0] == masks[2]).all() and (masks[0] != masks[1]).mean() > 0.5


def test_a_row_of_pads_has_no_prediction():
    made = run(Masking(validation=True), batch(packs=np.zeros(L, int), rows=4))
    assert made["masked_weights"].sum() == 0
