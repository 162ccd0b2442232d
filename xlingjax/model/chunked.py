"""`chunked`: attention in blocks of queries by XLA's own operations, for devices without a kernel.

The backward pass makes the scores of a block once more (Rabe and Staats 2021): no array of [L, S]
is kept, nor is there ever more of it than a block.
"""

import jax
import jax.numpy as jnp
from jax import lax

from xlingjax.model.layers import dropout
from xlingjax.model.masks import Fields, Mask

Array = jax.Array

BLOCK = 128
"""Queries at a time, at most."""
_LEAST = 32
"""In smaller blocks a device has too little to do at a time."""


def block_of(length: int) -> int:
    """Queries of a block: as many as divide the rows; 0: there is no such number."""
    blocks = [n for n in range(1, BLOCK + 1) if not length % n]
    if length > BLOCK and blocks[-1] < _LEAST:
        return 0
    return blocks[-1]


def require_blocks(length: int) -> str:
    """Why rows of such a length are not cut into blocks; "": they are."""
    if block_of(length):
        return ""
    longer = -(-length // BLOCK) * BLOCK
    return (
        f"rows that a block of {_LEAST} to {BLOCK} queries divides, not of {length} tokens; make"
        f" them {longer} long (LENGTH)"
    )


def attend(
    mask: Mask,
    rate: float,
    q_BLHK: Array,
    k_BSHK: Array,
    v_BSHK: Array,
    queries: Fields,
    keys: Fields,
    key: Array | None,
) -> Array:
    """[B, L, H, K] in the type of the values. queries, keys: of [B, L] and [B, S]."""
    rows, length, heads, size = q_BLHK.shape
    block = block_of(length)
    lowest = jnp.finfo(jnp.float32).min

    def in_blocks(array: Array) -> Array:
        """[blocks, B, block, ...]."""
        parted = array.reshape(rows, -1, block, *array.shape[2:])
        return jnp.moveaxis(parted, 1, 0)

    @jax.checkpoint
    def of_block(part, k_BSHK, v_BSHK):
        number, q_BQHK, fields_BQ = part
        # As the backend `xla`: queries are scaled, the softmax is in float32.
        s_BHQS = jnp.einsum(
            "BQHK,BSHK->BHQS",
            q_BQHK * size**-0.5,
            k_BSHK,
            preferred_element_type=jnp.float32,
        )
        allowed_BQS = mask(fields_BQ, keys, first=number * block)
        s_BHQS = jnp.where(allowed_BQS[:, None], s_BHQS, lowest)
        p_BHQS = jax.nn.softmax(s_BHQS, axis=-1).astype(v_BSHK.dtype)
        if key is not None:
            # Of each block another.
            own = jax.random.fold_in(key, number)
            p_BHQS = dropout(p_BHQS, rate, own)
        return jnp.einsum("BHQS,BSHK->BQHK", p_BHQS, v_BSHK)

    def step(_, part):
        return None, of_block(part, k_BSHK, v_BSHK)

    numbers = jnp.arange(length // block)
    parts = numbers, in_blocks(q_BLHK), jax.tree.map(in_blocks, queries)
    _, o_NBQHK = lax.scan(step, None, parts)
    return jnp.moveaxis(o_NBQHK, 0, 1).reshape(rows, length, heads, size)
