"""Rows without their padding: what is taken is what was made."""

import numpy as np
import pytest

from xlingjax.data.features import FIELDS
from xlingjax.data.row_lengths import padded_length, row_lengths
from xlingjax.data.rows.ragged import RaggedRows

LENGTH = 6


def rows(lengths, texts=1, seed=0):
    """Rows [N, texts * LENGTH] as preprocessors make them, of texts of these lengths."""
    rng = np.random.default_rng(seed)
    used = np.array(lengths).reshape(-1, 1)
    columns = np.arange(LENGTH)
    valid = columns < used
    turn = rng.integers(0, LENGTH + 1, used.shape)
    again = np.where(columns >= np.maximum(turn, 1), np.maximum(turn, 1), 0)
    made = {
        "input_ids": np.where(valid, rng.integers(3, 250_000, valid.shape), 1),
        "position_ids": (columns - again) * valid,
        "pack_ids": valid,
        "sides": valid & (columns >= turn),
        "tag_labels": rng.integers(0, 300, valid.shape) * valid,
        "tag_weights": rng.integers(0, 2, valid.shape) * valid,
    }
    count = len(used) // texts
    found = {
        name: values.reshape(count, texts * LENGTH).astype(FIELDS[name].dtype)
        for name, values in made.items()
    }
    found["labels"] = rng.integers(0, 9, count).astype(np.int32)
    found["example_weights"] = rng.integers(0, 2, count).astype(np.float32)
    return found


def assert_equal(found, expected):
    assert {*found} == {*expected, "language_ids"}
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
        assert found[name].dtype == FIELDS[name].dtype


@pytest.mark.parametrize("texts", [1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_rows_come_back_as_they_were(seed, texts):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, rng.integers(2, LENGTH + 2), 2 * rng.integers(1, 9)).tolist()
    made = rows(lengths, texts, seed)
    ragged = RaggedRows.of(made, LENGTH, pad_id=1)
    everything = np.arange(len(ragged))
    found = ragged.take(everything, (7, 4)[:texts])
    assert_equal(found, made)
    by_text = found["language_ids"].reshape(-1, texts, LENGTH)
    for text in range(texts):
        assert {*by_text[:, text][by_text[:, text] > 0]} <= {(7, 4)[text]}
    assert (found["language_ids"] > 0).tolist() == (made["pack_ids"] > 0).tolist()
    # In another order.
    backwards = everything[::-1]
    found = ragged.take(backwards, (7, 4)[:texts])
    for name, values in made.items():
        np.testing.assert_array_equal(found[name], values[backwards], err_msg=name)


def test_parts_of_rows_are_one_behind_the_other():
    parts = [rows([2, 3], seed=1), rows([6, 1, 4], seed=2)]
    ragged = RaggedRows.joined([RaggedRows.of(one, LENGTH, pad_id=1) for one in parts])
    assert len(ragged) == 5 and ragged.sizes.tolist() == [2, 3, 6, 1, 4]
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    assert_equal(ragged.take(np.arange(5), (0,)), whole)


@pytest.mark.parametrize(
    ("length", "lengths"),
    [
        (128, (16, 32, 48, 64, 80, 96, 112, 128)),
        (384, (48, 96, 144, 192, 240, 288, 336, 384)),
        (100, (16, 32, 48, 64, 80, 96, 100)),
        (24, (16, 24)),
        (8, (8,)),
    ],
)
def test_a_few_lengths(length, lengths):
    assert row_lengths(length) == lengths
    for tokens in range(1, length + 1):
        assert padded_length(tokens, length) == min(one for one in lengths if one >= tokens)
