"""Row plans against rows written out by hand in Python lists."""

import numpy as np
import pytest

from tests.helpers.plans import BOS, EOS, PAD, read, side
from xlingjax.data.rows.plan import PairPreprocessor, first_fit, stream_rows
from xlingjax.data.store.tokenise import Records


@pytest.fixture
def text():
    return Records(("de",), (side([10, 11], [], [12], [13, 14, 15], [16]),))


def test_streams_concatenate_ended_sentences_and_keep_the_rest(text):
    stream = [10, 11, EOS, 12, EOS, 13, 14, 15, EOS, 16, EOS]
    rows = stream_rows(text, 4)
    assert rows.count == 3 and rows.sizes == {"sentences": 4, "tokens": 11, "rows": 3}
    got = read(text, rows, 4, [2, 0, -1, 1], languages=(7,))
    assert got["input_ids"] == [[*stream[8:], PAD], stream[:4], [PAD] * 4, stream[4:8]]
    assert got["position_ids"] == [[0, 1, 2, 0], [0, 1, 2, 3], [0] * 4, [0, 1, 2, 3]]
    assert got["pack_ids"] == [[1, 1, 1, 0], [1] * 4, [0] * 4, [1] * 4]
    assert got["language_ids"] == [[7, 7, 7, 0], [7] * 4, [0] * 4, [7] * 4]
    assert got["sides"] == [[0] * 4] * 4


def test_xlmr_streams_begin_every_chunk_with_bos_and_lose_no_token(text):
    rows = stream_rows(text, 4, bos=True)
    got = read(text, rows, 4, [0, 1, 2, 3], bos=BOS)
    assert got["input_ids"] == [
        [BOS, 10, 11, EOS], [BOS, 12, EOS, 13], [BOS, 14, 15, EOS], [BOS, 16, EOS, PAD],
    ]  # fmt: skip


def test_documents_of_a_row_are_packs_with_positions_of_their_own(text):
    """The same tokens; one document ends within a row, with and without a `<s>` before it."""
    got = read(text, stream_rows(text, 8, documents=True), 8, [0, 1])
    assert got["input_ids"] == read(text, stream_rows(text, 8), 8, [0, 1])["input_ids"]
    assert got["pack_ids"] == [[1] * 3 + [2] * 5, [1] * 3 + [0] * 5]
    assert got["position_ids"] == [[0, 1, 2, 0, 1, 2, 3, 4], [0, 1, 2] + [0] * 5]
    got = read(text, stream_rows(text, 4, bos=True, documents=True), 4, [0, 1], bos=BOS)
    assert got["input_ids"] == [[BOS, 10, 11, EOS], [BOS, 12, EOS, 13]]
    got = read(text, stream_rows(text, 6, bos=True, documents=True), 6, [0, 1], bos=BOS)
    assert got["input_ids"] == [[BOS, 10, 11, EOS, 12, EOS], [BOS, 13, 14, 15, EOS, 16]]
    assert got["pack_ids"] == [[1, 1, 1, 1, 2, 2], [1] * 6]


@pytest.fixture
def pairs():
    german = side([10, 11], [], [12], [13, 14, 15], [16, 17, 18, 19])
    english = side([20], [21], [22, 23], [24], [25])
    return Records(("de", "en"), (german, english))


def examples(fields, row):
    """{first piece: the example's columns} of one row, per field."""
    packs = np.array(fields["pack_ids"][row])
    found = {}
    for number in range(1, packs.max() + 1):
        where = np.flatnonzero(packs == number)
        assert (np.diff(where) == 1).all()
        example = {name: [values[row][i] for i in where] for name, values in fields.items()}
        found[example["input_ids"][1]] = example
    return found


def pair_rows(pairs, length, both_orders=True, **options):
    made = type("Pairs", (PairPreprocessor,), {"both_orders": both_orders, **options})
    return made().rows(pairs, length, None)


