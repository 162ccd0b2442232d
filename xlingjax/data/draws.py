"""Stateless randomness of the input pipeline, in TensorFlow: each draw is a function of (seed,
purpose, step, row).

So a position in the data is a number, every host draws the same batch, and masks are fresh in every
epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

# Numbers are part of what a run draws: a new purpose goes behind, or resumed runs draw otherwise.
CHOICE, ORDER, SELECT, REPLACE, TOKENS, LANGUAGE, PLACES = range(7)
"""Purposes: which text a row comes from, the order of rows in an epoch, masked positions, their
replacement, ids, the language and the places of pseudo tokens."""
SPANS, STARTS, GAPS, SHUFFLE, DROP, BLANK = range(7, 13)
"""Purposes of noise: lengths of spans, where they start, where an empty one goes, order, loss, and
hiding of tokens."""


def seed_pair(seed: Any, purpose: int, number: Any) -> tf.Tensor:
    """The two seeds of one draw."""
    # SeqIO's seeds are tensors.
    if tf.is_tensor(seed):
        seed = tf.cast(seed, tf.int64)
    # Room for 16 purposes; the seed is cut so that the product stays within 64 bits.
    first = (seed % (1 << 48)) * 16 + purpose
    return tf.stack(
        [tf.convert_to_tensor(first, tf.int64), tf.cast(number, tf.int64)],
    )


@dataclass(frozen=True)
class Draws:
    """The draws for one batch: made for all `rows` of the global batch, of which `first .. first +
    count` are given."""

    seed: Any
    step: Any
    rows: int
    first: int = 0
    count: int | None = None

    def uniform(
        self,
        purpose: int,
        width: int,
        maxval: int | None = None,
    ) -> tf.Tensor:
        """[count, width]: float32 in [0, 1), or int32 in [0, maxval)."""
        dtype = tf.int32
        if maxval is None:
            dtype = tf.float32
            maxval = 1.0
        # Drawn for the whole batch by every host: what a row gets must not depend on how many hosts
        # there are. "philox" by name: the default is chosen by device.
        draw = tf.random.stateless_uniform(
            [self.rows, width],
            seed_pair(self.seed, purpose, self.step),
            maxval=maxval,
            dtype=dtype,
            alg="philox",
        )
        count = self.count
        if count is None:
            count = self.rows
        return draw[self.first : self.first + count]


_ROUND = 0x1E3779B97F4A7C15
"""Between the keys of two rounds: far apart, so that no round repeats another shifted."""


def _scramble(x: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """A hash of int64 [B] (multiplication wraps around; the shifts carry the high bits down)."""
    # Odd, so that a product loses no bit; written as signed numbers, since these are int64.
    first = tf.constant(-7046029254386353131, tf.int64)
    second = tf.constant(-4417276706812531889, tf.int64)
    x = (x + key) * first
    x = (x ^ tf.bitwise.right_shift(x, tf.constant(32, tf.int64))) * second
    return x ^ tf.bitwise.right_shift(x, tf.constant(29, tf.int64))


def permute(index: tf.Tensor, size: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """A random-looking permutation of 0 .. size-1 for every key, without a table. All int64 [B];
    index < size.

    A four-round Feistel network on the next even number of bits, applied until the result falls
    below `size`.
    """

    def too_few(half: tf.Tensor) -> tf.Tensor:
        return tf.bitwise.left_shift(tf.ones_like(half), 2 * half) < size

    (half,) = tf.while_loop(
        lambda half: tf.reduce_any(too_few(half)),
        lambda half: (tf.where(too_few(half), half + 1, half),),
        (tf.ones_like(size),),
    )
    # Two halves of equal width, so the network permutes at most four times `size` numbers.
    low_bits = tf.bitwise.left_shift(tf.ones_like(half), half) - 1

    def network(x: tf.Tensor) -> tf.Tensor:
        left = tf.bitwise.right_shift(x, half)
        right = x & low_bits
        for number in range(4):
            changed = left ^ (
                _scramble(right, key + number * _ROUND) & low_bits
            )
            left = right
            right = changed
        return tf.bitwise.left_shift(left, half) | right

    # What falls outside goes through again until it falls inside: that keeps it a permutation.
    (result,) = tf.while_loop(
        lambda x: tf.reduce_any(x >= size),
        lambda x: (tf.where(x >= size, network(x), x),),
        (network(index),),
    )
    return result
