import numpy as np
import pytest
import tensorflow as tf

from xlingjax.data.draws import CHOICE, SELECT, Draws, permute


def permuted(size, key):
    sizes = tf.fill([size], tf.constant(size, tf.int64))
    return permute(
        tf.range(size, dtype=tf.int64), sizes, tf.fill([size], tf.constant(key, tf.int64))
    ).numpy()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097])
def test_permute_is_a_permutation(size):
    assert sorted(permuted(size, 5).tolist()) == list(range(size))


def test_keys_give_different_orders_without_fixed_structure():
    orders = np.stack([permuted(1000, key) for key in range(20)])
    identity = np.arange(1000)
    for order in orders:
        assert (order == identity).sum() < 8 and (np.diff(order) == 1).sum() < 8
        assert abs(np.corrcoef(order, identity)[0, 1]) < 0.12
    assert (orders[0] == orders[1]).sum() < 8
    # Over keys, element 0 lands all over.
    assert len({int(permuted(50, key)[0]) for key in range(200)}) > 45


def test_sizes_may_differ_within_a_call():
    index = tf.constant([0, 1, 2, 0, 1, 2, 3, 4], tf.int64)
    size = tf.constant([3] * 3 + [5] * 5, tf.int64)
    got = permute(index, size, tf.fill([8], tf.constant(9, tf.int64))).numpy()
    assert sorted(got[:3]) == [0, 1, 2] and sorted(got[3:]) == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(got[:3], permuted(3, 9))


def test_a_share_of_the_rows_sees_the_draws_of_the_whole():
    whole = Draws(3, 7, 8).uniform(SELECT, 5).numpy()
    part = Draws(3, 7, 8, first=2, count=4).uniform(SELECT, 5).numpy()
    np.testing.assert_array_equal(part, whole[2:6])
    for other in (
        Draws(4, 7, 8).uniform(SELECT, 5),
        Draws(3, 8, 8).uniform(SELECT, 5),
        Draws(3, 7, 8).uniform(CHOICE, 5),
    ):
        assert not np.isin(other.numpy(), whole).any()
    integers = Draws(3, 7, 1000).uniform(SELECT, 2, maxval=5).numpy()
    assert integers.min() == 0 and integers.max() == 4 and integers.dtype == np.int32
