"""Attention in one kernel for TPUs, with masks by predicate and dropout: no [L, S] leaves the chip.

FlashAttention's idea (Dao et al. 2022) for rows of a few thousand tokens: all keys of a row stand
on the chip at once, so that a softmax needs no second pass, and the backward pass makes scores,
masks and dropout once more from queries, keys and fields. Scores stand as [S, L]: what is of a
query is then a row and what is of a key a column, and nothing is turned around.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu

from xlingjax.model.masks import Fields, Mask

Array = jax.Array

_FIELDS = ("pack", "side", "is_mask", "position", "language")
ROWS = 8
"""Of the chip's registers: as many places are kept for fields."""
_LANES = 128
"""Numbers that the chip computes side by side."""
LONGEST = 4096
"""Keys that stand on a chip at once, with the scores of a block of queries."""
_ELEMENTS = 1 << 17
"""Scores of a block: half a megabyte in float32, of which a few stand at a time."""
_ORDER = tpu.CompilerParams(
    dimension_semantics=("parallel", "parallel", "arbitrary"),
)
"""Rows and heads may be shared out over a chip's cores; blocks of queries follow each other."""
NEVER = float(np.finfo(np.float32).min)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What is static of a call."""

    mask: Mask
    rate: float
    interpret: bool
    length: int
    keys: int
    size: int

    @property
    def block(self) -> int:
        """Queries at a time: as many hundred-and-twenty-eights as divide the rows and have room."""
        most = max(_ELEMENTS // self.keys, _LANES)
        blocks = range(_LANES, min(self.length, most) + 1, _LANES)
        return max(block for block in blocks if not self.length % block)


def fields_of(fields: Fields, axis: int) -> Array:
    """int32 [B, 8, L] (axis 1) or [B, L, 8] (axis 2): the fields, one beside the other."""
    arrays = [getattr(fields, name).astype(jnp.int32) for name in _FIELDS]
    empty = jnp.zeros_like(arrays[0])
    arrays += [empty] * (ROWS - len(arrays))
    return jnp.stack(arrays, axis)


def seeds_of(key: Array | None, rows: int, heads: int) -> Array:
    """int32 [B, H, 1, 2]: the same on every mesh."""
    if key is None:
        return jnp.zeros((rows, heads, 1, 2), jnp.int32)
    bits = jax.random.bits(key, (rows, heads, 1, 2), jnp.uint32)
    return lax.bitcast_convert_type(bits, jnp.int32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(kernel: Kernel, q, k, v, queries, keys, seeds) -> Array:
    """[B, H, L, K] in the type of the values. q, k, v: [B, H, L, K], [B, H, S, K]; queries
    [B, 8, L], keys [B, S, 8]: see `fields_of`; seeds: see `seeds_of`."""
    return _forward(kernel, q, k, v, queries, keys, seeds)


def _attend_forward(kernel, q, k, v, queries, keys, seeds):
    o = _forward(kernel, q, k, v, queries, keys, seeds)
    return o, (q, k, v, queries, keys, seeds)


def _attend_backward(kernel, residuals, do):
    q, k, v, queries, keys, seeds = residuals
    rows, heads = q.shape[:2]
    blocks = _specs(kernel)
    whole = jax.ShapeDtypeStruct(k.shape, jnp.float32)
    dq, dk, dv = pl.pallas_call(
        functools.partial(_backward_kernel, kernel),
        out_shape=(jax.ShapeDtypeStruct(q.shape, q.dtype), whole, whole),
        in_specs=[*blocks, _of_queries(kernel)],
        # All blocks of queries add to one block of keys: they run one after the other.
        out_specs=(
            _of_queries(kernel),
            _of_keys(kernel),
            _of_keys(kernel),
        ),
        grid=(rows, heads, kernel.length // kernel.block),
        interpret=kernel.interpret,
        cost_estimate=cost(kernel, rows * heads, products=5),
        compiler_params=_ORDER,
        name="flash_backward",
    )(q, k, v, queries, keys, seeds, do)
    return dq, dk.astype(k.dtype), dv.astype(v.dtype), None, None, None


attend.defvjp(_attend_forward, _attend_backward)


def _forward(kernel: Kernel, q, k, v, queries, keys, seeds):
    rows, heads = q.shape[:2]
    return pl.pallas_call(
        functools.partial(_forward_kernel, kernel),
        out_shape=jax.ShapeDtypeStruct(q.shape, v.dtype),
        in_specs=_specs(kernel),
        out_specs=_of_queries(kernel),
        grid=(rows, heads, kernel.length // kernel.block),
        interpret=kernel.interpret,
        cost_estimate=cost(kernel, rows * heads, products=2),
        compiler_params=_ORDER,
        name="flash_forward",
    )(q, k, v, queries, keys, seeds)


def cost(kernel: Kernel, heads: int, products: int) -> pl.CostEstimate:
    """Of a call over so many heads of all rows that makes so many products of [L, S]."""
    scores = heads * kernel.length * kernel.keys
    tokens = heads * (kernel.length + kernel.keys)
    return pl.CostEstimate(
        flops=products * 2 * scores * kernel.size,
        transcendentals=scores,
        bytes_accessed=products * tokens * kernel.size * 2,
    )


# ---- which part of an array a call of the kernel sees; the grid: row, head, block of queries -----


def _of_queries(kernel: Kernel) -> pl.BlockSpec:
    shape = (None, None, kernel.block, kernel.size)
    return pl.BlockSpec(shape, lambda b, h, i: (b, h, i, 0))


def _of_keys(kernel: Kernel) -> pl.BlockSpec:
    shape = (None, None, kernel.keys, kernel.size)
    return pl.BlockSpec(shape, lambda b, h, i: (b, h, 0, 0))


def _specs(kernel: Kernel) -> list[pl.BlockSpec]:
    """Of q, k, v, both sides' fields and the seeds."""
    return [
        _of_queries(kernel),
        _of_keys(kernel),
        _of_keys(kernel),
        pl.BlockSpec(
            (None, ROWS, kernel.block),
            lambda b, h, i: (b, 0, i),
        ),
        pl.BlockSpec((None, kernel.keys, ROWS), lambda b, h, i: (b, 0, 0)),
        pl.BlockSpec((None, None, 1, 2), lambda b, h, i: (b, h, 0, 0)),
    ]


