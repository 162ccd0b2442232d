"""Which rows stand in which batch: every row once an epoch, shares held, places independent."""

import numpy as np
import pytest

from xlingjax.data.batches.loader import BLOCKS_TOGETHER, BatchOrder, Mix, RowOrder, finite_order

COUNTS = [7, 30, 12, 25, 18, 3, 40, 22, 9, 14]
SIZE = sum(COUNTS)


@pytest.mark.parametrize("counts", [[1], [50], [3, 0, 4], COUNTS])
def test_every_epoch_gives_every_row_once_in_another_order(counts):
    order = RowOrder(counts, seed=77)
    size = sum(counts)
    epochs = [order.rows(i * size, (i + 1) * size) for i in range(3)]
    for rows in epochs:
        assert sorted(rows.tolist()) == list(range(size))
    if size > 20:
        same = [(a == b).mean() for a, b in zip(epochs, epochs[1:], strict=False)]
        assert max(same) < 0.2 and (epochs[0] != RowOrder(counts, seed=78).rows(0, size)).any()


def test_rows_of_few_blocks_are_mixed_and_a_block_once_left_does_not_come_again():
    order = RowOrder(COUNTS, seed=77)
    for epoch in range(2):
        rows = order.rows(epoch * SIZE, (epoch + 1) * SIZE)
        block_of_row = np.searchsorted(np.cumsum(COUNTS), rows, side="right")
        places = {block: np.flatnonzero(block_of_row == block) for block in range(len(COUNTS))}
        for place in range(SIZE):
            open_now = [b for b, at in places.items() if at.min() <= place <= at.max()]
            assert len(open_now) <= BLOCKS_TOGETHER
        # The next row is seldom of the block that the last one was of.
        assert (np.diff(block_of_row) != 0).mean() > 0.4


def test_a_place_asked_for_alone_gives_the_row_that_it_gives_among_others():
    order = RowOrder(COUNTS, seed=77)
    rows = order.rows(0, 3 * SIZE)
    for begin, end in ((0, 1), (SIZE - 3, SIZE + 3), (2 * SIZE + 17, 2 * SIZE + 90)):
        assert RowOrder(COUNTS, seed=77).rows(begin, end).tolist() == rows[begin:end].tolist()
    plain = RowOrder(COUNTS, seed=77, shuffle=False)
    assert plain.rows(SIZE - 2, SIZE + 2).tolist() == [SIZE - 2, SIZE - 1, 0, 1]


def test_after_any_number_of_draws_each_text_has_had_its_share():
    shares = np.array([0.5, 0.3, 0.0, 0.15, 0.05])
    mix = Mix(shares)
    before = np.zeros(5, int)
    for draws in range(1, 3000):
        counts = np.array(mix.before(draws))
        assert counts.sum() == draws and (counts - before).min() == 0
        assert abs(counts - draws * shares).max() < len(shares)
        before = counts
    assert counts[2] == 0
    # Exact however far it is counted.
    far = np.array(mix.before(10**15), float)
    assert abs(far / 10**15 - shares).max() < 1e-9


@pytest.mark.parametrize("same_language", [True, False])
def test_batches_read_each_text_in_its_order_by_the_shares(same_language):
    sizes = [40, 25, 10]
    orders = tuple(RowOrder([size], seed) for seed, size in enumerate(sizes))
    batches = BatchOrder(orders, Mix([0.5, 0.3, 0.2]), 8, same_language)
    firsts = np.cumsum([0, *sizes])
    read = [[], [], []]
    for step in range(100):
        rows = batches[step]
        texts = np.searchsorted(firsts, rows, side="right") - 1
        assert rows.size == 8 and (not same_language or len({*texts.tolist()}) == 1)
        for row, text in zip(rows.tolist(), texts.tolist(), strict=True):
            read[text].append(row - firsts[text])
    for text, rows in enumerate(read):
        assert rows == orders[text].rows(0, len(rows)).tolist()
    assert [len(rows) for rows in read] == pytest.approx([400, 240, 160], abs=16)
    np.testing.assert_array_equal(
        batches[57], BatchOrder(orders, batches.mix, 8, same_language)[57]
    )


def test_a_finite_order_gives_every_text_its_epochs_and_fills_up():
    order = finite_order([5, 3], 4, same_language=True, epochs=2, seed=0, shuffle=False)
    rows = [order[step].tolist() for step in range(len(order))]
    assert rows == 2 * [[0, 1, 2, 3], [4, -1, -1, -1], [5, 6, 7, -1]]
    order = finite_order([5, 3], 4, same_language=False, epochs=2, seed=0, shuffle=True)
    for epoch in (0, 2):
        rows = np.concatenate([order[epoch], order[epoch + 1]])
        assert sorted(rows.tolist()) == list(range(8))
