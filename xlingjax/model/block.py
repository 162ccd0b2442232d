"""One transformer block: self-attention, the optional cross-attention slot, feed-forward."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlingjax.model.attention import Attention
from xlingjax.model.config import ModelConfig
from xlingjax.model.layers import Dense, LayerNorm, dropout, gelu

Array = jax.Array


KeysValues = tuple[Array, Array]
"""Of a decoder's steps: each [B, H, S, K] of its earlier columns, to which columns are added, and
[B, H, K, S] of the source, which stay. As BSHK they would be copied, transposed, at each step."""


def by_head(x_BSHK: Array) -> Array:
    """[B, H, S, K]"""
    return jnp.swapaxes(x_BSHK, 1, 2)


def written(past: tuple[KeysValues, Array], new: tuple[Array, Array]) -> KeysValues:
    """The past with new ones, [B, L, H, K], in the columns from its number on."""
    earlier, column = past
    pairs = zip(earlier, new, strict=True)
    return tuple(jax.lax.dynamic_update_slice_in_dim(a, by_head(b), column, 2) for a, b in pairs)


class MultiHeadAttention(nn.Module):
    """`memory`: the states that x attends to, or their keys and values (a decoder's step). With a
    `past`, keys and values of earlier columns and the number of the first new one, memory's are
    written into it and it is returned
    too."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self,
        x_BLD: Array,
        memory: Array | KeysValues,
        attention: Attention,
        key: Array | None,
        past: tuple[KeysValues, Array] | None = None,
    ):
        c = self.config
        project = dict(
            outputs=(c.heads, c.head_dim), input_names=("embed",), output_names=("heads", "kv")
        )
        q_BLHK = Dense(c, **project, name="query")(x_BLD)
        if isinstance(memory, tuple):
            o_BLHK = attention.step(q_BLHK, *memory, "BHKS")
        else:
            memory = (
                Dense(c, **project, name="key")(memory),
                Dense(c, **project, name="value")(memory),
            )
            if past is None:
                o_BLHK = attention(q_BLHK, *memory, key)
            else:
                memory = written(past, memory)
                o_BLHK = attention.step(q_BLHK, *memory, "BHSK")
        y_BLD = Dense(c, (c.dim,), ("heads", "kv"), ("embed",), name="out")(o_BLHK)
        return y_BLD if past is None else (y_BLD, memory)


class CrossAttention(nn.Module):
    """The slot's own parameters, its LayerNorm among them, under one name."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self, x_BLD: Array, memory: Array | KeysValues, attention: Attention, keys
    ) -> Array:
        attend = MultiHeadAttention(self.config, name="attention")
        norm = LayerNorm(self.config, name="norm")
        if self.config.norm_order == "pre":
            return x_BLD + dropout(
                attend(norm(x_BLD), memory, attention, keys[0]), self.config.dropout, keys[1]
            )
        return norm(
            x_BLD + dropout(attend(x_BLD, memory, attention, keys[0]), self.config.dropout, keys[1])
        )


class FeedForward(nn.Module):
    config: ModelConfig

    @nn.compact
    def __call__(self, x_BLD: Array) -> Array:
        c = self.config
        h_BLF = gelu(c, Dense(c, (c.ffn,), ("embed",), ("mlp",), name="in")(x_BLD))
        return Dense(c, (c.dim,), ("mlp",), ("embed",), name="out")(h_BLF)


class Block(nn.Module):
    """x_BLD -> x_BLD. `memory` = (memory_BSD or its keys and values, its Attention) feeds the
    cross-attention slot; None leaves it out. With a `past` (see `MultiHeadAttention`) -> (x_BLD,
    the longer past).

    `key` None = no dropout. Post-LN: norm(x + f(x)) (XLM §3); pre-LN: x + f(norm(x)).
    self_attention: a module that is called as `MultiHeadAttention` is.
    """

    config: ModelConfig
    self_attention: type[nn.Module] = MultiHeadAttention

    @nn.compact
    def __call__(
        self,
        x_BLD: Array,
        key: Array | None,
        attention: Attention,
        memory: tuple[Array | KeysValues, Attention] | None,
        past: tuple[KeysValues, Array] | None = None,
    ):
        c = self.config
        keys = [None] * 5 if key is None else jax.random.split(key, 5)
        self_attention = self.self_attention(c, name="attention")
        attention_norm = LayerNorm(c, name="attention_norm")
        feed_forward = FeedForward(c, name="ffn")
        ffn_norm = LayerNorm(c, name="ffn_norm")
        pre = c.norm_order == "pre"

        plugged_in = c.cross_attention and memory is not None
        if not plugged_in or c.cross_attention_query == "self_attention" or self.is_initializing():
            y_BLD = attention_norm(x_BLD) if pre else x_BLD
            seen_BLD = self_attention(y_BLD, y_BLD, attention, keys[0], past)
            seen_BLD, longer = (seen_BLD, None) if past is None else seen_BLD
            x_BLD = x_BLD + dropout(seen_BLD, c.dropout, keys[1])
            if not pre:
                x_BLD = attention_norm(x_BLD)
        if plugged_in:
            x_BLD = CrossAttention(c, name="cross_attention")(x_BLD, *memory, keys[3:])
        y_BLD = ffn_norm(x_BLD) if pre else x_BLD
        x_BLD = x_BLD + dropout(feed_forward(y_BLD), c.dropout, keys[2])
        x_BLD = x_BLD if pre else ffn_norm(x_BLD)
        return x_BLD if past is None else (x_BLD, longer)