# ---- what the kernels compute --------------------------------------------------------------------


def _forward_kernel(kernel, q, k, v, queries, keys, seeds, o):
    values = v[...]
    p_SL = _probabilities(kernel, q[...], k[...], queries, keys)
    if kernel.rate:
        p_SL = p_SL * kept(kernel, seeds, _place(kernel))
    o[...] = contracted(p_SL.astype(values.dtype), values, 0).astype(o.dtype)


def _backward_kernel(
    kernel,
    q,
    k,
    v,
    queries,
    keys,
    seeds,
    do,
    dq,
    dk,
    dv,
):
    q_LK, k_SK, v_SK, do_LK = q[...], k[...], v[...], do[...]
    p_SL = _probabilities(kernel, q_LK, k_SK, queries, keys)
    dropped_SL = p_SL
    dp_SL = contracted(v_SK, do_LK, 1)
    if kernel.rate:
        kept_SL = kept(kernel, seeds, _place(kernel))
        dropped_SL = p_SL * kept_SL
        dp_SL = dp_SL * kept_SL
    # What the softmax takes away: of each query, the sum over its keys.
    away_1L = jnp.sum(p_SL * dp_SL, axis=0, keepdims=True)
    ds_SL = p_SL * (dp_SL - away_1L) * kernel.size**-0.5
    ds_SL = ds_SL.astype(q_LK.dtype)
    dq[...] = contracted(ds_SL, k_SK, 0).astype(dq.dtype)

    @pl.when(pl.program_id(2) == 0)
    def _():
        dk[...] = jnp.zeros_like(dk)
        dv[...] = jnp.zeros_like(dv)

    dk[...] += product(ds_SL, q_LK)
    dv[...] += product(dropped_SL.astype(do_LK.dtype), do_LK)


