"""Masked-position gather and cross-entropy over a large vocabulary, in float32, without holding every logit."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array


class CrossEntropy(NamedTuple):
    loss: Array
    """Scalar: sum of weight * nll. The only differentiable field."""
    nll_T: Array
    """Per token in nats, float32; 0 where the weight is 0."""
    correct_T: Array
    """float32: 1 where the target's logit is the greatest, no other equal to it; 0 where the weight is 0."""


def gather_positions(h_BLD: Array, positions_BM: Array) -> Array:
    """h_BMD: the states at the prediction slots, so that logits are computed nowhere else."""
    return jnp.take_along_axis(h_BLD, positions_BM[..., None], axis=1)


def cross_entropy(
    h_TD: Array,
    table_VD: Array,
    bias_V: Array,
    targets_T: Array,
    weights_T: Array,
    *,
    vocab_size: int,
    chunk: int = 0,
) -> CrossEntropy:
    """Cross-entropy of softmax(h @ table.T + bias) in float32, differentiable in h, table and bias.

    Vocabulary rows from `vocab_size` on are padding and get probability 0. `chunk` > 0 works on that many tokens at a
    time, so that no more than [chunk, V] logits exist at once; 0 = all tokens at once. The gradient is formed in the
    same pass as the loss and scaled afterwards, which spares computing the logits twice: the loss is one weighted sum,
    so its cotangent is one scalar. Weights are constants (no gradient).
    """
    tokens, columns = h_TD.shape[0], table_VD.shape[0]
    padding_V = jnp.arange(columns) >= vocab_size
    bias_V = jnp.where(padding_V, jnp.finfo(jnp.float32).min, bias_V.astype(jnp.float32))
    weights_T = weights_T.astype(jnp.float32)
    size = min(chunk, tokens) if chunk else tokens
    count = -(-tokens // size)

    def split(x_T):
        """[count, size, ...], chunk i = tokens i, i + count, ...: each chunk then spans every device that holds rows."""
        x_T = jnp.pad(x_T, [(0, count * size - tokens)] + [(0, 0)] * (x_T.ndim - 1))
        return jnp.swapaxes(x_T.reshape(size, count, *x_T.shape[1:]), 0, 1)

    def join(x_IC):
        return jnp.swapaxes(x_IC, 0, 1).reshape(-1)[:tokens]

    loss, nll_IC, correct_IC = _chunked(split(h_TD), table_VD, bias_V, split(targets_T), split(weights_T))
    return CrossEntropy(loss, join(nll_IC), join(correct_IC))


def _chunk(h_CD, table_VD, bias_V, targets_C, weights_C):
    """(nll_C, correct_C) of one chunk, both 0 where the weight is, and what the gradient needs."""
    logits_CV = jax.lax.dot_general(h_CD, table_VD, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    logits_CV = logits_CV + bias_V
    # The target's logit by comparing an iota: no gather, and right on a vocabulary split over devices.
    hit_CV = jax.lax.broadcasted_iota(jnp.int32, logits_CV.shape, 1) == targets_C[:, None]
    top_C = logits_CV.max(-1)
    target_C = jnp.where(hit_CV, logits_CV, 0.0).sum(-1)
    logsum_C = top_C + jnp.log(jnp.exp(logits_CV - top_C[:, None]).sum(-1))
    rank_C = (logits_CV >= target_C[:, None]).sum(-1)
    used_C = weights_C != 0
    nll_C = jnp.where(used_C, logsum_C - target_C, 0.0)
    correct_C = (used_C & (rank_C == 1)).astype(jnp.float32)
    return nll_C, correct_C, (logits_CV, hit_CV, logsum_C)


@jax.custom_vjp
def _chunked(h_ICD, table_VD, bias_V, targets_IC, weights_IC):
    def step(loss, chunk):
        h_CD, targets_C, weights_C = chunk
        nll_C, correct_C, _ = _chunk(h_CD, table_VD, bias_V, targets_C, weights_C)
        return loss + (weights_C * nll_C).sum(), (nll_C, correct_C)

    loss, (nll_IC, correct_IC) = _loop(step, jnp.zeros((), jnp.float32), (h_ICD, targets_IC, weights_IC))
    return loss, nll_IC, correct_IC


def _chunked_forward(h_ICD, table_VD, bias_V, targets_IC, weights_IC):
    def step(carry, chunk):
        loss, dtable_VD, dbias_V = carry
        h_CD, targets_C, weights_C = chunk
        nll_C, correct_C, (logits_CV, hit_CV, logsum_C) = _chunk(h_CD, table_VD, bias_V, targets_C, weights_C)
        dlogits_CV = weights_C[:, None] * (jnp.exp(logits_CV - logsum_C[:, None]) - hit_CV)
        dbias_V = dbias_V + dlogits_CV.sum(0)
        dlogits_CV = dlogits_CV.astype(table_VD.dtype)
        dh_CD = jax.lax.dot_general(dlogits_CV, table_VD, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32)
        dtable_VD = dtable_VD + jax.lax.dot_general(
            dlogits_CV, h_CD, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32
        )
        return (loss + (weights_C * nll_C).sum(), dtable_VD, dbias_V), (nll_C, correct_C, dh_CD)

    zeros = (jnp.zeros((), jnp.float32), jnp.zeros(table_VD.shape, jnp.float32), jnp.zeros_like(bias_V))
    (loss, dtable_VD, dbias_V), (nll_IC, correct_IC, dh_ICD) = _loop(step, zeros, (h_ICD, targets_IC, weights_IC))
    return (loss, nll_IC, correct_IC), (dh_ICD.astype(h_ICD.dtype), dtable_VD.astype(table_VD.dtype), dbias_V)


def _chunked_backward(gradients, cotangents):
    scale = cotangents[0]
    return *(g * scale.astype(g.dtype) for g in gradients), None, None


_chunked.defvjp(_chunked_forward, _chunked_backward)


def _loop(step, carry, chunks):
    """`lax.scan`; a single chunk runs without a loop."""
    return jax.lax.scan(step, carry, chunks, unroll=1 if chunks[0].shape[0] > 1 else True)
