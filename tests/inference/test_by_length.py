"""Rows of about one length together, padded to it: what comes out is in the order of the rows, and
as if all were padded alike."""

import numpy as np
import pytest

from xlingjax.inference import forward

LENGTH = 48


def rows(count, texts=1, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, LENGTH + 1, (count, texts))
    lengths[0] = 1
    lengths[1] = LENGTH
    valid = np.arange(LENGTH) < lengths[..., None]
    ids = rng.integers(1, 99, valid.shape) * valid
    shape = (count, texts * LENGTH)
    return {
        "input_ids": ids.reshape(shape).astype(np.int32),
        "pack_ids": valid.reshape(shape).astype(np.int32),
        "labels": np.arange(count, dtype=np.int32),
    }


class Run:
    """Sums of each text and of the row's number, or twice each token; the widths that it saw."""

    def __init__(self, texts, of_tokens):
        self.texts, self.of_tokens, self.widths = texts, of_tokens, []

    def __call__(self, params, batch):
        self.widths.append(batch["input_ids"].shape[1] // self.texts)
        assert len(batch["input_ids"]) == 8  # filled up
        if self.of_tokens:
            return np.stack([2 * batch["input_ids"], batch["pack_ids"]], axis=-1)
        by_text = batch["input_ids"].reshape(8, self.texts, -1).sum(axis=-1)
        return by_text + batch["labels"][:, None]


@pytest.mark.parametrize("texts", [1, 2])
@pytest.mark.parametrize("of_tokens", [False, True])
def test_what_comes_out_is_in_order_and_the_same(texts, of_tokens):
    made = rows(77, texts)
    alike, grouped = Run(texts, of_tokens), Run(texts, of_tokens)
    expected = forward.by_row(alike, None, made, 8)
    found = forward.by_length(grouped, None, made, 8, texts=texts, of_tokens=of_tokens)
    np.testing.assert_array_equal(found, expected)
    assert sorted(grouped.widths) == grouped.widths and grouped.widths[-1] == LENGTH
    assert sum(grouped.widths) < sum(alike.widths) and {*grouped.widths} <= {16, 32, 48}


def test_a_few_rows_are_all_padded_alike():
    run = Run(1, False)
    forward.by_length(run, None, rows(63), 8)
    assert {*run.widths} == {LENGTH}
