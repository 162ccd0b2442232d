"""VECO's mBART (VECO §7): a masked text in, its masked words or its translation out."""

import numpy as np
import pytest

from tests.helpers import made
from tests.preprocessors.test_translation import examples
from xlingjax.preprocessors.mbart import MaskedTranslationFeatures, MaskedWordsFeatures
from xlingjax.preprocessors.xlm import Masking

BOS, EOS, PAD, MASK = (getattr(made.Xlmr, f"{name}_id") for name in ("bos", "eos", "pad", "mask"))
SPECIAL = made.Xlmr.special_ids
LENGTH = 24


def rows_of(features, **options):
    """[(the text, the source, what the decoder reads, its targets, which are paid)] of each
    row."""
    before, batch = made.batch(features, LENGTH, languages=(1,), **options)
    found = []
    for row in range(len(batch["pack_ids"])):
        text = before["pack_ids"][row] > 0
        used = batch["decoder_pack_ids"][row] > 0
        assert (batch["decoder_ids"][row][~used] == PAD).all()
        assert not batch["decoder_weights"][row][~used].any()
        assert {*batch["decoder_language_ids"][row][used]} == {1}
        np.testing.assert_array_equal(batch["pack_ids"][row], before["pack_ids"][row])
        np.testing.assert_array_equal(
            batch["decoder_position_ids"][row][used], np.arange(used.sum())
        )
        found.append(
            (
                before["input_ids"][row][text],
                batch["input_ids"][row][text],
                batch["decoder_ids"][row][used],
                batch["decoder_targets"][row][used],
                batch["decoder_weights"][row][used] > 0,
            )
        )
    return found


@pytest.mark.parametrize("rate", [0.15, 0.3])
def test_the_decoder_writes_the_words_that_the_source_hides_in_their_order(rate):
    masking = Masking(rate, mask=1.0, random=0.0)
    found = rows_of(MaskedWordsFeatures(masking, language_tokens=True), longest=6)
    assert len(found) > 5
    for text, source, read, targets, paid in found:
        hidden = source == MASK
        assert abs(hidden.sum() - rate * len(text)) < 1
        assert not {*text[hidden].tolist()} & SPECIAL
        np.testing.assert_array_equal(source[~hidden], text[~hidden])
        # Nothing but these words, each of which the decoder knows when it is behind it.
        np.testing.assert_array_equal(targets, [*text[hidden], EOS])
        np.testing.assert_array_equal(read, [made.Xlmr.size + 1, *text[hidden]])
        assert paid.all()


def test_pairs_are_translated_both_ways_from_a_masked_source():
    masking = Masking(0.25, mask=1.0, random=0.0)
    features = MaskedTranslationFeatures(masking=masking, packing=False)
    text, batch = made.batch(features, LENGTH, languages=(0, 1), columns=2 * LENGTH)
    found = examples(batch)
    assert {(language, target) for *_, language, target in found} == {(0, 1), (1, 0)}
    for row, (source, inputs, targets, *_) in enumerate(found):
        source = np.array(source)
        of_source = (text["pack_ids"][row] > 0) & (text["sides"][row] == 0)
        hidden = source == MASK
        whole = text["input_ids"][row][of_source]
        assert abs(hidden.sum() - min(0.25 * len(source), len(source) - 2)) < 1
        np.testing.assert_array_equal(source[~hidden], whole[~hidden])
        # The target hides nothing.
        of_target = (text["pack_ids"][row] > 0) & (text["sides"][row] == 1)
        assert targets == text["input_ids"][row][of_target][1:].tolist()
        assert inputs == [EOS, *targets[:-1]] and MASK not in targets
