"""xFNP's hidden runs (XGLUE §4.2, §6.1) against a plain loop over examples, and their
distribution."""

import numpy as np
import pytest

from tests.helpers import made
from tests.helpers.made import Xlmr
from xlingjax.data.rows.draws import STARTS, Draws
from xlingjax.data.rows.plan import RowReader
from xlingjax.data.store.tokenise import Records, Tokens
from xlingjax.preprocessors.xglue import XfnpFeatures

BOS, EOS, PAD, MASK = Xlmr.bos_id, Xlmr.eos_id, Xlmr.pad_id, Xlmr.mask_id
SMALL = XfnpFeatures(block=10, span=3)


def make(features, length, seed=3, **options):
    """(rows as they stand in the text, the batch, the draw of every column)"""
    options = {"sentences": 300, "longest": 9, "document": 4, **options}
    before, batch = made.batch(features, length, languages=(1,), **options)
    return before, batch, Draws(seed, 0, len(batch["input_ids"])).uniform(STARTS, length)


def examples(fields):
    """(row, pack, its columns) of every example."""
    for row, packs in enumerate(fields["pack_ids"]):
        for pack in range(1, packs.max() + 1):
            yield row, pack, np.flatnonzero(packs == pack)


def reference(text, uniform, block, span):
    """[(column of the target, its place in its run)] of an example `<s> x </s>`, one uniform draw
    for each column."""
    found = []
    for begin in range(1, len(text), block):
        size = min(block, len(text) - begin)
        run = span * size // block
        start = begin + int(uniform[begin] * np.float32(size - run + 1))
        found += [(start + place, place) for place in range(run)]
    return found


@pytest.mark.parametrize("packing", [True, False])
@pytest.mark.parametrize(
    ("features", "length"), [(SMALL, 48), (XfnpFeatures(), 200)], ids=["10", "64"]
)
def test_runs_are_the_references_on_the_same_draws(features, length, packing):
    features = XfnpFeatures(features.block, features.span, packing=packing)
    many = {} if length < 100 else {"document": 15, "sentences": 1500}
    before, batch, uniform = make(features, length, **many)
    compared, several, columns = 0, 0, {row: [] for row in range(len(batch["pack_ids"]))}
    for row, pack, at in examples(before):
        text, positions = before["input_ids"][row, at], before["position_ids"][row, at]
        runs = reference(text, uniform[row, at], features.block, features.span)
        assert len(runs) == features.span * (len(text) - 1) // features.block
        to = batch["decoder_pack_ids"][row] == pack
        want = np.array(runs, int).reshape(-1, 2)
        np.testing.assert_array_equal(batch["decoder_targets"][row, to], text[want[:, 0]])
        np.testing.assert_array_equal(batch["run_offsets"][row, to], want[:, 1])
        # Where each target stands in the text, the decoder reads what stands before it, at its
        # position.
        np.testing.assert_array_equal(
            batch["decoder_position_ids"][row, to] + 1, positions[want[:, 0]]
        )
        read = text[want[:, 0] - 1]
        np.testing.assert_array_equal(
            batch["decoder_ids"][row, to], np.where(want[:, 0] == 1, EOS, read)
        )
        assert (batch["decoder_language_ids"][row, to] == 1).all() and text[0] == BOS
        columns[row] += at[want[:, 0]].tolist()
        compared, several = compared + len(want), several + (pack > 1)
    assert compared > 200 and (several > 10) == packing
    for row, hidden in columns.items():
        shown, text = batch["input_ids"][row], before["input_ids"][row]
        assert (np.delete(shown, hidden) == np.delete(text, hidden)).all()  # all else is shown
        used = batch["decoder_weights"][row] > 0
        assert used.sum() == len(hidden) and (np.diff(used.astype(int)) <= 0).all()
        for name in ("decoder_pack_ids", "decoder_targets", "decoder_position_ids", "run_offsets"):
            assert not batch[name][row, ~used].any()
        assert (batch["decoder_ids"][row, ~used] == PAD).all()
    for name in ("position_ids", "language_ids", "pack_ids"):
        np.testing.assert_array_equal(batch[name], before[name])


def test_every_full_block_hides_nine_and_starts_are_uniform():
    """Chi-square over many rows of one full block, and the last start as likely as the first."""
    features, rows = XfnpFeatures(), 6000
    ids, rng = np.arange(64) % 80 + 14, np.random.default_rng(0)
    ids[rng.permutation(64)[:6]] = EOS  # sentences end in runs as elsewhere
    ids[-1] = EOS
    text = Records(("de",), (Tokens(ids.astype(np.uint16), np.array([64], np.int32)),))
    plan = features.rows(text, 65, Xlmr)
    reader = RowReader.of_records(text, plan, (0,), 65, Xlmr)
    batch = features.map(Xlmr, None, 65)(reader(np.zeros(rows, np.int64)), Draws(5, 1, rows))
    positions, offsets = (
        np.asarray(batch[name]) for name in ("decoder_position_ids", "run_offsets")
    )
    assert positions.shape == (rows, 9) and (np.asarray(batch["decoder_weights"]) == 1).all()
    assert (np.diff(positions, axis=1) == 1).all() and (offsets == np.arange(9)).all()
    counts = np.bincount(positions[:, 0], minlength=56)
    assert counts.size == 56 and counts.min() > 0  # the run may begin and end the block
    chi_square = ((counts - rows / 56) ** 2 / (rows / 56)).sum()
    assert 25 < chi_square < 100  # 55 degrees of freedom: 1 in 10^4 on either side
    targets, columns = np.asarray(batch["decoder_targets"]), positions + 1
    shown = np.take_along_axis(np.asarray(batch["input_ids"]), columns, axis=1)
    masked, kept = (shown == MASK).mean(), (shown == targets).mean()
    # A random piece is the same one in a hundred times.
    assert 0.79 < masked < 0.81 and 0.095 < kept < 0.107
    random = shown[(shown != MASK) & (shown != targets)]
    assert not np.isin(random, sorted(Xlmr.special_ids)).any() and len({*random.tolist()}) > 70
    both = (shown[:, 1:] == MASK) & (shown[:, :-1] == MASK)
    assert 0.62 < both.mean() < 0.66  # token by token
    assert (targets == EOS).any()
