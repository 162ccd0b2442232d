"""Masked-position gather and cross-entropy over a large vocabulary, in float32, without holding
every logit."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array


class CrossEntropy(NamedTuple):
    loss: Array  # scalar: sum of weight * nll. The only differentiable field
    nll_T: Array  # per token in nats, float32; 0 where the weight is 0
    correct_T: Array  # float32: 1 where no logit is above the target's; 0 where the weight is 0


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
    smoothing: float = 0.0,
) -> CrossEntropy:
    """Cross-entropy of softmax(h @ table.T + bias) in float32, differentiable in h, table and bias.

    Vocabulary rows from `vocab_size` on are padding and get probability 0. `chunk` > 0 works on
    that many tokens at a time, so that no more than [V, chunk] logits exist at once; 0 = all tokens
    at once. The gradient is formed in the same pass as the loss and scaled afterwards, which spares
    computing the logits twice: the loss is one weighted sum, so its cotangent is one scalar.
    Weights are constants (no gradient). `smoothing` e: the loss is against a target of probability
    1 - e, and e spread evenly over the vocabulary; nll_T is not.
    """
    tokens = h_TD.shape[0]
    bias_V = _without_padding(bias_V, vocab_size)
    weights_T = weights_T.astype(jnp.float32)
    count = _chunks(tokens, chunk)
    h_ICD, targets_IC, weights_IC = (_split(x_T, count) for x_T in (h_TD, targets_T, weights_T))
    target = (smoothing, vocab_size)
    loss, nll_IC, correct_IC = _chunked(target, h_ICD, table_VD, bias_V, targets_IC, weights_IC)
    return CrossEntropy(loss, _join(nll_IC, tokens), _join(correct_IC, tokens))


def _split(x_T: Array, count: int) -> Array:
    """[count, size, ...], chunk i = tokens i, i + count, ...: so each chunk spans all devices that
    hold rows."""
    others = [(0, 0)] * (x_T.ndim - 1)
    x_T = jnp.pad(x_T, [(0, -len(x_T) % count), *others])
    return jnp.swapaxes(x_T.reshape(-1, count, *x_T.shape[1:]), 0, 1)


def _join(x_IC: Array, tokens: int) -> Array:
    return jnp.swapaxes(x_IC, 0, 1).reshape(-1)[:tokens]


def _without_padding(bias_V: Array, vocab_size: int) -> Array:
    """The bias in float32, that of the table's padding rows so low that none gets probability.

    Finite, so that no product or difference with it is NaN.
    """
    padding_V = jnp.arange(bias_V.shape[0]) >= vocab_size
    return jnp.where(padding_V, jnp.finfo(jnp.float32).min, bias_V.astype(jnp.float32))


def _chunks(tokens: int, chunk: int) -> int:
    """How many chunks, of at most `chunk` tokens each."""
    if not chunk:
        return 1
    least = -(-tokens // chunk)
    # Equal chunks spare the padding, where fewer than twice as many of them do.
    for count in range(least, 2 * least):
        if tokens % count == 0:
            return count
    return least


def best_ids(
    h_TD: Array,
    table_VD: Array,
    bias_V: Array,
    *,
    vocab_size: int,
    banned: Array | None = None,
    chunk: int = 0,
    key: Array | None = None,
) -> Array:
    """int32 ids_T: the likeliest id at each state, or with a `key` one drawn from the softmax;
    never one of the
    ids in the array `banned`.

    `chunk` as in `cross_entropy`. Nothing here is differentiable.
    """
    tokens = h_TD.shape[0]
    bias_V = _without_padding(bias_V, vocab_size)
    if banned is not None:
        # In the bias, so that neither the highest logit nor a draw can be of one.
        bias_V = bias_V.at[banned].set(jnp.finfo(jnp.float32).min)
    count = 1
    if chunk:
        count = -(-tokens // chunk)

    def best(inputs):
        h_CD, number = inputs
        logits_CV = _product(h_CD, table_VD, 1, 1) + bias_V
        if key is not None:
            # The highest of logits with Gumbel noise is a draw from their softmax.
            chunk_key = jax.random.fold_in(key, number)
            logits_CV += jax.random.gumbel(chunk_key, logits_CV.shape)
        return logits_CV.argmax(-1).astype(jnp.int32)

    ids_IC = jax.lax.map(best, (_split(h_TD, count), jnp.arange(count)))
    return jax.lax.stop_gradient(_join(ids_IC, tokens))


def _chunk(target, h_CD, table_VD, bias_V, targets_C, weights_C):
    """(loss, nll_C, correct_C) of one chunk, the latter 0 where the weight is, and what the
    gradient needs.

    Logits stand as [V, C]: with the vocabulary in front all three products read their operands as
    they lie in memory.
    """
    logits_VC = _product(table_VD, h_CD, 1, 1) + bias_V[:, None]
    # The target's logit by comparing an iota: no gather, and right on a vocabulary split over
    # devices.
    hit_VC = jax.lax.broadcasted_iota(jnp.int32, logits_VC.shape, 0) == targets_C
    # Less the highest before exp(), as every softmax that must not overflow.
    top_C = logits_VC.max(0)
    target_C = jnp.where(hit_VC, logits_VC, 0.0).sum(0)
    logsum_C = top_C + jnp.log(jnp.exp(logits_VC - top_C).sum(0))
    used_C = weights_C != 0
    nll_C = jnp.where(used_C, logsum_C - target_C, 0.0)
    correct_C = (used_C & (target_C >= top_C)).astype(jnp.float32)
    smoothing, vocab_size = target
    loss_C = nll_C
    target_VC = hit_VC
    if smoothing:
        # Spread over the true vocabulary: a share of the padding rows' logits, the lowest numbers
        # there are, would outweigh all else.
        even_V1 = (jnp.arange(logits_VC.shape[0]) < vocab_size)[:, None] / vocab_size
        target_VC = (1 - smoothing) * hit_VC + smoothing * even_V1
        loss_C = logsum_C - jnp.where(even_V1 > 0, target_VC * logits_VC, 0.0).sum(0)
    return ((weights_C * loss_C).sum(), nll_C, correct_C, (logits_VC, target_VC, logsum_C))


def _product(x, y, x_axis: int, y_axis: int):
    return jax.lax.dot_general(
        x,
        y,
        (((x_axis,), (y_axis,)), ((), ())),
        # Operands stay in bfloat16, and the sums of their products are float32.
        preferred_element_type=jnp.float32,
    )


# Scopes name, in a profile, what no module does.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
@jax.named_scope("vocabulary")
def _chunked(target, h_ICD, table_VD, bias_V, targets_IC, weights_IC):
    def step(loss, chunk):
        h_CD, targets_C, weights_C = chunk
        more, nll_C, correct_C, _ = _chunk(target, h_CD, table_VD, bias_V, targets_C, weights_C)
        return loss + more, (nll_C, correct_C)

    zero = jnp.zeros((), jnp.float32)
    # JAX unrolls no loop of one step; XLA takes it away.
    loss, (nll_IC, correct_IC) = jax.lax.scan(step, zero, (h_ICD, targets_IC, weights_IC))
    return loss, nll_IC, correct_IC


@jax.named_scope("vocabulary")
def _chunked_forward(target, h_ICD, table_VD, bias_V, targets_IC, weights_IC):
    def step(carry, chunk):
        loss, dtable_VD, dbias_V = carry
        h_CD, targets_C, weights_C = chunk
        more, nll_C, correct_C, (logits_VC, target_VC, logsum_C) = _chunk(
            target, h_CD, table_VD, bias_V, targets_C, weights_C
        )
        # Of cross-entropy by a logit: softmax less the target.
        dlogits_VC = weights_C * (jnp.exp(logits_VC - logsum_C) - target_VC)
        dbias_V = dbias_V + dlogits_VC.sum(1)
        # Products in the compute type, as those of the logits; their sums over chunks in float32.
        dlogits_VC = dlogits_VC.astype(table_VD.dtype)
        dh_CD = _product(dlogits_VC, table_VD, 0, 0)
        dtable_VD = dtable_VD + _product(dlogits_VC, h_CD, 1, 0)
        return (loss + more, dtable_VD, dbias_V), (nll_C, correct_C, dh_CD)

    zeros = (
        jnp.zeros((), jnp.float32),
        jnp.zeros(table_VD.shape, jnp.float32),
        jnp.zeros_like(bias_V),
    )
    (loss, dtable_VD, dbias_V), (nll_IC, correct_IC, dh_ICD) = jax.lax.scan(
        step, zeros, (h_ICD, targets_IC, weights_IC)
    )
    # In the operands' dtypes, which JAX demands of cotangents.
    gradients = (dh_ICD.astype(h_ICD.dtype), dtable_VD.astype(table_VD.dtype), dbias_V)
    return (loss, nll_IC, correct_IC), gradients


@jax.named_scope("vocabulary")
def _chunked_backward(target, gradients, cotangents):
    # A loss scale among others: never rounded to the gradients' dtype.
    scale = cotangents[0].astype(jnp.float32)
    scaled = [(g.astype(jnp.float32) * scale).astype(g.dtype) for g in gradients]
    # None: targets and weights are constants.
    return *scaled, None, None


_chunked.defvjp(_chunked_forward, _chunked_backward)
