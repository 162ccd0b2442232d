"""`chunked`: attention in blocks of queries by XLA's own operations, for devices without a kernel.

The backward pass makes the scores of a block once more (Rabe and Staats 2021): no scores of [L, S]
are kept, nor are there ever more of them than a block. Gradients of keys and values are summed over
blocks in the type of the keys.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from xlingjax.model.layers import Key, dropout
from xlingjax.model.masks import Fields, Mask

Array = jax.Array

BLOCK = 128  # queries at a time, at most
LEAST = 32  # in smaller blocks a device has too little to do at a time


def block_of(length: int) -> int:
    """Queries of a block: as many as divide the rows; 0: there is no such number."""
    blocks = [n for n in range(1, BLOCK + 1) if not length % n]
    if length > BLOCK and blocks[-1] < LEAST:
        return 0
    return blocks[-1]


def in_blocks(
    compute: Callable[[Array, Any, Any, Array | None], Array],
    queries: Any,
    whole: Any,
    key: Key,
) -> Array:
    """[B, L, ...], of each block `compute(first, part, whole, key)`, [B, Q, ...].

    queries: a tree of arrays [B, L, ...], of which a block has its `part`, [B, Q, ...], from query
    `first` on. whole: a tree of what every block reads. key: of dropout, of each block another.
    """
    rows, length = jax.tree.leaves(queries)[0].shape[:2]
    block = block_of(length)

    def cut(array: Array) -> Array:
        """[blocks, B, Q, ...]."""
        parted = array.reshape(rows, -1, block, *array.shape[2:])
        return jnp.moveaxis(parted, 1, 0)

    # What a block computes is not kept: the backward pass computes it again.
    @jax.checkpoint
    def of_block(number, part, whole):
        # Without the barrier JAX would make the masks, which are the same in every layer, of all
        # blocks ahead, and keep them once for each head.
        number, part, whole = lax.optimization_barrier((number, part, whole))
        own_key = None
        if key is not None:
            own_key = jax.random.fold_in(key, number)
        return compute(number * block, part, whole, own_key)

    def step(_, numbered):
        number, part = numbered
        return None, of_block(number, part, whole)

    numbers = jnp.arange(length // block)
    _, o_NBQ = lax.scan(step, None, (numbers, jax.tree.map(cut, queries)))
    return jnp.moveaxis(o_NBQ, 0, 1).reshape(rows, length, *o_NBQ.shape[3:])


def apart(s_BHQS: Array) -> Array:
    """The scores, and in the backward pass their gradient, computed before anything that reads
    them.

    Else the compiler of TPUs (libtpu 0.0.42) fuses three matrix products, one within the other, and
    dies of it: its stack overflows.
    """
    return lax.optimization_barrier(s_BHQS)


def attend(
    score: Callable[[Any, Any], Array],
    mask: Mask,
    rate: float,
    part: Any,
    whole: Any,
    v_BSHK: Array,
    queries: Fields,
    keys: Fields,
    key: Key,
) -> Array:
    """[B, L, H, K] in the type of the values. score: float32 [B, H, Q, S] of what is of a block of
    queries and of what every block reads (`in_blocks`). queries, keys: of [B, L] and [B, S]."""

    def of_block(first, part, whole, key):
        (part, fields_BQ), (whole, v_BSHK, keys) = part, whole
        s_BHQS = apart(score(part, whole))
        allowed_BQS = mask(fields_BQ, keys)
        s_BHQS = jnp.where(allowed_BQS[:, None], s_BHQS, jnp.finfo(jnp.float32).min)
        p_BHQS = jax.nn.softmax(s_BHQS, axis=-1).astype(v_BSHK.dtype)
        p_BHQS = dropout(p_BHQS, rate, key)
        return jnp.einsum("BHQS,BSHK->BQHK", p_BHQS, v_BSHK)

    return in_blocks(of_block, (part, queries), (whole, v_BSHK, keys), key)
