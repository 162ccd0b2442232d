"""One transformer block: self-attention, the optional cross-attention slot, feed-forward."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlingjax.model.attention import Attention
from xlingjax.model.config import ModelConfig
from xlingjax.model.layers import Dense, Embed, Key, Norm, activation, dropout, split_key

Array = jax.Array


WEIGHTS = "intermediates"
"""The collection of what is looked at and not passed on: attention weights. Flax makes none of this
name unless it is asked to, when parameters are made neither."""

KeysValues = tuple[Array, Array]
"""Of a decoder's steps: each [B, H, S, K] of its earlier columns, to which columns are added, and
[B, H, K, S] of the source, which stay. As BSHK they would be copied, transposed, at each step."""


def by_head(x_BSHK: Array) -> Array:
    """[B, H, S, K]"""
    return jnp.swapaxes(x_BSHK, 1, 2)


def written(past: tuple[KeysValues, Array], new: tuple[Array, Array]) -> KeysValues:
    """The past with new ones, [B, L, H, K], in the columns from its number on."""
    (keys_BHSK, values_BHSK), column = past
    new_keys_BLHK, new_values_BLHK = new
    # Into room made beforehand: a cache that grows
    # would be another shape, and program, at each step.
    keys_BHSK = jax.lax.dynamic_update_slice_in_dim(keys_BHSK, by_head(new_keys_BLHK), column, 2)
    values_BHSK = jax.lax.dynamic_update_slice_in_dim(
        values_BHSK, by_head(new_values_BLHK), column, 2
    )
    return keys_BHSK, values_BHSK


class MultiHeadAttention(nn.Module):
    """-> (y_BLD, the longer past). `memory`: the states that x attends to, or their keys and values
    (a decoder's step). past: keys and values of earlier columns, into which memory's are written,
    and the number of the first new one; None: there are none."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self,
        x_BLD: Array,
        memory: Array | KeysValues,
        attention: Attention,
        key: Key,
        past: tuple[KeysValues, Array] | None = None,
    ):
        c = self.config

        def project(name: str, heads: int) -> Dense:
            names = ("embed",), ("heads", "kv")
            return Dense(c, (heads, c.head_dim), *names, c.attention_bias, c.lora, name=name)

        kv_heads = c.kv_heads or c.heads
        query, key_of = project("query", c.heads), project("key", kv_heads)
        q_BLHK = query(x_BLD)
        if c.has_biases:
            # Backends divide by it, and T5 does not.
            q_BLHK = q_BLHK * c.head_dim**0.5
        if c.positions == "relative_by_layer" and attention.distances is not None:
            attention = attention.biased(distance_biases(c))
        if isinstance(memory, tuple):
            o_BLHK = attention.step(q_BLHK, *memory, "BHKS")
        else:
            # Computed only here: at a decoder's steps those of the source never change.
            k_BSHK = key_of(memory)
            v_BSHK = project("value", kv_heads)(memory)
            if past is None:
                if c.positions == "disentangled" and attention.distances is not None:
                    own = None if key is None else jax.random.fold_in(key, 1)
                    states_UD = dropout(attention.distances.states_UD, c.dropout, own)
                    of_distances = query(states_UD), key_of(states_UD)
                    attention = dataclasses.replace(attention, of_distances=of_distances)
                if self.is_mutable_collection(WEIGHTS):
                    weights_BHLS = attention.weights(q_BLHK, k_BSHK)
                    self.sow(WEIGHTS, "weights", weights_BHLS)
                o_BLHK = attention(q_BLHK, k_BSHK, v_BSHK, key)
            else:
                past = written(past, (k_BSHK, v_BSHK))
                o_BLHK = attention.step(q_BLHK, *past, "BHSK")
        names = ("heads", "kv"), ("embed",)
        y_BLD = Dense(c, (c.dim,), *names, c.attention_bias, c.lora, name="out")(o_BLHK)
        return y_BLD, past


