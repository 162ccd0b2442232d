"""The leaves: Dense, Norm, Embed, each with the logical names of its axes, and dropout.

Logical names: "vocab", "embed", "heads", "kv", "mlp", "layers"; None is never split. `partition.py`
maps them to the axes of the mesh.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlingjax.model.config import ModelConfig

Array = jax.Array
Key = Array | None  # of dropout, or of draws; None: without them
Names = tuple[str | None, ...]

static = functools.partial(dataclasses.field, metadata={"static": True})
"""A field of a dataclass in a tree of arrays that is none: jit keeps a program for each value."""


def parameter(
    module: nn.Module, name: str, init: Callable, names: Names, shape: tuple[int, ...]
) -> Array:
    """A module's parameter in float32, whose axes have these logical names."""
    return module.param(name, nn.with_logical_partitioning(init, names), shape, jnp.float32)


def kernel_init(config: ModelConfig, fan_in: int) -> Callable:
    """N(0, init_std), or the U(-1/sqrt(fan_in), 1/sqrt(fan_in)) that XLM's linear layers start
    from."""
    if config.init_std:
        return nn.initializers.normal(config.init_std)
    # PyTorch's default of a linear layer, which XLM's code leaves as it is.
    bound = fan_in**-0.5
    return lambda key, shape, dtype: jax.random.uniform(key, shape, dtype, -bound, bound)


class Dense(nn.Module):
    """Contracts the last axes of x with a kernel of shape inputs + outputs, and adds a bias of
    shape outputs."""

    config: ModelConfig
    outputs: tuple[int, ...]
    input_names: Names = ("embed",)
    output_names: Names = (None,)
    bias: bool = True
    lora: int = 0

    @nn.compact
    def __call__(self, x: Array) -> Array:
        n = len(self.input_names)
        inputs = x.shape[-n:]
        fan_in = math.prod(inputs)
        # A decoder's step may have the kernel by rows (`by_rows`); nothing else has.
        rows_OI = self.get_variable("params", "rows")
        if rows_OI is None:
            names, init = self.input_names + self.output_names, kernel_init(self.config, fan_in)
            kernel = parameter(self, "kernel", init, names, inputs + self.outputs)
        dtype = jnp.dtype(self.config.dtype)
        bias = jnp.zeros((), dtype)
        if self.bias:
            zeros = nn.initializers.zeros
            bias = parameter(self, "bias", zeros, self.output_names, self.outputs).astype(dtype)
        x = x.astype(dtype)
        if self.lora:
            bias = bias + self._low_rank(x, fan_in)
        if rows_OI is not None:
            y_RO = product_of_few(rows_OI, x.reshape(-1, fan_in)).T
            return y_RO.reshape(*x.shape[:-n], *self.outputs) + bias
        return jnp.tensordot(x, kernel.astype(dtype), n) + bias

    def _low_rank(self, x: Array, fan_in: int) -> Array:
        """0 at first: the second factor is."""
        n, rank = len(self.input_names), (self.lora,)
        normal = nn.initializers.normal(fan_in**-0.5)
        names = *self.input_names, None
        inwards = parameter(self, "lora_in", normal, names, x.shape[-n:] + rank)
        names = None, *self.output_names
        zeros = nn.initializers.zeros
        outwards = parameter(self, "lora_out", zeros, names, rank + self.outputs)
        y = jnp.tensordot(jnp.tensordot(x, inwards.astype(x.dtype), n), outwards.astype(x.dtype), 1)
        return y * self.config.lora_scale


def by_rows(params: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Parameters of modules in which each Dense has `rows` [outputs, inputs], for `product_of_few`,
    and no kernel."""
    result = {}
    for name, value in params.items():
        if isinstance(value, dict) and "kernel" in value:
            # Of heads, what joins them has two axes of inputs; what makes them, of outputs.
            kernel, rest = value["kernel"], {**value}
            del rest["kernel"]
            inputs = kernel.shape[:-1] if name == "out" else kernel.shape[:1]
            rest["rows"] = kernel.reshape(math.prod(inputs), -1).T.astype(dtype)
            value = rest
        elif isinstance(value, dict):
            value = by_rows(value, dtype)
        result[name] = value
    return result


def product_of_few(rows_OI: Array, x_RI: Array, **options: Any) -> Array:
    """[O, R], for a few x and many rows. A library on CPU reads the left side of a product as it
    lies, and copies the right one into an order of its own at every call; so the large one is left,
    and the barrier keeps XLA from turning them round."""
    return jax.lax.optimization_barrier(jnp.einsum("OI,RI->OR", rows_OI, x_RI, **options))


class Norm(nn.Module):
    """LayerNorm or RMSNorm over the last axis, in float32, returned in the compute type."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x_BLD: Array) -> Array:
        c = self.config
        shape = x_BLD.shape[-1:]
        scale_D = parameter(self, "scale", nn.initializers.ones, (None,), shape)
        if c.norm == "rms":
            x = x_BLD.astype(jnp.float32)
            x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + c.norm_eps)
            return (x * scale_D).astype(c.dtype)
        bias_D = jnp.zeros(shape, jnp.float32)
        if c.norm_bias:
            bias_D = parameter(self, "bias", nn.initializers.zeros, (None,), shape)
        return _normalised(x_BLD, scale_D, bias_D, self.config.norm_eps, self.config.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _normalised(x_BLD: Array, scale_D: Array, bias_D: Array, eps: float, dtype: str) -> Array:
    x_hat, _ = _standardised(x_BLD, eps)
    return (x_hat * scale_D + bias_D).astype(dtype)


def _standardised(x_BLD: Array, eps: float) -> tuple[Array, Array]:
    """(of mean 0 and variance 1, what it was multiplied with), in float32."""
    # The mean is taken off first: E[x^2] - E[x]^2 would lose the digits of small variances.
    x = x_BLD.astype(jnp.float32)
    x = x - x.mean(-1, keepdims=True)
    factor = jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + eps)
    return x * factor, factor


