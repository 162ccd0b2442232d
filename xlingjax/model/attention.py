"""Attention: a mask says who may see whom, a backend named by the user computes it or refuses;
nothing is substituted.

| backend | runs on |
|---|---|
| xla | everything |
| flash | TPU (not float16), NVIDIA GPU from Ampere on; 128 n tokens |
| chunked | everything, to whose rows a block of 32 to 128 queries fits |
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from xlingjax.errors import UserError
from xlingjax.model import chunked, distances
from xlingjax.model.distances import Distances
from xlingjax.model.layers import Key, dropout_keeps, static
from xlingjax.model.masks import Fields, Mask
from xlingjax.model.partition import first_device, on_each_device, row_devices
from xlingjax.model.weighted_sum import scores, weighted_sum
from xlingjax.runtime.traced_program import taken

Array = jax.Array
Turns = tuple[Array, Array]
KEPT = "flash"
"""What a kernel of GPUs keeps of its forward pass: the name is given in `flash_gpu.py`."""


class Refused(UserError, ValueError):
    """An attention backend cannot compute what it was asked for; the message names it."""


def require(holds: Any, backend: str, fault: str) -> None:
    if not holds:
        raise Refused(f"attention backend {backend} {fault}; use xla")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Attention:
    """A mask bound to the fields of one batch: what every layer shares. Call it on queries, keys
    and values."""

    # The arrays of the backend.
    arrays: dict[str, Array]
    mask: Mask = static()
    backend: str = static()
    dropout: float = static()
    mesh: Mesh | None = static(default=None)
    turns: Turns | None = None
    """Of queries and of keys: how far their positions turn them (`turns_of`)."""
    distances: Distances | None = None
    of_distances: tuple[Array, Array] | None = None
    """Their queries and keys [U, H, K] in a layer, which makes them of the states."""
    blocks: int = static(default=1)
    """Into so many a row is cut, each to be computed as a row of its own (`_blocks`)."""

    def step(self, q_RLHK: Array, k: Array, v: Array, axes: str) -> Array:
        """[R, L, H, K]: a decoder's step. `axes`, "BHSK" or "BHKS", are those of keys and values. R
        is B, or B times the beams, which are queries of their source and share its keys."""
        q_BLHK = q_RLHK.reshape(len(k), -1, *q_RLHK.shape[2:])
        # Whatever the backend: the kernels know no cache.
        o_BLHK = _xla(self, q_BLHK, k, v, 0.0, None, axes)
        return o_BLHK.reshape(q_RLHK.shape)

    def __call__(self, q_BLHK: Array, k_BSHK: Array, v_BSHK: Array, key: Key = None) -> Array:
        """[B, L, H, K] in the type of the values. Of keys and values there may be fewer heads, each
        of as many queries'. `key` None = no dropout."""
        compute = self._computed
        if self.turns is not None and self.backend != "xla":
            # Nothing is kept but queries, keys and values: what they are turned and cut into is
            # made again.
            policy = jax.checkpoint_policies.save_only_these_names(KEPT)
            compute = jax.checkpoint(compute, policy=policy)
        return compute(q_BLHK, k_BSHK, v_BSHK, key)

    def _computed(self, q_BLHK: Array, k_BSHK: Array, v_BSHK: Array, key: Key) -> Array:
        rate = 0.0 if key is None else self.dropout
        compute = _BACKENDS[self.backend][1]
        shape = q_BLHK.shape
        q_BLHK, k_BSHK = self._turned(q_BLHK, k_BSHK)
        shared = shape[2] // k_BSHK.shape[2]
        if shared > 1:
            k_BSHK, v_BSHK = jnp.repeat(k_BSHK, shared, 2), jnp.repeat(v_BSHK, shared, 2)
        if self.blocks > 1:
            q_BLHK = q_BLHK.reshape(-1, shape[1] // self.blocks, *shape[2:])
            k_BSHK, v_BSHK = _around((k_BSHK, v_BSHK), self.blocks, self.mask.window)
        return compute(self, q_BLHK, k_BSHK, v_BSHK, rate, key).reshape(shape)

    def weights(self, q_BLHK: Array, k_BSHK: Array) -> Array:
        """float32 [B, H, L, S]: the shares of the keys, without dropout; 0 where one is not seen.
        Raises `Refused` on another backend than xla: the others never have them all."""
        whole = self.backend == "xla" and self.blocks == 1
        require(whole, self.backend, "keeps no weights")
        q_BLHK, k_BSHK = self._turned(q_BLHK, k_BSHK)
        k_BSHK = jnp.repeat(k_BSHK, q_BLHK.shape[2] // k_BSHK.shape[2], 2)
        return jax.nn.softmax(self.scores(q_BLHK, k_BSHK), axis=-1)

    def biased(self, table_UH: Array) -> "Attention":
        """With what each distance adds to the scores of each head."""
        distances = dataclasses.replace(self.distances, states_UD=table_UH)
        if self.backend != "xla":
            return dataclasses.replace(self, distances=distances)
        bias_BHLS = self.arrays["bias_B1LS"] + distances.biases(distances.queries_BQ)
        return dataclasses.replace(self, arrays={"bias_B1LS": bias_BHLS}, distances=None)

    def parts(self, q_BLHK: Array, k_BSHK: Array) -> tuple[Any, Any]:
        """What disentangled scores are made of: what is of a query, and all else."""
        of = *self.of_distances, self.distances
        return (q_BLHK, self.distances.queries_BQ), (k_BSHK, *of)

    def scores(self, q_BLHK: Array, k: Array, axes: str = "BSHK") -> Array:
        """float32 [B, H, L, S], of the backend `xla`."""
        bias_B1LS = self.arrays["bias_B1LS"]
        if self.of_distances is not None:
            return distances.scores(*self.parts(q_BLHK, k)) + bias_B1LS
        return scores(q_BLHK, k, bias_B1LS, axes)

    def _turned(self, q_BLHK: Array, k_BSHK: Array) -> tuple[Array, Array]:
        if self.turns is None:
            return q_BLHK, k_BSHK
        return turned(q_BLHK, self.turns), turned(k_BSHK, self.turns)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Alternating:
    """The attention of a layer, called as `Attention` is: of whole rows or of a window."""

    whole: Attention
    local: Attention
    is_global: Array
    counts: tuple[int, int] = static()
    """Layers of each kind."""
    distances = None

    def __call__(self, *given: Array | None) -> Array:
        # By its number within the loop over layers, so that parameters stay one stacked array.
        return self._chosen(Attention.__call__, *given)

    def weights(self, *given: Array) -> Array:
        return self._chosen(Attention.weights, *given)

    def _chosen(self, method: Any, *given: Array | None) -> Array:
        # A window is soon computed again, and what it cuts rows into would be kept for each layer,
        # the global ones too.
        whole, local = self.counts
        return jax.lax.cond(
            self.is_global,
            taken(whole, whole + local, lambda *given: method(self.whole, *given)),
            taken(
                local,
                whole + local,
                jax.checkpoint(lambda *given: method(self.local, *given)),
            ),
            *given,
        )


def bind(
    mask: Mask,
    queries: Fields,
    keys: Fields,
    backend: str = "xla",
    dropout: float = 0.0,
    mesh: Mesh | None = None,
    turns: Turns | None = None,
    distances: Distances | None = None,
) -> Attention:
    """Prepares a backend for one batch. mesh: the devices that compute it, None: the one that JAX
    takes by itself. They need not be there, so that a program can be compiled for others. turns: of
    queries and keys, whose columns are then the same. Raises `Refused` naming the backend when it
    cannot compute on them."""
    if backend not in _BACKENDS:
        raise Refused(f"no attention backend {backend!r} (there are {', '.join(_BACKENDS)})")
    prepare, _ = _BACKENDS[backend]
    blocks = blocks_of(queries.pack.shape[1], mask.window)
    if blocks > 1:
        queries = jax.tree.map(lambda a: a.reshape(-1, a.shape[1] // blocks), queries)
        size, margin = queries.pack.shape[1], _margin(mask.window)
        keys = _around(keys, blocks, mask.window)
        # Beyond a row, too: nothing there is anyone's own column.
        first_R1 = jnp.arange(len(keys.pack))[:, None] % blocks * size - margin
        keys = dataclasses.replace(keys, position=first_R1 + jnp.arange(size + 2 * margin))
    arrays = prepare(mask, queries, keys, mesh)
    return Attention(arrays, mask, backend, dropout, mesh, turns, distances, None, blocks)


def turns_of(positions_BL: Array, size: int, theta: float) -> Turns:
    """float32 (cos, sin) [B, L, 1, K/2]: of each position times the speeds theta^(-2i/K)
    (Su et al. 2021, §3.2.2)."""
    speeds = theta ** -(jnp.arange(0, size, 2, dtype=jnp.float32) / size)
    angles = positions_BL[..., None, None] * speeds
    return jnp.cos(angles), jnp.sin(angles)


def turned(x_BLHK: Array, turns: Turns) -> Array:
    """Number i of a head and number i + K/2 are turned as one pair."""
    cos, sin = turns
    a, b = jnp.split(x_BLHK.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x_BLHK.dtype)


def _margin(window: int) -> int:
    """Columns on each side of a block that its queries may see: kernels take 128 n keys."""
    return -(-window // 128) * 64


def blocks_of(length: int, window: int) -> int:
    """Into how many blocks a row is cut, of which each sees itself and its margins; 1: that pays
    not."""
    margin = _margin(window)
    sizes = [n for n in range(max(margin, 1), max(128, 2 * margin) + 1) if not length % n]
    # Kernels take 128 n queries.
    size = max(sizes, key=lambda n: (n % 128 == 0, n), default=length)
    if not window or length < 2 * (size + 2 * margin):
        return 1
    return length // size


def _around(arrays: Any, blocks: int, window: int) -> Any:
    """Each array [B, S, ...] as [B * blocks, S / blocks + 2 margins, ...], zeros beyond the rows:
    what the queries of each block may see."""
    margin = _margin(window)

    def cut(x: Array) -> Array:
        rows, keys, *rest = x.shape
        size = keys // blocks
        x = x.reshape(rows, blocks, size, *rest)
        edges = [(0, 0), (1, 1), (0, 0), *[(0, 0) for _ in rest]]
        x = jnp.pad(x, edges)
        before = x[:, :-2, size - margin :]
        after = x[:, 2:, :margin]
        return jnp.concatenate([before, x[:, 1:-1], after], 2).reshape(
            rows * blocks, size + 2 * margin, *rest
        )

    return jax.tree.map(cut, arrays)


def _platform(mesh: Mesh | None) -> str:
    """ "cpu", "gpu", "tpu" ..."""
    # Not the process's: a program can be compiled for devices that are not there.
    return first_device(mesh).platform


def _prepare_xla(mask: Mask, queries: Fields, keys: Fields, mesh: Mesh | None) -> dict[str, Array]:
    # The lowest number hides a key as -inf does, for every query sees one key at least, and is
    # finite: nothing that is done with it gives NaN. Made once for all layers.
    bias_BLS = jnp.where(mask(queries, keys), 0.0, jnp.finfo(jnp.float32).min)
    return {"bias_B1LS": bias_BLS[:, None].astype(jnp.float32)}


def _xla(self: Attention, q_BLHK, k, v, rate, key, axes="BSHK"):
    s_BHLS = self.scores(q_BLHK, k, axes)
    keeps_BHLS = None
    if rate and key is not None:
        keeps_BHLS = dropout_keeps(s_BHLS.shape, rate, key)
    return weighted_sum(s_BHLS, v, keeps_BHLS, rate, axes)


def require_length(holds: Any, backend: str, tokens: int) -> None:
    takes = "128 n tokens, as many as fit on the chip"
    if backend == "chunked":
        takes = f"columns that a block of {chunked.LEAST} to {chunked.BLOCK} queries divides"
    require(holds, backend, f"takes rows of {takes}, not of {tokens}: change LENGTH")


def _prepare_chunked(
    mask: Mask, queries: Fields, keys: Fields, mesh: Mesh | None
) -> dict[str, Fields]:
    length = queries.pack.shape[1]
    require_length(chunked.block_of(length), "chunked", length)
    return {"queries": queries, "keys": keys}


def _chunked(self: Attention, q_BLHK, k_BSHK, v_BSHK, rate, key):
    fields = self.arrays["queries"], self.arrays["keys"]
    score, part, whole = _score, (q_BLHK, fields[0].position), (k_BSHK, self.distances)
    if self.of_distances is not None:
        score, (part, whole) = distances.scores, self.parts(q_BLHK, k_BSHK)
    return chunked.attend(score, self.mask, rate, part, whole, v_BSHK, *fields, key)


def _score(part: Any, whole: Any) -> Array:
    (q_BQHK, positions_BQ), (k_BSHK, apart) = part, whole
    bias = 0.0 if apart is None else apart.biases(positions_BQ)
    return scores(q_BQHK, k_BSHK, bias, "BSHK")


def _prepare_flash(
    mask: Mask, queries: Fields, keys: Fields, mesh: Mesh | None
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
    rows, devices = len(queries.pack), 1 if mesh is None else row_devices(mesh)
    require(not rows % devices, "flash", f"cannot spread {rows} rows over {devices} devices")
    # The kernel of TPUs takes what is of a key as a column.
    axis = 2 if platform == "tpu" else 1
    return {"queries": flash.fields_of(queries, 1), "keys": flash.fields_of(keys, axis)}


def _flash(self: Attention, q_BLHK, k_BSHK, v_BSHK, rate, key, interpret: bool = False):
    from xlingjax.model import flash, flash_gpu

    rows, length, heads, size = q_BLHK.shape
    if _platform(self.mesh) == "tpu":
        require(q_BLHK.dtype != jnp.float16, "flash", "does not compute in float16")
        run = flash.attend
    else:
        fits = size >= 16 and not size & (size - 1)
        require(fits, "flash", f"takes heads of 16, 32, 64 ... on GPUs, not of {size}")
        run = flash_gpu.attend
    keys = k_BSHK.shape[1]
    last = keys - 1 if self.blocks == 1 else flash.NO_COLUMN
    kernel = flash.Kernel(self.mask, rate, interpret, length, keys, size, last)
    arrays = (
        (q_BLHK, (None, "heads", None)),
        (k_BSHK, (None, "heads", None)),
        (v_BSHK, (None, "heads", None)),
        (self.arrays["queries"], (None, None)),
        (self.arrays["keys"], (None, None)),
        (flash.seeds_of(key, rows, heads), ("heads", None, None)),
    )
    return on_each_device(partial(run, kernel), self.mesh, arrays)


_BACKENDS: dict[str, Any] = {
    "xla": (_prepare_xla, _xla),
    "chunked": (_prepare_chunked, _chunked),
    "flash": (_prepare_flash, _flash),
}
"""What makes its arrays for a batch, and what computes it."""