def _probabilities(kernel, q_LK, k_SK, queries, keys) -> Array:
    """[S, L] in float32."""
    q, k = sides(queries, keys, _place(kernel))
    allowed_SL = kernel.mask.allow(q, k)
    # As `Mask.__call__`: a query that sees nothing sees its own column.
    sees_1L = jnp.max(allowed_SL.astype(jnp.int32), axis=0, keepdims=True)
    blind_SL = jnp.broadcast_to(sees_1L, allowed_SL.shape) == 0
    own_SL = jnp.minimum(q.position, kernel.keys - 1) == k.position
    s_SL = contracted(k_SK, q_LK, 1) * kernel.size**-0.5
    s_SL = jnp.where(allowed_SL | (own_SL & blind_SL), s_SL, NEVER)
    e_SL = jnp.exp(s_SL - jnp.max(s_SL, axis=0, keepdims=True))
    return e_SL / jnp.sum(e_SL, axis=0, keepdims=True)


def _place(kernel: Kernel) -> "Place":
    """All keys, and the queries of this call."""
    shape = (kernel.keys, kernel.block)
    return Place(0, pl.program_id(2) * kernel.block, shape)


# ---- what is shared with the kernels of GPUs (`flash_gpu.py`) ------------------------------------


_ALL = Ellipsis


@dataclasses.dataclass(frozen=True)
class Place:
    """Scores of a block: numbers of the first key and query, and [keys, queries]."""

    key: Any
    query: Any
    shape: tuple[int, int]
    keys: Any = _ALL
    """Where its keys stand in what a call of a kernel has of them."""
    queries: Any = _ALL


def sides(queries, keys, place: Place) -> tuple[Fields, Fields]:
    """The fields of queries and keys, each [S, L]: whole, so that predicates compare numbers of one
    shape and combine what that gives. queries [8, L], keys [S, 8]: references."""
    q, k = {}, {}
    for number, name in enumerate(_FIELDS):
        one = slice(number, number + 1)
        q[name] = jnp.broadcast_to(queries[one, place.queries], place.shape)
        k[name] = jnp.broadcast_to(keys[place.keys, one], place.shape)
    return _fields(q), _fields(k)


def _fields(values: dict[str, Array]) -> Fields:
    return Fields(
        valid=values["pack"] > 0,
        side=values["side"],
        is_mask=values["is_mask"] > 0,
        position=values["position"],
        language=values["language"],
        pack=values["pack"],
    )


def kept(kernel: Kernel, seeds, place: Place) -> Array:
    """float32 [S, L]: 0 where a weight is dropped, else what keeps the mean.

    A hash of the place and the seeds (after C. Wellons's lowbias32), the same in both passes and in
    blocks of any size; generators of the chip would not be.
    """
    shape = place.shape
    query = lax.broadcasted_iota(jnp.int32, shape, 1) + place.query
    key = lax.broadcasted_iota(jnp.int32, shape, 0) + place.key
    x = (key * kernel.length + query) ^ seeds[:, 0:1]
    x = x ^ lax.shift_right_logical(x, jnp.full_like(x, 16))
    x = x * np.int32(0x7FEB352D) + seeds[:, 1:2]
    x = x ^ lax.shift_right_logical(x, jnp.full_like(x, 15))
    x = x * np.int32(0x846CA68B - (1 << 32))
    # 24 bits, which are no negative number.
    x = lax.shift_right_logical(x, jnp.full_like(x, 8))
    threshold = round(kernel.rate * (1 << 24))
    # By the rounded rate, so that the mean is kept exactly.
    scale = (1 << 24) / ((1 << 24) - threshold)
    return jnp.where(x >= threshold, jnp.float32(scale), jnp.float32(0))


def contracted(a: Array, b: Array, axis: int) -> Array:
    """The product of two matrices over the same axis of both, in float32."""
    dimensions = (((axis,), (axis,)), ((), ()))
    return lax.dot_general(a, b, dimensions, preferred_element_type=jnp.float32)


def product(a: Array, b: Array) -> Array:
    dimensions = (((1,), (0,)), ((), ()))
    return lax.dot_general(a, b, dimensions, preferred_element_type=jnp.float32)


def require_room(length: int, keys: int) -> str:
    """Why rows of such lengths do not go through the kernel; "": they do."""
    if keys > LONGEST or length > LONGEST:
        return f"rows of at most {LONGEST:,} tokens"
    for tokens in (length, keys):
        if tokens % _LANES:
            return (
                f"rows of a multiple of {_LANES} tokens, not of {tokens}; make them"
                f" {math.ceil(tokens / _LANES) * _LANES} long (LENGTH)"
            )
    return ""
