"""Attention in one kernel for TPUs, with masks by predicate and dropout: no [L, S] leaves the chip.

FlashAttention's idea (Dao et al. 2022) for rows of a few thousand tokens: all keys of a row stand
on the chip at once, so that a softmax needs no second pass, and the backward pass makes scores,
masks and dropout once more from queries, keys and fields. Scores stand as [S, L]: what is of a
query is then a row and what is of a key a column, and nothing is turned around.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu

from xlingjax.model.masks import Fields, Mask

Array = jax.Array

_FIELDS = ("pack", "side", "is_mask", "position", "language")
ROWS = 8  # of the chip's registers: as many places are kept for fields
_LANES = 128  # numbers that the chip computes side by side
LONGEST = 8192  # keys that stand on a chip at once, with the scores of a block of queries
_ELEMENTS = 1 << 17  # scores of a block: half a megabyte in float32, of which a few stand at a time
_LONG = 3072
"""Keys, at most, that with all that is computed of them take no more of the chip's memory than the
compiler gives a kernel of itself: 16 MiB."""
NO_COLUMN = 1 << 30  # beyond all
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
    last: int  # the last key's column, which queries beyond it have for their own
    together: int = 1  # heads that stand side by side in the chip's lanes; of TPUs

    @property
    def width(self) -> int:
        """Lanes of the heads that stand together."""
        return math.ceil(self.together * self.size / _LANES) * _LANES

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


def attend(
    kernel: Kernel, q: Array, k: Array, v: Array, queries: Array, keys: Array, seeds: Array
) -> Array:
    """[B, L, H, K] in the type of the values. q, k, v: [B, L, H, K], [B, S, H, K]; queries
    [B, 8, L], keys [B, S, 8]: see `fields_of`; seeds: see `seeds_of`."""
    heads = q.shape[2]
    # Two heads of 64 fill the lanes; alone, each would leave half of them empty.
    together = max(_LANES // kernel.size, 1)
    fills = not _LANES % kernel.size and not heads % together
    if fills:
        kernel = dataclasses.replace(kernel, together=together)
    room = kernel.width // kernel.together

    def flat(x: Array) -> Array:
        """[B, L, lanes of all heads]: nothing is turned around."""
        x = jnp.pad(x, [(0, 0), (0, 0), (0, 0), (0, room - kernel.size)])
        return x.reshape(*x.shape[:2], heads * room)

    o = _attend(kernel, flat(q), flat(k), flat(v), queries, keys, seeds)
    return o.reshape(*q.shape[:3], room)[..., : kernel.size]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(kernel: Kernel, q, k, v, queries, keys, seeds) -> Array:
    """[B, L, lanes], of q [B, L, lanes], k and v [B, S, lanes]."""
    given = q, k, v, queries, keys, seeds
    o = jax.ShapeDtypeStruct(q.shape, v.dtype)
    return _call(kernel, _forward_kernel, given, o, _of_queries(kernel), products=2)


def _attend_forward(kernel, *given):
    return _attend(kernel, *given), given


def _attend_backward(kernel, given, do):
    q, k, v, *_ = given
    whole = jax.ShapeDtypeStruct(k.shape, jnp.float32)
    out = jax.ShapeDtypeStruct(q.shape, q.dtype), whole, whole
    # All blocks of queries add to one block of keys: they run one after the other.
    blocks = _of_queries(kernel), _of_keys(kernel), _of_keys(kernel)
    dq, dk, dv = _call(kernel, _backward_kernel, (*given, do), out, blocks, products=5)
    return dq, dk.astype(k.dtype), dv.astype(v.dtype), None, None, None


_attend.defvjp(_attend_forward, _attend_backward)


def _call(kernel: Kernel, run, given, out, out_specs, products: int):
    """Of the grid of rows, heads that stand together, blocks of queries, and the head of those
    together. given: queries, keys, values, both sides' fields, the seeds, and what else is of
    queries. products: of [L, S] that it makes."""
    q, seeds = given[0], given[5]
    rows, length, lanes = q.shape
    in_specs = [
        _of_queries(kernel),
        _of_keys(kernel),
        _of_keys(kernel),
        pl.BlockSpec((None, ROWS, kernel.block), lambda b, h, i, j: (b, 0, i)),
        pl.BlockSpec((None, kernel.keys, ROWS), lambda b, h, i, j: (b, 0, 0)),
        pl.BlockSpec((None, None, 1, 2), lambda b, h, i, j: (b, h * kernel.together + j, 0, 0)),
    ]
    in_specs += [_of_queries(kernel)] * (len(given) - len(in_specs))
    limit = None
    # 19.5 MiB of 4,096 keys in heads of 64, in bfloat16.
    if kernel.keys > _LONG:
        limit = max(kernel.keys * 6 << 10, 24 << 20)
    # Rows and heads may be shared out over a chip's cores; blocks of queries follow each other,
    # and of each block the heads that stand together.
    parameters = tpu.CompilerParams(
        dimension_semantics=("parallel", "parallel", "arbitrary", "arbitrary"),
        vmem_limit_bytes=limit,
    )
    return pl.pallas_call(
        functools.partial(run, kernel),
        out_shape=out,
        in_specs=in_specs,
        out_specs=out_specs,
        grid=(rows, lanes // kernel.width, length // kernel.block, kernel.together),
        interpret=kernel.interpret,
        cost_estimate=cost(kernel, seeds.shape[0] * seeds.shape[1], products),
        compiler_params=parameters,
        name=f"flash{run.__name__.removesuffix('_kernel')}",
    )(*given)


def cost(kernel: Kernel, heads: int, products: int) -> pl.CostEstimate:
    """Of a call over so many heads of all rows that makes so many products of [L, S]."""
    scores = heads * kernel.length * kernel.keys
    tokens = heads * (kernel.length + kernel.keys)
    return pl.CostEstimate(
        flops=products * 2 * scores * kernel.size,
        transcendentals=scores,
        bytes_accessed=products * tokens * kernel.size * 2,
    )


def _of_queries(kernel: Kernel) -> pl.BlockSpec:
    shape = (None, kernel.block, kernel.width)
    return pl.BlockSpec(shape, lambda b, h, i, j: (b, i, h))


def _of_keys(kernel: Kernel) -> pl.BlockSpec:
    shape = (None, kernel.keys, kernel.width)
    return pl.BlockSpec(shape, lambda b, h, i, j: (b, 0, h))


def _forward_kernel(kernel, q, k, v, queries, keys, seeds, o):
    head, values = pl.program_id(3), v[...]
    q_LK = _only(kernel, head, q[...])
    p_SL, kept_SL = _probabilities(kernel, q_LK, k[...], queries, keys, seeds)
    if kernel.rate:
        p_SL = p_SL * kept_SL
    _write(kernel, head, o, contracted(p_SL.astype(values.dtype), values, 0))


def _backward_kernel(kernel, q, k, v, queries, keys, seeds, do, dq, dk, dv):
    head, k_SK = pl.program_id(3), k[...]
    q_LK, do_LK = _only(kernel, head, q[...]), _only(kernel, head, do[...])
    p_SL, kept_SL = _probabilities(kernel, q_LK, k_SK, queries, keys, seeds)
    dropped_SL = p_SL
    dp_SL = contracted(v[...], do_LK, 1)
    if kernel.rate:
        dropped_SL = p_SL * kept_SL
        dp_SL = dp_SL * kept_SL
    # What the softmax takes away: of each query, the sum over its keys.
    away_1L = jnp.sum(p_SL * dp_SL, axis=0, keepdims=True)
    ds_SL = p_SL * (dp_SL - away_1L) * kernel.size**-0.5
    ds_SL = ds_SL.astype(q_LK.dtype)
    _write(kernel, head, dq, contracted(ds_SL, k_SK, 0))

    @pl.when((pl.program_id(2) == 0) & (head == 0))
    def _():
        dk[...] = jnp.zeros_like(dk)
        dv[...] = jnp.zeros_like(dv)

    # 0 in the lanes of other heads, as in what they are made of.
    dk[...] += product(ds_SL, q_LK)
    dv[...] += product(dropped_SL.astype(do_LK.dtype), do_LK)


def _lanes_of(kernel: Kernel, head: Array, shape: tuple[int, int]) -> Array:
    """bool [L, lanes]"""
    lane = lax.broadcasted_iota(jnp.int32, shape, 1)
    return lane // kernel.size == head


def _only(kernel: Kernel, head: Array, x: Array) -> Array:
    """x with 0 in the lanes of all other heads. The matrix units multiply all lanes at once: a
    product with it is that of the head, and takes no longer."""
    if kernel.together == 1:
        return x
    lanes = _lanes_of(kernel, head, x.shape)
    return jnp.where(lanes, x.astype(jnp.float32), 0.0).astype(x.dtype)


def _write(kernel: Kernel, head: Array, ref, x: Array) -> None:
    """The head's lanes of x, and no others but for the first head."""
    if kernel.together > 1:
        lanes = _lanes_of(kernel, head, x.shape) | (head == 0)
        x = jnp.where(lanes, x, ref[...].astype(jnp.float32))
    ref[...] = x.astype(ref.dtype)