def _normalised_forward(x_BLD, scale_D, bias_D, eps, dtype):
    # Its input alone is kept, in the compute type: what JAX would keep is float32, several times.
    y_BLD = _normalised(x_BLD, scale_D, bias_D, eps, dtype)
    return y_BLD, (x_BLD, scale_D)


def _normalised_backward(eps, dtype, kept, dy_BLD):
    x_BLD, scale_D = kept
    x_hat, factor = _standardised(x_BLD, eps)
    dy_BLD = dy_BLD.astype(jnp.float32)
    rows = tuple(range(dy_BLD.ndim - 1))
    dx_hat = dy_BLD * scale_D
    along = (dx_hat * x_hat).mean(-1, keepdims=True)
    dx = factor * (dx_hat - dx_hat.mean(-1, keepdims=True) - x_hat * along)
    return (dx.astype(x_BLD.dtype), (dy_BLD * x_hat).sum(rows), dy_BLD.sum(rows))


_normalised.defvjp(_normalised_forward, _normalised_backward)


class Embed(nn.Module):
    """Looks ids up in a float32 table of `rows` x D, or x `width`."""

    config: ModelConfig
    rows: int
    names: Names
    init_value: Callable | None = None
    width: int | None = None

    @nn.compact
    def __call__(self, ids_BL: Array) -> Array:
        c = self.config
        init_value = self.init_value or nn.initializers.normal(c.init_std or c.dim**-0.5)
        shape = self.rows, self.width or c.dim
        table = parameter(self, "embedding", init_value, self.names, shape)
        # A lookup, not a product with one-hot vectors, which would cost as much as the head.
        return jnp.take(table, ids_BL, axis=0)


def activation(config: ModelConfig, x: Array) -> Array:
    """GELU: x * Phi(x) by erf, as XLM and BERT write it; with tanh: the usual approximation."""
    return _ACTIVATIONS[config.activation](x)


@jax.custom_vjp
def _exact_gelu(x: Array) -> Array:
    return x * (0.5 + 0.5 * jax.lax.erf(x * math.sqrt(0.5)))


def _exact_gelu_forward(x):
    # x alone is kept: JAX would keep two more arrays of the feed-forward's width.
    return _exact_gelu(x), x


def _exact_gelu_backward(x, dy):
    wide = x.astype(jnp.float32)
    below = 0.5 + 0.5 * jax.lax.erf(wide * math.sqrt(0.5))
    density = jnp.exp(-0.5 * jnp.square(wide)) / math.sqrt(2 * math.pi)
    return ((dy * (below + wide * density)).astype(x.dtype),)


_exact_gelu.defvjp(_exact_gelu_forward, _exact_gelu_backward)

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": _exact_gelu,
    "gelu_tanh": jax.nn.gelu,
    "silu": jax.nn.silu,
    "relu": jax.nn.relu,
}


def split_key(key: Key, count: int = 2) -> Sequence[Array | None]:
    """Keys for `count` uses; without one (no dropout) as many Nones."""
    if key is None:
        return [None] * count
    return jax.random.split(key, count)


@jax.named_scope("dropout")
def dropout(x: Array, rate: float, key: Key) -> Array:
    """Zeroes a share `rate` of x (to the nearest 1/65536) and scales the rest to keep the mean;
    `key` None = identity."""
    if key is None or rate == 0.0:
        return x
    return kept_of(x, dropout_keeps(x.shape, rate, key), rate)


def dropout_keeps(shape: tuple[int, ...], rate: float, key: Array) -> Array:
    """bool: what dropout leaves.

    One 32-bit random word decides over two elements: random numbers are most of dropout's cost.
    """
    *rest, size = shape
    bits = jax.random.bits(key, (*rest, (size + 1) // 2), jnp.uint32)
    halves = jnp.concatenate([bits & 0xFFFF, bits >> 16], axis=-1)[..., :size]
    return halves >= _threshold(rate)


def kept_of(x: Array, keeps: Array, rate: float) -> Array:
    """x where `dropout_keeps` leaves it, scaled, and 0 elsewhere."""
    # By the rounded rate, so that the mean is kept exactly.
    scale = 65536 / (65536 - _threshold(rate))
    return jnp.where(keeps, x * jnp.asarray(scale, x.dtype), jnp.zeros_like(x))


def _threshold(rate: float) -> int:
    return round(rate * 65536)
