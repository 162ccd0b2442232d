import math
from collections import Counter

import numpy as np
import pytest

from tests.helpers import made
from xlingjax.errors import UserError
from xlingjax.preprocessors.ernie_m import BtmlmFeatures, CamlmFeatures

MASK, PAD = made.Xlmr.mask_id, made.Xlmr.pad_id


@pytest.mark.parametrize("packing", [True, False])
def test_masks_in_place(packing):
    before, after = made.batch(CamlmFeatures(packing=packing))
    np.testing.assert_array_equal(after["is_mask"] > 0, after["input_ids"] == MASK)
    for row, (ids, sides, packs) in enumerate(
        zip(before["input_ids"], before["sides"], before["pack_ids"], strict=True)
    ):
        chosen = made.slots(after, row)
        assert sorted(c for c, _ in chosen) == np.flatnonzero(after["is_mask"][row]).tolist()
        assert all(ids[c] == target for c, target in chosen)
        for side in (0, 1):
            tokens = ((packs > 0) & (sides == side)).sum()
            assert abs(len(made.slots(after, row, side)) - 0.15 * tokens) < 1
            assert all(sides[c] == side for c, _ in made.slots(after, row, side))
        for pack in range(1, packs.max() + 1):
            columns = np.flatnonzero(packs == pack)
            # Over both sides.
            assert before["position_ids"][row, columns].tolist() == list(range(len(columns)))
            opens = [columns[sides[columns] == side][0] for side in (0, 1)]
            # <s> x </s> </s> y </s>.
            assert ids[opens].tolist() == [made.Xlmr.bos_id, made.Xlmr.eos_id]


def test_masks_in_slots_stand_behind_whole_sentences():
    features = CamlmFeatures(layout="slots")
    before, after = made.batch(features)
    text = features.text_length(48)
    assert text < 48 and features.slots(48) == after["masked_weights"].shape[1]
    np.testing.assert_array_equal(after["input_ids"][:, :text], before["input_ids"][:, :text])
    assert not (before["pack_ids"][:, text:]).any()
    seen = 0
    for row in range(len(after["pack_ids"])):
        hidden = []
        for half in (0, 1):
            for column, target in made.slots(after, row, half):
                assert (
                    column >= text
                    and after["input_ids"][row, column] == MASK
                    and after["is_mask"][row, column]
                )
                where = {
                    name: after[name][row, column]
                    for name in ("position_ids", "pack_ids", "sides", "language_ids")
                }
                assert where["sides"] == half
                same = [after[name][row, :text] == value for name, value in where.items()]
                # The column of the word that it hides.
                (word,) = np.flatnonzero(np.logical_and.reduce(same))
                assert after["input_ids"][row, word] == target
                hidden.append(word)
        assert len(set(hidden)) == len(hidden)
        others = np.setdiff1d(np.arange(text, 48), [c for c, _ in made.slots(after, row)])
        assert (after["input_ids"][row, others] == PAD).all() and not after["pack_ids"][
            row, others
        ].any()
        seen += len(hidden)
    assert seen > 10 and after["is_mask"].sum() == seen


TARGETS = ((0, 0.1), (1, 0.3), (2, 0.6))


@pytest.mark.parametrize("placement", ["behind", "scattered"])
@pytest.mark.parametrize("reset", [True, False])
def test_placeholders_stand_behind_the_text(reset, placement):
    features = BtmlmFeatures(targets=TARGETS, reset_positions=reset, placement=placement)
    before, after = made.batch(features, languages=(1,), document=1000)
    text = features.text_length(48)
    for row in range(len(after["pack_ids"])):
        tokens = int((before["pack_ids"][row, :text] > 0).sum())
        columns = after["pseudo_positions"][row][after["pseudo_weights"][row] > 0]
        assert columns.tolist() == list(range(text, text + math.ceil(0.15 * tokens - 1e-4)))
        assert (after["input_ids"][row, columns] == MASK).all() and after["is_mask"][
            row
        ].sum() == len(columns)
        offsets = after["position_ids"][row, columns] - (0 if reset else tokens)
        if placement == "behind":  # m_{s+1} ... m_{s+p}
            assert offsets.tolist() == list(range(len(columns)))
        assert (np.diff(offsets) > 0).all() and offsets.min() >= 0 and offsets.max() < tokens
        assert after["position_ids"][row].max() < features.positions(48)
        (language,) = set(after["language_ids"][row, columns].tolist())
        assert language in (0, 2)  # never its own
        assert (after["sides"][row, columns] == 1).all() and (
            after["pack_ids"][row, columns] == 1
        ).all()
        whole = after["original_ids"][row]
        np.testing.assert_array_equal(whole[:text], before["input_ids"][row, :text])
        np.testing.assert_array_equal(whole[text:], after["input_ids"][row, text:])
        chosen = made.slots(after, row)
        assert abs(len(chosen) - 0.15 * tokens) < 1
        assert all(c < text and whole[c] == target for c, target in chosen)
    if placement == "scattered":  # not the first places each time
        assert len(np.unique(after["position_ids"][:, text:])) > 8


def test_target_languages_are_drawn_by_their_shares():
    drawn = Counter()
    for step in range(20):
        _, after = made.batch(BtmlmFeatures(targets=TARGETS), languages=(1,), step=step)
        drawn.update(after["language_ids"][after["is_mask"] > 0].tolist())
    total = drawn.total()
    assert abs(drawn[2] / total - 6 / 7) < 0.1 and drawn[0] + drawn[2] == total


def test_btmlm_needs_another_language():
    with pytest.raises(UserError, match="at least two languages"):
        made.batch(BtmlmFeatures(targets=((0, 1.0),)))
    with pytest.raises(UserError, match="above 0 and below 1"):
        BtmlmFeatures(proportion=1.5)
    with pytest.raises(UserError, match="placement='front': 'behind' or 'scattered' is needed"):
        BtmlmFeatures(placement="front")