def test_pairs_have_four_separators_reset_positions_and_two_languages(pairs):
    rows = pair_rows(pairs, 12, both_orders=False, packing=False, max_pieces=3)
    assert rows.count == rows.sentences == 3  # the blank and the four-piece side are gone
    got = read(pairs, rows, 12, [0, 1, 2], languages=(5, 3))
    found = {k: v for row in range(3) for k, v in examples(got, row).items()}
    assert sorted(found) == [10, 12, 13]
    long = found[13]
    assert long["input_ids"] == [EOS, 13, 14, 15, EOS, EOS, 24, EOS]
    assert long["position_ids"] == [0, 1, 2, 3, 4, 0, 1, 2]
    assert long["language_ids"] == [5] * 5 + [3] * 3 and long["sides"] == [0] * 5 + [1] * 3
    # The y of a shorter x has the same positions: they do not depend on x.
    assert found[12]["position_ids"] == [0, 1, 2, 0, 1, 2, 3]
    assert pair_rows(pairs, 7, both_orders=False).sentences == 2  # |x| + |y| + 4 <= 7


def test_positions_run_on_when_not_reset(pairs):
    rows = pair_rows(
        pairs,
        10,
        both_orders=False,
        packing=False,
        reset_positions=False,
    )
    got = read(pairs, rows, 10, range(rows.count))
    found = {k: v for row in range(rows.count) for k, v in examples(got, row).items()}
    assert found[13]["position_ids"] == list(range(8))


def test_xlmr_pairs_begin_with_bos_only_once(pairs):
    rows = pair_rows(pairs, 10, both_orders=False, packing=False)
    got = read(pairs, rows, 10, range(rows.count), bos=BOS)
    found = {k: v for row in range(rows.count) for k, v in examples(got, row).items()}
    assert found[13]["input_ids"] == [BOS, 13, 14, 15, EOS, EOS, 24, EOS]


def test_packed_pairs_restart_and_keep_to_themselves(pairs):
    rows = pair_rows(pairs, 24, both_orders=False)
    got = read(pairs, rows, 24, range(rows.count))
    found = [examples(got, row) for row in range(rows.count)]
    assert sorted(k for row in found for k in row) == [10, 12, 13, 16] and rows.count == 2
    for row in found:
        for example in row.values():
            assert example["position_ids"][0] == 0 and example["sides"] == sorted(example["sides"])
    assert {k: v["input_ids"] for row in found for k, v in row.items()}[16] == [
        EOS,
        16,
        17,
        18,
        19,
        EOS,
        EOS,
        25,
        EOS,
    ]


def test_both_orders_give_each_pair_twice_with_its_languages(pairs):
    rows = pair_rows(pairs, 10, packing=False)
    assert rows.count == 8 and rows.sizes["rows"] == 4 and rows.sizes["sentences"] == 4
    got = read(pairs, rows, 10, range(8))
    found = {k: v for row in range(8) for k, v in examples(got, row).items()}
    assert sorted(found) == [10, 12, 13, 16, 20, 22, 24, 25]
    assert found[24]["input_ids"] == [EOS, 24, EOS, EOS, 13, 14, 15, EOS]
    assert found[24]["language_ids"] == [1, 1, 1, 0, 0, 0, 0, 0] and found[24]["sides"] == [
        0,
        0,
        0,
        1,
        1,
        1,
        1,
        1,
    ]


def test_shuffled_pairs_keep_the_sentences_and_break_every_pair(pairs):
    rows = pair_rows(pairs, 16, both_orders=False, packing=False, shuffled_pairs=True)
    got = read(pairs, rows, 16, range(rows.count))
    partner = {10: 20, 12: 22, 13: 24, 16: 25}
    assert rows.count == 4
    seconds = []
    for row in range(4):
        ((first, example),) = examples(got, row).items()
        second = example["input_ids"][example["sides"].index(1) + 1]
        assert second != partner[first]
        seconds.append(second)
    assert sorted(seconds) == sorted(partner.values())


def test_first_fit_uses_the_first_row_with_room():
    assert first_fit(np.array([5, 6, 4, 3, 2, 7]), 10).tolist() == [0, 1, 0, 1, 2, 2]
    lengths = np.random.default_rng(0).integers(1, 60, 5000)
    rows = first_fit(lengths, 128)
    load = np.bincount(rows, lengths)
    assert load.max() <= 128 and load.mean() > 0.97 * 128 and load.sum() == lengths.sum()