def _probabilities(kernel, q_LK, k_SK, queries, keys, seeds):
    """[S, L] in float32, and what dropout leaves of each."""
    shape = kernel.keys, kernel.block
    s_SL = contracted(k_SK, q_LK, 1) * kernel.size**-0.5
    s_SL = masked(
        kernel,
        s_SL,
        fields(lambda number: queries[number : number + 1, :], shape),
        fields(lambda number: keys[:, number : number + 1], shape),
    )
    e_SL = jnp.exp(s_SL - jnp.max(s_SL, axis=0, keepdims=True))
    p_SL = e_SL / jnp.sum(e_SL, axis=0, keepdims=True)
    if not kernel.rate:
        return p_SL, None
    first = pl.program_id(2) * kernel.block
    query_SL = lax.broadcasted_iota(jnp.int32, shape, 1) + first
    key_SL = lax.broadcasted_iota(jnp.int32, shape, 0)
    seed = seeds[:, 0:1], seeds[:, 1:2]
    return p_SL, kept(kernel, seed, query_SL, key_SL)


# ---- what is shared with the kernels of GPUs (`flash_gpu.py`) ------------------------------------


def masked(kernel: Kernel, scores, queries: Fields, keys: Fields) -> Array:
    """The scores of a block, those that the mask does not allow so low that they do not count.

    As `Mask.__call__`: a query that sees nothing sees its own column, which is why that lies above
    what else is not allowed, and below all that is.
    """
    own = jnp.minimum(queries.position, kernel.last) == keys.position
    low = jnp.where(own, jnp.float32(NEVER / 2), jnp.float32(NEVER))
    return jnp.where(kernel.mask.allow(queries, keys), scores, low)


