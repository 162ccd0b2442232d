import numpy as np
import pytest

from tests.helpers import toy
from xlingjax.data.held_out_pairs import Pairs
from xlingjax.evaluation.attention_maps import CROSS, RECOVERY, SELF, maps_of
from xlingjax.evaluation.perplexity import pair_rows
from xlingjax.model.masks import bidirectional, own_side, partner

TEXTS = tuple(toy.sentences(12, seed=4, longest=7))
PAIRS = {code: Pairs(code, TEXTS, TEXTS[::-1]) for code in ("de", "fr")}
VOCABULARY = toy.ToyVocabulary("xlmr")
LENGTH = 24


@pytest.fixture(scope="module")
def model():
    return toy.model(cross_attention=True, word_recovery=True, vocab_size=VOCABULARY.size, layers=3)


@pytest.fixture(scope="module")
def rows():
    return pair_rows(PAIRS["de"], VOCABULARY, LENGTH, (0, 1), limit=2)


def maps(model, rows, **options):
    names = [("de", "en")] * len(rows["input_ids"])
    return maps_of(*model, VOCABULARY, rows, names, **options)


def wanted(model, rows, layer):
    """{use: [B, H, L, L]} by the passes that the papers describe, made here."""
    encoder, params = model
    # One text: positions run on; two: each opens with <s> and counts from 0.
    columns = np.arange(LENGTH) * (rows["pack_ids"] > 0)
    one = dict(rows, position_ids=columns.astype(np.int32))
    turn = (rows["sides"] == 1).argmax(axis=1)
    two = dict(rows, input_ids=rows["input_ids"].copy())
    two["input_ids"][np.arange(len(turn)), turn] = VOCABULARY.bos_id
    h_BLD = encoder.encode(params, two, own_side)
    memory = (h_BLD, partner)
    plugged_in = encoder.attention_weights(params, two, own_side, memory=memory)
    _, recovery = encoder.recover_words(params, two, partner)
    together = encoder.attention_weights(params, one, bidirectional)
    return {
        SELF: np.asarray(together["self-attention"][layer - 1]),
        CROSS: np.asarray(plugged_in["cross-attention"][layer - 1]),
        RECOVERY: np.asarray(recovery)[:, None],
    }


def test_maps_are_the_weights_of_the_passes(model, rows):
    want = wanted(model, rows, 2)
    found = maps(model, rows)
    assert [one["use"] for one in found] == [SELF, CROSS, RECOVERY] * 2
    for number, one in enumerate(found):
        row, use = number // 3, one["use"]
        count = (rows["pack_ids"][row] > 0).sum()
        shares = np.array(one["attention"])
        assert shares.shape == (count, count) and len(one["pieces"]) == count < LENGTH
        wanted_LL = want[use][row].mean(0)[:count, :count]
        np.testing.assert_allclose(shares, wanted_LL, atol=1e-4, err_msg=use)
        np.testing.assert_allclose(shares.sum(1), 1, atol=2e-3)
        assert (one["layer"], one["head"]) == ((None, None) if use == RECOVERY else (2, None))
        second, texts = one["second"], (TEXTS[row], TEXTS[::-1][row])
        bos, eos = VOCABULARY.pieces([VOCABULARY.bos_id, VOCABULARY.eos_id])
        opens = eos if use == SELF else bos
        assert one["pieces"] == [bos, *texts[0].split(), eos, opens, *texts[1].split(), eos]
        assert one["pieces"][second] == opens and second == len(texts[0].split()) + 2
        # What each side sees of itself: something, and across nothing.
        of_own = (shares[:second, :second], shares[second:, second:])
        assert all((block.max() > 0) == (use == SELF) for block in of_own)


@pytest.mark.parametrize("layer, head", [(1, 1), (3, 2)])
def test_a_layer_and_a_head(model, rows, layer, head):
    want = wanted(model, rows, layer)
    for number, one in enumerate(maps(model, rows, layer=layer, head=head)):
        use, row = one["use"], number // 3
        if use == RECOVERY:
            continue
        assert (one["layer"], one["head"]) == (layer, head)
        count = len(one["pieces"])
        shares = want[use][row, head - 1, :count, :count]
        np.testing.assert_allclose(one["attention"], shares, atol=1e-4)
