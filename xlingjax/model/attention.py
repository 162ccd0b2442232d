"""Attention: a spec says who may see whom, a backend named by the user computes it or refuses;
nothing is substituted.

| backend | masks | packing | dropout | runs on |
|---|---|---|---|---|
| xla | any | yes | yes | everything |
| flash | any | yes | yes | TPU (not float16), NVIDIA GPU from Ampere on; 128 n tokens |
| chunked | any | yes | yes | everything, to whose rows a block of 32 to 128 queries fits |
| cudnn | any | yes | no | NVIDIA GPU, bfloat16 |
| splash | bidirectional, or causal & bidirectional | yes | no | TPU, 128 n tokens, not float16 |
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from xlingjax.errors import UserError
from xlingjax.model import chunked
from xlingjax.model.config import WITH_DROPOUT
from xlingjax.model.layers import dropout_keeps
from xlingjax.model.masks import Fields, Mask, bidirectional
from xlingjax.model.masks import causal as causal_mask
from xlingjax.model.partition import first_device, on_each_device, row_devices
from xlingjax.model.weighted_sum import scores, weighted_sum

Array = jax.Array


class Refused(UserError, ValueError):
    """An attention backend cannot honour what it was asked for; the message names the spec and the
    backend."""


def require(holds: Any, backend: str, fault: str) -> None:
    if not holds:
        raise Refused(f"attention backend {backend} {fault}; use xla")


@dataclasses.dataclass(frozen=True)
class AttentionSpec:
    """Who may see whom, and two facts that a kernel may use in place of the mask.

    `causal`: the mask forbids later tokens. `packed`: rows may hold several examples (always safe;
    False is a promise that lets a kernel take the row length as the only mask).
    """

    mask: Mask
    causal: bool = False
    packed: bool = True


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Attention:
    """A spec bound to the fields of one batch: what every layer shares. Call it on queries, keys
    and values."""

    # The arrays of the backend; all else is static, so that jit keeps a program for each.
    arrays: dict[str, Array]
    spec: AttentionSpec = dataclasses.field(metadata={"static": True})
    backend: str = dataclasses.field(metadata={"static": True})
    dropout: float = dataclasses.field(metadata={"static": True})
    mesh: Mesh | None = dataclasses.field(default=None, metadata={"static": True})

    def step(self, q_RLHK: Array, k: Array, v: Array, axes: str) -> Array:
        """[R, L, H, K]: a decoder's step. `axes`, "BHSK" or "BHKS", are those of keys and values. R
        is B, or B times the beams, which are queries of their source and share its keys."""
        q_BLHK = q_RLHK.reshape(len(k), -1, *q_RLHK.shape[2:])
        # Whatever the backend: the kernels know no cache.
        o_BLHK = _xla(self, q_BLHK, k, v, 0.0, None, axes)
        return o_BLHK.reshape(q_RLHK.shape)

    def __call__(
        self, q_BLHK: Array, k_BSHK: Array, v_BSHK: Array, key: Array | None = None
    ) -> Array:
        """[B, L, H, K] in the type of the values. `key` None = no dropout."""
        rate = 0.0 if key is None else self.dropout
        # Left out in silence it would be another model than the one that was asked for.
        # Here and not in `bind`: without a key, as in evaluation, the rate does not matter.
        require(not rate or self.backend in WITH_DROPOUT, self.backend, "has no attention_dropout")
        compute = _BACKENDS[self.backend][1]
        return compute(self, q_BLHK, k_BSHK, v_BSHK, rate, key)

    def weights(self, q_BLHK: Array, k_BSHK: Array) -> Array:
        """float32 [B, H, L, S]: the shares of the keys, without dropout; 0 where one is not seen.
        Raises `Refused` on another backend than xla: the others never have them all."""
        require(self.backend == "xla", self.backend, "keeps no weights")
        s_BHLS = scores(q_BLHK, k_BSHK, self.arrays["bias_B1LS"], "BSHK")
        return jax.nn.softmax(s_BHLS, axis=-1)


def bind(
    spec: AttentionSpec,
    queries: Fields,
    keys: Fields,
    backend: str = "xla",
    dropout: float = 0.0,
    mesh: Mesh | None = None,
) -> Attention:
    """Prepares a backend for one batch. mesh: the devices that compute it, None: the one that JAX
    takes by itself. They need not be there, so that a program can be compiled for others. Raises
    `Refused` naming spec and backend when it cannot honour the spec on them."""
    if backend not in _BACKENDS:
        raise Refused(f"no attention backend {backend!r} (there are {', '.join(_BACKENDS)})")
    prepare, _ = _BACKENDS[backend]
    return Attention(prepare(spec, queries, keys, mesh), spec, backend, dropout, mesh)


def _plain_masks(spec: AttentionSpec) -> tuple[Mask, ...]:
    """The masks that a kernel computes without being given one."""
    if spec.causal:
        # Masks are equal by their names: a conjunction has two.
        return (causal_mask & bidirectional, bidirectional & causal_mask)
    return (bidirectional,)


def _platform(mesh: Mesh | None) -> str:
    """ "cpu", "gpu", "tpu" ..."""
    if mesh is None:
        return jax.default_backend()
    # Not the process's: a program can be compiled for devices that are not there.
    return first_device(mesh).platform


# --- xla ---


def _prepare_xla(
    spec: AttentionSpec, queries: Fields, keys: Fields, mesh: Mesh | None
) -> dict[str, Array]:
    return {"bias_B1LS": _bias(spec, queries, keys, jnp.float32)}


def _bias(spec: AttentionSpec, queries: Fields, keys: Fields, dtype: Any) -> Array:
    """[B, 1, L, S]: 0 where a query may see a key, the lowest number elsewhere. Made once for all
    layers."""
    # The lowest number hides a key as -inf does, for every query sees one key at least, and is
    # finite: nothing that is done with it gives NaN.
    allowed_BLS = spec.mask(queries, keys)
    bias_BLS = jnp.where(allowed_BLS, 0.0, jnp.finfo(dtype).min)
    return bias_BLS[:, None].astype(dtype)


def _xla(self: Attention, q_BLHK, k, v, rate, key, axes="BSHK"):
    s_BHLS = scores(q_BLHK, k, self.arrays["bias_B1LS"], axes)
    keeps_BHLS = None
    if rate and key is not None:
        keeps_BHLS = dropout_keeps(s_BHLS.shape, rate, key)
    return weighted_sum(s_BHLS, v, keeps_BHLS, rate, axes)


def require_length(holds: Any, backend: str, tokens: int) -> None:
    takes = {
        "chunked": f"columns that a block of {chunked.LEAST} to {chunked.BLOCK} queries divides",
        "cudnn": "an even number of tokens",
    }.get(backend, "128 n tokens, as many as fit on the chip")
    require(holds, backend, f"takes rows of {takes}, not of {tokens}: change LENGTH")


def _require_spread(backend: str, rows: int, mesh: Mesh | None) -> None:
    devices = 1 if mesh is None else row_devices(mesh)
    require(not rows % devices, backend, f"cannot spread {rows} rows over {devices} devices")


def _require_not_float16(backend: str, q_BLHK: Array) -> None:
    require(q_BLHK.dtype != jnp.float16, backend, "does not compute in float16")


# --- chunked ---


def _prepare_chunked(
    spec: AttentionSpec, queries: Fields, keys: Fields, mesh: Mesh | None
) -> dict[str, Fields]:
    length = queries.pack.shape[1]
    require_length(chunked.block_of(length), "chunked", length)
    return {"queries": queries, "keys": keys}


def _chunked(self: Attention, q_BLHK, k_BSHK, v_BSHK, rate, key):
    qkv = q_BLHK, k_BSHK, v_BSHK
    fields = self.arrays["queries"], self.arrays["keys"]
    return chunked.attend(self.spec.mask, rate, *qkv, *fields, key)


# --- flash ---


def _prepare_flash(
    spec: AttentionSpec, queries: Fields, keys: Fields, mesh: Mesh | None
) -> dict[str, Array]:
    # Here, since Pallas takes its time.
    from xlingjax.model import flash

    platform = _platform(mesh)
    device = first_device(mesh)
    # XLA compiles Triton for no GPU before Ampere.
    capability = getattr(device, "compute_capability", "") or "8"
    there = platform in ("tpu", "gpu", "cuda") and float(capability) >= 8
    require(there, "flash", f"needs a TPU, or a GPU from Ampere on, and this is {platform}")
    for tokens in (queries.pack.shape[1], keys.pack.shape[1]):
        require_length(flash.takes(tokens, device.device_kind), "flash", tokens)
    _require_spread("flash", len(queries.pack), mesh)
    # The kernel of TPUs takes what is of a key as a column.
    axis = 2 if platform == "tpu" else 1
    return {"queries": flash.fields_of(queries, 1), "keys": flash.fields_of(keys, axis)}


def _flash(self: Attention, q_BLHK, k_BSHK, v_BSHK, rate, key, interpret: bool = False):
    from xlingjax.model import flash, flash_gpu

    rows, length, heads, size = q_BLHK.shape
    if _platform(self.mesh) == "tpu":
        _require_not_float16("flash", q_BLHK)
        run = flash.attend
    else:
        # Of Triton's blocks, and of what its products take.
        fits = size >= 16 and not size & (size - 1)
        require(fits, "flash", f"takes heads of 16, 32, 64 ... on GPUs, not of {size}")
        run = flash_gpu.attend
    kernel = flash.Kernel(self.spec.mask, rate, interpret, length, k_BSHK.shape[1], size)
    arrays = (
        (q_BLHK, (None, "heads", None)),
        (k_BSHK, (None, "heads", None)),
        (v_BSHK, (None, "heads", None)),
        (self.arrays["queries"], (None, None)),
        (self.arrays["keys"], (None, None)),
        (flash.seeds_of(key, rows, heads), ("heads", None, None)),
    )
    return on_each_device(partial(run, kernel), self.mesh, arrays)


# --- cudnn ---


def _prepare_cudnn(
    spec: AttentionSpec, queries: Fields, keys: Fields, mesh: Mesh | None
) -> dict[str, Array]:
    platform = _platform(mesh)
    require(platform in ("gpu", "cuda"), "cudnn", f"needs an NVIDIA GPU, and this is {platform}")
    if spec.packed or spec.mask not in _plain_masks(spec):
        for tokens in (queries.pack.shape[1], keys.pack.shape[1]):
            require_length(not tokens % 2, "cudnn", tokens)
        # One [L, S] for all heads and layers, in the type that the kernel adds it in.
        return {"bias_B1LS": _bias(spec, queries, keys, jnp.bfloat16)}
    return {
        "q_lengths_B": queries.valid.sum(-1, dtype=jnp.int32),
        "k_lengths_B": keys.valid.sum(-1, dtype=jnp.int32),
        # Inside a compiled program nothing can be raised, so a broken promise shows as NaN.
        "poison": _poison(queries) + _poison(keys),
    }


def _poison(fields: Fields) -> Array:
    """NaN where rows break the promise of one example followed by padding (a wrong mask must not
    pass), else 0."""
    gap = (fields.valid[:, 1:] & ~fields.valid[:, :-1]).any()
    return jnp.where(gap | (fields.pack > 1).any(), jnp.nan, 0.0)


def _cudnn(self: Attention, q_BLHK, k_BSHK, v_BSHK, rate, key):
    bfloat16 = q_BLHK.dtype == jnp.bfloat16
    require(bfloat16, "cudnn", f"computes in bfloat16, not {q_BLHK.dtype}: set dtype=bfloat16")
    size = q_BLHK.shape[-1]
    fits = not size % 8 and size <= 128
    require(fits, "cudnn", f"takes heads of a multiple of 8 up to 128, not of {size}")
    attend = partial(jax.nn.dot_product_attention, q_BLHK, k_BSHK, v_BSHK, implementation="cudnn")
    if "bias_B1LS" in self.arrays:
        return attend(bias=self.arrays["bias_B1LS"])
    o_BLHK = attend(
        query_seq_lengths=self.arrays["q_lengths_B"],
        key_value_seq_lengths=self.arrays["k_lengths_B"],
        is_causal=self.spec.causal,
    )
    return o_BLHK + self.arrays["poison"].astype(o_BLHK.dtype)


# --- splash ---


def _prepare_splash(
    spec: AttentionSpec, queries: Fields, keys: Fields, mesh: Mesh | None
) -> dict[str, Array]:
    plain = spec.mask in _plain_masks(spec)
    fault = f"cannot honour mask {spec.mask.name} (causal={spec.causal})"
    require(plain, "splash", fault)
    platform = _platform(mesh)
    require(platform == "tpu", "splash", f"needs a TPU, and this is {platform}")
    for tokens in (queries.pack.shape[1], keys.pack.shape[1]):
        require_length(not tokens % 128, "splash", tokens)
    _require_spread("splash", len(queries.pack), mesh)
    return {"q_pack_BL": queries.pack, "k_pack_BS": keys.pack}


def _splash(self: Attention, q_BLHK, k_BSHK, v_BSHK, rate, key, interpret: bool = False):
    """Segment ids are the pack numbers; padding (0) sees padding, which no real token sees."""
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    _require_not_float16("splash", q_BLHK)

    def attend(q_BLHK, k_BSHK, v_BSHK, q_pack_BL, k_pack_BS):
        _, length, heads, size = q_BLHK.shape
        keys = k_BSHK.shape[1]
        kind = splash.CausalMask if self.spec.causal else splash.FullMask
        head_mask = kind((length, keys))
        # Not sharded by itself: `shard_map` below gives it one device's part.
        kernel = splash.make_splash_mha(
            splash.MultiHeadMask([head_mask] * heads),
            head_shards=1,
            q_seq_shards=1,
            interpret=interpret,
        )
        # The kernel does not scale, and takes one row with the heads in front.
        q_BHLK = jnp.swapaxes(q_BLHK * size**-0.5, 1, 2)
        k_BHSK = jnp.swapaxes(k_BSHK, 1, 2)
        v_BHSK = jnp.swapaxes(v_BSHK, 1, 2)
        segments = splash.SegmentIds(q_pack_BL, k_pack_BS)
        o_BHLK = jax.vmap(kernel)(q_BHLK, k_BHSK, v_BHSK, segments)
        return jnp.swapaxes(o_BHLK, 1, 2)

    arrays = (
        (q_BLHK, (None, "heads", None)),
        (k_BSHK, (None, "heads", None)),
        (v_BSHK, (None, "heads", None)),
        (self.arrays["q_pack_BL"], (None,)),
        (self.arrays["k_pack_BS"], (None,)),
    )
    return on_each_device(attend, self.mesh, arrays)


_BACKENDS: dict[str, Any] = {
    "xla": (_prepare_xla, _xla),
    "chunked": (_prepare_chunked, _chunked),
    "cudnn": (_prepare_cudnn, _cudnn),
    "splash": (_prepare_splash, _splash),
    "flash": (_prepare_flash, _flash),
}
"""What makes its arrays for a batch, and what computes it."""