def fields(values: Callable[[int], Array], shape: tuple[int, int]) -> Fields:
    """`values` of each field, whole: predicates then compare numbers of one shape, and combine what
    that gives."""
    found = {name: jnp.broadcast_to(values(number), shape) for number, name in enumerate(_FIELDS)}
    return Fields(**{**found, "valid": found["pack"] > 0, "is_mask": found["is_mask"] > 0})


def kept(kernel: Kernel, seeds, query: Array, key: Array) -> Array:
    """float32: 0 where a weight is dropped, else what keeps the mean, of the scores whose numbers
    of query and key these are.

    A hash of the place and the seeds (after C. Wellons's lowbias32), the same in both passes and in
    blocks of any size; generators of the chip would not be.
    """
    x = (key * kernel.length + query) ^ seeds[0]
    x = x ^ lax.shift_right_logical(x, jnp.full_like(x, 16))
    x = x * np.int32(0x7FEB352D) + seeds[1]
    x = x ^ lax.shift_right_logical(x, jnp.full_like(x, 15))
    x = x * np.int32(0x846CA68B - (1 << 32))
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


def takes(tokens: int, device_kind: str = "") -> bool:
    """Whether rows of so many tokens go through the kernel on such a device."""
    # Chips up to the v4 have 16 MiB of their own memory, later ones 64 and more; a kernel of GPUs
    # goes over keys block by block.
    longest = 2048 if device_kind in ("TPU v2", "TPU v3", "TPU v4") else LONGEST
    return not tokens % _LANES and (tokens <= longest or not device_kind.startswith("TPU"))