def distance_biases(config: ModelConfig) -> Array:
    """[U, H], parameters `distances/embedding` of the module that asks."""
    buckets_U = jnp.arange(config.relative_buckets)
    names = (None, "heads")
    return Embed(config, len(buckets_U), names, width=config.heads, name="distances")(buckets_U)


class CrossAttention(nn.Module):
    """The slot's own parameters, its LayerNorm among them, under one name."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self, x_BLD: Array, memory: Array | KeysValues, attention: Attention, keys
    ) -> Array:
        c = self.config
        attend = MultiHeadAttention(c, name="attention")
        norm = Norm(c, name="norm")
        if c.norm_order == "pre":
            y_BLD, _ = attend(norm(x_BLD), memory, attention, keys[0])
            return x_BLD + dropout(y_BLD, c.dropout, keys[1])
        y_BLD, _ = attend(x_BLD, memory, attention, keys[0])
        return norm(x_BLD + dropout(y_BLD, c.dropout, keys[1]))


class FeedForward(nn.Module):
    config: ModelConfig

    @nn.compact
    def __call__(self, x_BLD: Array) -> Array:
        c = self.config
        inwards = (c.ffn,), ("embed",), ("mlp",), c.ffn_bias == "both", c.lora
        h_BLF = activation(c, Dense(c, *inwards, name="in")(x_BLD))
        if c.gated:
            h_BLF = h_BLF * Dense(c, *inwards, name="gate")(x_BLD)
        outwards = (c.dim,), ("mlp",), ("embed",), c.ffn_bias != "none", c.lora
        return Dense(c, *outwards, name="out")(h_BLF)


class Block(nn.Module):
    """x_BLD -> (x_BLD, the longer past). `memory` = (memory_BSD or its keys and values, its
    Attention) feeds the cross-attention slot; None leaves it out. past: see `MultiHeadAttention`.

    `key` None = no dropout; number: the layer's. Post-LN: norm(x + f(x)) (XLM §3); pre-LN:
    x + f(norm(x)).
    self_attention: a module that is called as `MultiHeadAttention` is.
    """

    config: ModelConfig
    self_attention: type[nn.Module] = MultiHeadAttention

    @nn.compact
    def __call__(
        self,
        x_BLD: Array,
        key: Key,
        attention: Attention,
        memory: tuple[Array | KeysValues, Attention] | None,
        past: tuple[KeysValues, Array] | None = None,
        number: Array | int = 0,
    ):
        c = self.config
        keys = split_key(key, 5)
        self_attention = self.self_attention(c, name="attention")
        attention_norm = Norm(c, name="attention_norm")
        feed_forward = FeedForward(c, name="ffn")
        ffn_norm = Norm(c, name="ffn_norm")
        pre = c.norm_order == "pre"

        plugged_in = c.cross_attention and memory is not None
        # VECO's equations 6-9 ask from the layer below, its prose and decoders from after the
        # self-attention. Its parameters are made in either case: the plugged-out pass needs them.
        skips_itself = plugged_in and c.cross_attention_query != "self_attention"
        if not skips_itself or self.is_initializing():
            y_BLD = x_BLD
            if pre:
                y_BLD = attention_norm(x_BLD)
                if not c.first_norm:
                    y_BLD = jnp.where(number == 0, x_BLD, y_BLD)
            seen_BLD, past = self_attention(y_BLD, y_BLD, attention, keys[0], past)
            x_BLD = x_BLD + dropout(seen_BLD, c.dropout, keys[1])
            if not pre:
                x_BLD = attention_norm(x_BLD)
        if plugged_in:
            # The slot's keys stand last, so that a model has the same dropout with and without it.
            x_BLD = CrossAttention(c, name="cross_attention")(x_BLD, *memory, keys[3:])
        y_BLD = x_BLD
        if pre:
            y_BLD = ffn_norm(x_BLD)
        x_BLD = x_BLD + dropout(feed_forward(y_BLD), c.dropout, keys[2])
        if not pre:
            x_BLD = ffn_norm(x_BLD)
        return x_BLD, past
