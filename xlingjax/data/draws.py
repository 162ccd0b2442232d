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
PARTNERS = 13
"""Wrong partners of sentences."""


def seed_pair(seed: Any, purpose: int, number: Any) -> tf.Tensor:
    """The two seeds of one draw."""
    # SeqIO's seeds are tensors.
    if tf.is_tensor(seed):
        seed = tf.cast(seed, tf.int64)
    first = first_seed(seed, purpose)
    return tf.stack([tf.convert_to_tensor(first, tf.int64), tf.cast(number, tf.int64)])


def first_seed(seed: Any, purpose: int) -> Any:
    """The first of them."""
    # Room for 16 purposes; the seed is cut so that the product stays within 64 bits.
    return (seed % (1 << 48)) * 16 + purpose


@dataclass(frozen=True)
class Draws:
    """The draws for one batch: made for all `rows` of the global batch, of which `first .. first +
    count` are given."""

    seed: Any
    step: Any
    rows: int
    first: int = 0
    count: int | None = None

    def uniform(self, purpose: int, width: int, maxval: int | None = None) -> tf.Tensor:
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
