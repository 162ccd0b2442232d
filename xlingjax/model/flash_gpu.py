"""`flash` on NVIDIA GPUs: the same attention in blocks of keys too, in kernels of Triton.

A multiprocessor has room for a block of scores, so the softmax goes over blocks of keys and keeps
their largest score and sum (Dao et al. 2022, algorithm 1); keys and queries get their gradients in
a kernel each, since calls run at the same time and cannot add to one place. Masks, dropout and the
orientation of scores, [S, L], are those of `flash.py`.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from xlingjax.model.flash import (
    NEVER,
    ROWS,
    Kernel,
    Place,
    contracted,
    cost,
    kept,
    product,
    sides,
)

Array = jax.Array

BLOCK = 64
"""Queries, and keys, at a time."""
_BLIND = 5
"""The place among the fields of queries of: sees nothing by its mask, so its own column."""


def with_blind(kernel_mask, q_fields, k_fields, queries_B8L: Array) -> Array:
    """The fields of queries and which of them see nothing: over all keys, which no block has."""
    k_B1S = jax.tree.map(lambda a: a[..., None, :], k_fields)
    rows, _, length = queries_B8L.shape

    def sees(q_fields):
        q_BL1 = jax.tree.map(lambda a: a[..., :, None], q_fields)
        sees_BL = kernel_mask.allow(q_BL1, k_B1S).any(-1)
        return jnp.broadcast_to(sees_BL, (rows, BLOCK))

    # Block by block: at once XLA may store it as [L, S].
    blocks = jax.tree.map(
        lambda a: jnp.swapaxes(a.reshape(rows, -1, BLOCK), 0, 1),
        q_fields,
    )
    sees_IBL = jax.lax.map(sees, blocks)
    sees_BL = jnp.swapaxes(sees_IBL, 0, 1).reshape(rows, length)
    blind_BL = (~sees_BL).astype(jnp.int32)
    return queries_B8L.at[:, _BLIND].set(blind_BL)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(kernel: Kernel, q, k, v, queries, keys, seeds) -> Array:
    """[B, H, L, K]; arguments as of `flash.flash`, queries by `with_blind`."""
    return _forward(kernel, q, k, v, queries, keys, seeds)[0]


def _attend_forward(kernel, q, k, v, queries, keys, seeds):
    o, sums = _forward(kernel, q, k, v, queries, keys, seeds)
    return o, (q, k, v, queries, keys, seeds, o, sums)


def _attend_backward(kernel, residuals, do):
    q, k, v, queries, keys, seeds, o, sums = residuals
    rows, heads = q.shape[:2]
    # What the softmax takes away: of each query, the sum over its keys.
    away = jnp.sum(do.astype(jnp.float32) * o.astype(jnp.float32), axis=-1)
    away = away[:, :, None]
    given = (q, k, v, queries, keys, seeds, do, sums, away)
    dq = _call(
        _queries_kernel,
        kernel,
        jax.ShapeDtypeStruct(q.shape, q.dtype),
        (rows, heads, kernel.length // BLOCK),
        _block_of(kernel),
        of_queries=True,
        products=3,
        name="flash_queries",
    )(*given)
    dk, dv = _call(
        _keys_kernel,
        kernel,
        (
            jax.ShapeDtypeStruct(k.shape, k.dtype),
            jax.ShapeDtypeStruct(v.shape, v.dtype),
        ),
        (rows, heads, kernel.keys // BLOCK),
        (_block_of(kernel), _block_of(kernel)),
        of_queries=False,
        products=4,
        name="flash_keys",
    )(*given)
    return dq, dk, dv, None, None, None


attend.defvjp(_attend_forward, _attend_backward)


def _forward(kernel, q, k, v, queries, keys, seeds):
    rows, heads = q.shape[:2]
    sums = pl.BlockSpec((None, None, 1, BLOCK), lambda b, h, i: (b, h, 0, i))
    return _call(
        _forward_kernel,
        kernel,
        (
            jax.ShapeDtypeStruct(q.shape, v.dtype),
            jax.ShapeDtypeStruct((rows, heads, 1, kernel.length), jnp.float32),
        ),
        (rows, heads, kernel.length // BLOCK),
        (_block_of(kernel), sums),
        of_queries=True,
        products=2,
        name="flash_forward",
    )(q, k, v, queries, keys, seeds)


# ---- which part of an array a call of a kernel sees; the grid: row, head, block ------------------


def _call(
    run,
    kernel,
    out_shape,
    grid,
    out_specs,
    *,
    of_queries,
    products,
    name,
):
    """of_queries: a call has a block of queries and all keys, else a block of keys and all
    queries."""
    tall = _whole(kernel.length, kernel.size)
    wide = _whole(kernel.keys, kernel.size)
    query = tall
    key = _block_of(kernel)
    of_query = pl.BlockSpec(
        (None, ROWS, kernel.length),
        lambda b, h, i: (b, 0, 0),
    )
    of_key = pl.BlockSpec((None, BLOCK, ROWS), lambda b, h, i: (b, i, 0))
    row = pl.BlockSpec(
        (None, None, 1, kernel.length),
        lambda b, h, i: (b, h, 0, 0),
    )
    if of_queries:
        query = _block_of(kernel)
        key = wide
        of_query = pl.BlockSpec((None, ROWS, BLOCK), lambda b, h, i: (b, 0, i))
        of_key = pl.BlockSpec(
            (None, kernel.keys, ROWS),
            lambda b, h, i: (b, 0, 0),
        )
        row = pl.BlockSpec((None, None, 1, BLOCK), lambda b, h, i: (b, h, 0, i))
    seeds = pl.BlockSpec((None, None, 1, 2), lambda b, h, i: (b, h, 0, 0))
    in_specs = [query, key, key, of_query, of_key, seeds]
    if run is not _forward_kernel:
        in_specs += [query, row, row]
    return pl.pallas_call(
        functools.partial(run, kernel),
        out_shape=out_shape,
        in_specs=in_specs,
        out_specs=out_specs,
        grid=grid,
        interpret=kernel.interpret,
        cost_estimate=cost(kernel, grid[0] * grid[1], products),
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
        name=name,
    )


def _block_of(kernel: Kernel) -> pl.BlockSpec:
    shape = (None, None, BLOCK, kernel.size)
    return pl.BlockSpec(shape, lambda b, h, i: (b, h, i, 0))


def _whole(tokens: int, size: int) -> pl.BlockSpec:
    shape = (None, None, tokens, size)
    return pl.BlockSpec(shape, lambda b, h, i: (b, h, 0, 0))


# ---- what the kernels compute --------------------------------------------------------------------

_SHAPE = (BLOCK, BLOCK)


def _forward_kernel(kernel, q, k, v, queries, keys, seeds, o, sums):
    first = pl.program_id(2) * BLOCK
    q_LK = q[...]
    size = kernel.size

    def body(number, before):
        o_KL, most_1L, sum_1L = before
        at = pl.ds(number * BLOCK, BLOCK)
        place = Place(number * BLOCK, first, _SHAPE, keys=at)
        s_SL = _scores(kernel, q_LK, k[at, :], queries, keys, place)
        new_1L = jnp.maximum(most_1L, jnp.max(s_SL, axis=0, keepdims=True))
        p_SL = jnp.exp(s_SL - new_1L)
        # What the blocks before were too large by.
        less_1L = jnp.exp(most_1L - new_1L)
        sum_1L = sum_1L * less_1L + jnp.sum(p_SL, axis=0, keepdims=True)
        if kernel.rate:
            p_SL = p_SL * kept(kernel, seeds, place)
        v_SK = v[at, :]
        o_KL = o_KL * less_1L + contracted(v_SK, p_SL.astype(v_SK.dtype), 0)
        return o_KL, new_1L, sum_1L

    o_KL, most_1L, sum_1L = lax.fori_loop(
        0,
        kernel.keys // BLOCK,
        body,
        (
            jnp.zeros((size, BLOCK), jnp.float32),
            jnp.full((1, BLOCK), NEVER, jnp.float32),
            jnp.zeros((1, BLOCK), jnp.float32),
        ),
    )
    o[...] = jnp.transpose(o_KL / sum_1L).astype(o.dtype)
    sums[...] = most_1L + jnp.log(sum_1L)


def _queries_kernel(
    kernel,
    q,
    k,
    v,
    queries,
    keys,
    seeds,
    do,
    sums,
    away,
    dq,
):
    first = pl.program_id(2) * BLOCK
    q_LK, do_LK, sums_1L, away_1L = q[...], do[...], sums[...], away[...]

    def body(number, dq_KL):
        at = pl.ds(number * BLOCK, BLOCK)
        k_SK = k[at, :]
        place = Place(number * BLOCK, first, _SHAPE, keys=at)
        _, ds_SL = _gradients(
            kernel,
            (q_LK, k_SK, v[at, :], do_LK, sums_1L, away_1L),
            (queries, keys, seeds),
            place,
        )
        return dq_KL + contracted(k_SK, ds_SL, 0)

    dq_KL = lax.fori_loop(
        0,
        kernel.keys // BLOCK,
        body,
        jnp.zeros((kernel.size, BLOCK), jnp.float32),
    )
    dq[...] = jnp.transpose(dq_KL).astype(dq.dtype)


def _keys_kernel(
    kernel,
    q,
    k,
    v,
    queries,
    keys,
    seeds,
    do,
    sums,
    away,
    dk,
    dv,
):
    first = pl.program_id(2) * BLOCK
    k_SK, v_SK = k[...], v[...]

    def body(number, before):
        dk_SK, dv_SK = before
        at = pl.ds(number * BLOCK, BLOCK)
        q_LK, do_LK = q[at, :], do[at, :]
        place = Place(first, number * BLOCK, _SHAPE, queries=at)
        dropped_SL, ds_SL = _gradients(
            kernel,
            (q_LK, k_SK, v_SK, do_LK, sums[:, at], away[:, at]),
            (queries, keys, seeds),
            place,
        )
        dv_SK = dv_SK + product(dropped_SL.astype(do_LK.dtype), do_LK)
        return dk_SK + product(ds_SL, q_LK), dv_SK

    zeros = jnp.zeros((BLOCK, kernel.size), jnp.float32)
    dk_SK, dv_SK = lax.fori_loop(
        0,
        kernel.length // BLOCK,
        body,
        (zeros, zeros),
    )
    dk[...] = dk_SK.astype(dk.dtype)
    dv[...] = dv_SK.astype(dv.dtype)


def _gradients(kernel, values, fields, place: Place) -> tuple[Array, Array]:
    """(weights as they were used, gradients of the scores), each [S, L]."""
    q_LK, k_SK, v_SK, do_LK, sums_1L, away_1L = values
    queries, keys, seeds = fields
    s_SL = _scores(kernel, q_LK, k_SK, queries, keys, place)
    p_SL = jnp.exp(s_SL - sums_1L)
    dropped_SL = p_SL
    dp_SL = contracted(v_SK, do_LK, 1)
    if kernel.rate:
        kept_SL = kept(kernel, seeds, place)
        dropped_SL = p_SL * kept_SL
        dp_SL = dp_SL * kept_SL
    ds_SL = p_SL * (dp_SL - away_1L) * kernel.size**-0.5
    return dropped_SL, ds_SL.astype(q_LK.dtype)


def _scores(kernel, q_LK, k_SK, queries, keys, place: Place) -> Array:
    """[S, L] in float32, of a block of each."""
    q, k = sides(queries, keys, place)
    blind_1L = queries[_BLIND : _BLIND + 1, place.queries]
    blind_SL = jnp.broadcast_to(blind_1L, _SHAPE) > 0
    own_SL = jnp.minimum(q.position, kernel.keys - 1) == k.position
    allowed_SL = kernel.mask.allow(q, k) | (own_SL & blind_SL)
    s_SL = contracted(k_SK, q_LK, 1) * kernel.size**-0.5
    return jnp.where(allowed_SL, s_SL, NEVER)
