"""`flash` on NVIDIA GPUs: the same attention in blocks of keys too, in kernels of Triton.

A multiprocessor has room for a block of scores, so the softmax goes over blocks of keys and keeps
their largest score and sum (Dao et al. 2022, algorithm 1); keys and queries get their gradients in
a kernel each, since calls run at the same time and cannot add to one place. A block of scores is
[L, S], of the keys' gradients [S, L], so that what a product takes next lies in registers. Masks
and dropout are those of `flash.py`.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from xlingjax.model.flash import (
    NEVER,
    ROWS,
    Kernel,
    contracted,
    cost,
    fields,
    kept,
    masked,
    product,
)
from xlingjax.model.masks import Fields

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Tile:
    """How a kernel is cut: queries and keys of a block of scores."""

    queries: int
    keys: int


# The fastest of 52 on an H100 for rows of 512 tokens (within 3 % of it for 128): 12 heads of 64,
# bfloat16, CAMLM's mask and dropout.
FORWARD = Tile(queries=64, keys=32)
OF_QUERIES = Tile(queries=64, keys=32)
OF_KEYS = Tile(queries=32, keys=64)
# Of a block of scores; and blocks that are loaded ahead.
WARPS, STAGES = 4, 3


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(kernel: Kernel, *given) -> Array:
    """[B, L, H, K] in the type of the values. given: q, k, v [B, L, H, K], [B, S, H, K]; the fields
    of queries [B, 8, L] and keys [B, 8, S] (`flash.fields_of`); seeds (`flash.seeds_of`)."""
    return _forward(kernel, given)[0]


def _attend_forward(kernel, *given):
    o, sums = checkpoint_name(_forward(kernel, given), "flash")
    return o, (*given, o, sums)


def _attend_backward(kernel, residuals, do):
    *given, o, sums_BHL = residuals
    # What the softmax takes away: of each query, the sum over its keys.
    away_BLH = jnp.sum(do.astype(jnp.float32) * o.astype(jnp.float32), axis=-1)
    given += [do, sums_BHL, jnp.swapaxes(away_BLH, 1, 2)]
    q, k, v = given[:3]
    like_q = jax.ShapeDtypeStruct(q.shape, q.dtype)
    [dq] = _call(kernel, _queries_kernel, OF_QUERIES, given, [like_q], "LS", 3)
    like_kv = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (k, v)]
    dk, dv = _call(kernel, _keys_kernel, OF_KEYS, given, like_kv, "SL", 4)
    return dq, dk, dv, None, None, None


attend.defvjp(_attend_forward, _attend_backward)


def _forward(kernel, given):
    q, _, v, *_ = given
    rows, length, heads, _ = q.shape
    out = [
        jax.ShapeDtypeStruct(q.shape, v.dtype),
        jax.ShapeDtypeStruct((rows, heads, length), jnp.float32),
    ]
    return _call(kernel, _forward_kernel, FORWARD, given, out, "LS", 2)


def _call(kernel, run, tile: Tile, given, out, axes: str, products: int):
    """Of the grid of rows, heads and blocks of the first of `axes`: L, a call has a block of
    queries and all keys; S, a block of keys and all queries. products: of [L, S] that it makes."""
    rows, _, heads, size = given[0].shape
    tokens = {"L": kernel.length, "S": kernel.keys}
    block = {"L": tile.queries, "S": tile.keys}[axes[0]]
    blocks = tokens[axes[0]] // block

    def specs(axis: str) -> tuple[pl.BlockSpec, pl.BlockSpec, pl.BlockSpec]:
        """Of values, fields and sums; of the other axis a call has all tokens."""
        along = axis == axes[0]
        count = block if along else tokens[axis]
        return (
            pl.BlockSpec((None, count, None, size), lambda b, h, i: (b, i * along, h, 0)),
            pl.BlockSpec((None, ROWS, count), lambda b, h, i: (b, 0, i * along)),
            pl.BlockSpec((None, None, count), lambda b, h, i: (b, h, i * along)),
        )

    (values, of_queries, sums), (key_values, of_keys, _) = specs("L"), specs("S")
    seeds = pl.BlockSpec((None, None, 1, 2), lambda b, h, i: (b, h, 0, 0))
    in_specs = [values, key_values, key_values, of_queries, of_keys, seeds]
    out_specs = [specs(axes[0])[0]] * len(out)
    if run is _forward_kernel:
        out_specs = [values, sums]
    else:
        in_specs += [values, sums, sums]
    return pl.pallas_call(
        functools.partial(run, kernel, tile),
        out_shape=out,
        in_specs=in_specs,
        out_specs=out_specs,
        grid=(rows, heads, blocks),
        interpret=kernel.interpret,
        cost_estimate=cost(kernel, rows * heads, products),
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        name=f"flash{run.__name__}",
    )(*given)


def _forward_kernel(kernel, tile, q, k, v, queries, keys, seeds, o, sums):
    q_LK, here = q[...], pl.program_id(2)

    def body(number, before):
        o_LK, most_L, sum_L = before
        at = _slice(number, tile.keys)
        place = _Block(kernel, tile, "LS", here, number)
        q_L, k_S = place.fields(queries, _ALL, keys, at)
        s_LS = place.scores(contracted(q_LK, k[at, :], 1), q_L, k_S)
        new_L = jnp.maximum(most_L, jnp.max(s_LS, axis=1))
        p_LS = jnp.exp2(s_LS - new_L[:, None])
        # What the blocks before were too large by.
        less_L = jnp.exp2(most_L - new_L)
        sum_L = sum_L * less_L + jnp.sum(p_LS, axis=1)
        if kernel.rate:
            p_LS = p_LS * place.kept(seeds)
        v_SK = v[at, :]
        o_LK = o_LK * less_L[:, None] + product(p_LS.astype(v_SK.dtype), v_SK)
        return o_LK, new_L, sum_L

    o_LK, most_L, sum_L = lax.fori_loop(
        0,
        kernel.keys // tile.keys,
        body,
        (
            jnp.zeros((tile.queries, kernel.size), jnp.float32),
            jnp.full((tile.queries,), NEVER, jnp.float32),
            jnp.zeros((tile.queries,), jnp.float32),
        ),
    )
    o[...] = (o_LK / sum_L[:, None]).astype(o.dtype)
    sums[...] = most_L + jnp.log2(sum_L)


def _queries_kernel(kernel, tile, q, k, v, queries, keys, seeds, do, sums, away, dq):
    q_LK, do_LK, sums_L, away_L = q[...], do[...], sums[...], away[...]
    here = pl.program_id(2)

    def body(number, dq_LK):
        at = _slice(number, tile.keys)
        k_SK = k[at, :]
        place = _Block(kernel, tile, "LS", here, number)
        q_L, k_S = place.fields(queries, _ALL, keys, at)
        s_LS = place.scores(contracted(q_LK, k_SK, 1), q_L, k_S)
        p_LS = jnp.exp2(s_LS - sums_L[:, None])
        dp_LS = contracted(do_LK, v[at, :], 1)
        if kernel.rate:
            dp_LS = dp_LS * place.kept(seeds)
        ds_LS = p_LS * (dp_LS - away_L[:, None])
        return dq_LK + product(ds_LS.astype(k_SK.dtype), k_SK)

    zeros = jnp.zeros((tile.queries, kernel.size), jnp.float32)
    dq_LK = lax.fori_loop(0, kernel.keys // tile.keys, body, zeros)
    dq[...] = (dq_LK * kernel.size**-0.5).astype(dq.dtype)


def _keys_kernel(kernel, tile, q, k, v, queries, keys, seeds, do, sums, away, dk, dv):
    k_SK, v_SK, here = k[...], v[...], pl.program_id(2)

    def body(number, before):
        dk_SK, dv_SK = before
        at = _slice(number, tile.queries)
        q_LK, do_LK = q[at, :], do[at, :]
        place = _Block(kernel, tile, "SL", number, here)
        q_L, k_S = place.fields(queries, at, keys, _ALL)
        s_SL = place.scores(contracted(k_SK, q_LK, 1), q_L, k_S)
        p_SL = jnp.exp2(s_SL - sums[at][None, :])
        dropped_SL = p_SL
        dp_SL = contracted(v_SK, do_LK, 1)
        if kernel.rate:
            kept_SL = place.kept(seeds)
            dropped_SL = p_SL * kept_SL
            dp_SL = dp_SL * kept_SL
        dv_SK = dv_SK + product(dropped_SL.astype(do_LK.dtype), do_LK)
        ds_SL = p_SL * (dp_SL - away[at][None, :])
        return dk_SK + product(ds_SL.astype(q_LK.dtype), q_LK), dv_SK

    zeros = jnp.zeros((tile.keys, kernel.size), jnp.float32)
    dk_SK, dv_SK = lax.fori_loop(0, kernel.length // tile.queries, body, (zeros, zeros))
    dk[...] = (dk_SK * kernel.size**-0.5).astype(dk.dtype)
    dv[...] = dv_SK.astype(dv.dtype)


_ALL = slice(None)


def _slice(number, tokens: int):
    return pl.ds(number * tokens, tokens)


@dataclasses.dataclass(frozen=True)
class _Block:
    """A block of scores: which axes it has, and its numbers among those of queries and keys."""

    kernel: Kernel
    tile: Tile
    axes: str
    query: Array
    key: Array

    @property
    def shape(self) -> tuple[int, int]:
        if self.axes == "LS":
            return self.tile.queries, self.tile.keys
        return self.tile.keys, self.tile.queries

    def _along(self, axis: str, array_T: Array) -> Array:
        if self.axes.index(axis) == 0:
            return array_T[:, None]
        return array_T[None, :]

    def fields(self, queries, at, keys, at_keys) -> tuple[Fields, Fields]:
        """Of its queries and keys, which stand there in what a call has of them."""
        return (
            fields(lambda n: self._along("L", queries[n, at]), self.shape),
            fields(lambda n: self._along("S", keys[n, at_keys]), self.shape),
        )

    def scores(self, products, q: Fields, k: Fields) -> Array:
        """In float32, times log2 e: powers of two are what the chip computes."""
        scores = products * (self.kernel.size**-0.5 * math.log2(math.e))
        return masked(self.kernel, scores, q, k)

    def kept(self, seeds) -> Array:
        query, key = (
            lax.broadcasted_iota(jnp.int32, self.shape, self.axes.index(axis)) for axis in "LS"
        )
        return kept(
            self.kernel,
            (seeds[0, 0], seeds[0, 1]),
            query + self.query * self.tile.queries,
            key + self.key * self.tile.keys,
        )
