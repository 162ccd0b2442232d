"""Scores, and what they make of values, for attention by XLA's own operations: softmax, dropout,
the sum.

The backward pass is written out, so that less of [B, H, L, S] is kept for it: the weights once, in
the type of the values, and what dropout leaves. JAX would keep them in float32 and after dropout,
too.
"""

import functools

import jax
import jax.numpy as jnp

from xlingjax.model.layers import kept_of

Array = jax.Array


def scores(q_BLHK: Array, k: Array, bias_B1LS: Array, axes: str) -> Array:
    """float32 [B, H, L, S]. axes: of the keys, "BSHK"."""
    # The queries are scaled, not the scores: there are fewer of them.
    q_BLHK = q_BLHK * (q_BLHK.shape[-1] ** -0.5)
    s_BHLS = jnp.einsum(f"BLHK,{axes}->BHLS", q_BLHK, k, preferred_element_type=jnp.float32)
    return s_BHLS + bias_B1LS


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def weighted_sum(
    s_BHLS: Array, v: Array, keeps_BHLS: Array | None, rate: float, axes: str
) -> Array:
    """[B, L, H, K] in the type of the values. s_BHLS: float32; keeps_BHLS: `dropout_keeps`, None:
    no dropout; axes: of the values, "BSHK"."""
    return _forward(s_BHLS, v, keeps_BHLS, rate, axes)[0]


def _dropped(p_BHLS, keeps_BHLS, rate):
    if keeps_BHLS is None:
        return p_BHLS
    return kept_of(p_BHLS, keeps_BHLS, rate)


def _forward(s_BHLS, v, keeps_BHLS, rate, axes):
    # The softmax in float32, its product with the values in their type.
    p_BHLS = jax.nn.softmax(s_BHLS, axis=-1).astype(v.dtype)
    o_BLHK = jnp.einsum(f"BHLS,{axes}->BLHK", _dropped(p_BHLS, keeps_BHLS, rate), v)
    return o_BLHK, (p_BHLS, v, keeps_BHLS)


def _backward(rate, axes, kept, do_BLHK):
    p_BHLS, v, keeps_BHLS = kept
    dv = jnp.einsum(f"BHLS,BLHK->{axes}", _dropped(p_BHLS, keeps_BHLS, rate), do_BLHK)
    dp_BHLS = jnp.einsum(f"BLHK,{axes}->BHLS", do_BLHK, v)
    dp_BHLS = _dropped(dp_BHLS, keeps_BHLS, rate).astype(jnp.float32)
    wide_BHLS = p_BHLS.astype(jnp.float32)
    along_BHL1 = (dp_BHLS * wide_BHLS).sum(-1, keepdims=True)
    # Rounded weights do not sum to 1, and what all scores of a row have in common must cancel.
    if p_BHLS.dtype != jnp.float32:
        along_BHL1 /= wide_BHLS.sum(-1, keepdims=True)
    return wide_BHLS * (dp_BHLS - along_BHL1), dv, None


weighted_sum.defvjp(_forward, _backward)
