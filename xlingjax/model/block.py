"""One transformer block: self-attention, the optional cross-attention slot, feed-forward."""

import flax.linen as nn
import jax

from xlingjax.model.attention import Attention
from xlingjax.model.config import ModelConfig
from xlingjax.model.layers import Dense, LayerNorm, dropout, gelu

Array = jax.Array


class MultiHeadAttention(nn.Module):
    config: ModelConfig

    @nn.compact
    def __call__(self, x_BLD: Array, memory_BSD: Array, attention: Attention, key: Array | None) -> Array:
        c = self.config
        project = dict(outputs=(c.heads, c.head_dim), input_names=("embed",), output_names=("heads", "kv"))
        q_BLHK = Dense(c, **project, name="query")(x_BLD)
        k_BSHK = Dense(c, **project, name="key")(memory_BSD)
        v_BSHK = Dense(c, **project, name="value")(memory_BSD)
        o_BLHK = attention(q_BLHK, k_BSHK, v_BSHK, key)
        return Dense(c, (c.dim,), ("heads", "kv"), ("embed",), name="out")(o_BLHK)


class CrossAttention(nn.Module):
    """The slot's own parameters, its LayerNorm among them, under one name."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x_BLD: Array, memory_BSD: Array, attention: Attention, keys) -> Array:
        attend = MultiHeadAttention(self.config, name="attention")
        norm = LayerNorm(self.config, name="norm")
        if self.config.norm_order == "pre":
            return x_BLD + dropout(attend(norm(x_BLD), memory_BSD, attention, keys[0]), self.config.dropout, keys[1])
        return norm(x_BLD + dropout(attend(x_BLD, memory_BSD, attention, keys[0]), self.config.dropout, keys[1]))


class FeedForward(nn.Module):
    config: ModelConfig

    @nn.compact
    def __call__(self, x_BLD: Array) -> Array:
        c = self.config
        h_BLF = gelu(c, Dense(c, (c.ffn,), ("embed",), ("mlp",), name="in")(x_BLD))
        return Dense(c, (c.dim,), ("mlp",), ("embed",), name="out")(h_BLF)


class Block(nn.Module):
    """x_BLD -> x_BLD. `memory` = (memory_BSD, its Attention) feeds the cross-attention slot; None leaves it out.

    `key` None = no dropout. Post-LN: norm(x + f(x)) (XLM §3); pre-LN: x + f(norm(x)).
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, x_BLD: Array, key: Array | None, attention: Attention, memory: tuple[Array, Attention] | None):
        c = self.config
        keys = [None] * 5 if key is None else jax.random.split(key, 5)
        self_attention = MultiHeadAttention(c, name="attention")
        attention_norm = LayerNorm(c, name="attention_norm")
        feed_forward = FeedForward(c, name="ffn")
        ffn_norm = LayerNorm(c, name="ffn_norm")
        pre = c.norm_order == "pre"

        plugged_in = c.cross_attention and memory is not None
        if not plugged_in or c.cross_attention_query == "self_attention" or self.is_initializing():
            y_BLD = attention_norm(x_BLD) if pre else x_BLD
            x_BLD = x_BLD + dropout(self_attention(y_BLD, y_BLD, attention, keys[0]), c.dropout, keys[1])
            if not pre:
                x_BLD = attention_norm(x_BLD)
        if plugged_in:
            x_BLD = CrossAttention(c, name="cross_attention")(x_BLD, *memory, keys[3:])
        y_BLD = ffn_norm(x_BLD) if pre else x_BLD
        x_BLD = x_BLD + dropout(feed_forward(y_BLD), c.dropout, keys[2])
        return x_BLD if pre else ffn_norm(x_BLD)
