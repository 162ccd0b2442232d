"""What stands on the encoder: the vocabulary head's transform, classifiers, and word recovery
beneath it."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlingjax.model.config import ModelConfig
from xlingjax.model.layers import (
    Dense,
    Embed,
    Key,
    Norm,
    activation,
    dropout,
    kernel_init,
    parameter,
    split_key,
)
from xlingjax.model.masks import Fields

Array = jax.Array

OF_TOKENS = ("tagging", "spans", "plug_in_tagging", "plug_in_spans")
"""Classifiers that read every state, and not one of the row."""


class VocabularyHead(nn.Module):
    """h_...D -> (g_...D, bias_V); logits are g @ token_table.T + bias. XLM-R transforms h first,
    XLM does not; BART has no bias."""

    config: ModelConfig

    @nn.compact
    def __call__(self, h_BMD: Array) -> tuple[Array, Array]:
        c = self.config
        if c.head_scale:
            h_BMD = h_BMD * c.dim**-0.5
        if c.head == "transform":
            h_BMD = Dense(c, (c.dim,), bias=c.norm_bias, name="dense")(h_BMD)
            h_BMD = Norm(c, name="norm")(activation(c, h_BMD))
        if not c.tied and self.is_initializing():
            Embed(c, c.padded_vocab_size, ("vocab", None), name="tokens")(jnp.zeros((1,), int))
        if c.head == "plain":
            return h_BMD, jnp.zeros((c.padded_vocab_size,), jnp.float32)
        shape = (c.padded_vocab_size,)
        return h_BMD, parameter(self, "bias", nn.initializers.zeros, ("vocab",), shape)


class Classifier(nn.Module):
    """States -> float32 logits_BC (of `OF_TOKENS` logits_BLC), by the model's `classifier`.

    "xlm" reads the first state (XLM §5.1), "xlmr" has a dense layer with tanh between, "pooler" has
    no dropout before it, "relu" has ReLU for tanh there; "gelu" is "xlmr" with GELU, "late" the
    mean of its logits of every state.
    "difference" reads u - v and |u - v| of the mean states u, v of a pair's texts, each scaled to
    length sqrt(D): the sentence classifier of XNLI's baselines (Conneau et al. 2018, §4.1) without
    u, v and u * v themselves, since only in a difference of two sentences of one language
    everything cancels that all its sentences have in common. "plug_in" is "xlmr" on states of
    twice the width, "plug_in_tagging" and "plug_in_spans" are the others on such; "decoder" is
    "xlmr" on one state of a decoder.
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, h_BLD: Array, key: Key, fields: Fields) -> Array:
        c = self.config
        rate = c.dropout if c.classifier_dropout is None else c.classifier_dropout
        keys = split_key(key)
        if c.classifier == "difference":
            u_BD = mean_state(h_BLD, fields.valid & (fields.side == 0))
            v_BD = mean_state(h_BLD, fields.valid & (fields.side == 1))
            d_BD = u_BD - v_BD
            both_BE = jnp.concatenate([d_BD, jnp.abs(d_BD)], -1)
            h_BF = Dense(c, (c.ffn,), ("embed",), ("mlp",), name="dense")(both_BE)
            x = activation(c, h_BF)
        elif c.classifier in (*OF_TOKENS, "late"):
            x = h_BLD
        elif c.classifier == "mean":
            x = _mean(h_BLD, fields)
        else:
            x = h_BLD[:, 0]
        # Others have a dense layer of their own, or read states of twice the width.
        if c.classifier_transform and c.classifier in ("xlm", "mean", "tagging", "spans"):
            x = Dense(c, (c.dim,), bias=c.norm_bias, name="dense")(x)
            x = Norm(c, name="norm")(activation(c, x))
        # BERT's pooler has its dropout behind the tanh alone.
        if c.classifier not in ("pooler", "relu"):
            x = dropout(x, rate, keys[0])
        if c.classifier in ("xlmr", "pooler", "relu", "gelu", "late", "plug_in", "decoder"):
            x = Dense(c, (c.dim,), name="dense")(x)
            gelu = partial(jax.nn.gelu, approximate=False)
            own = {"relu": jax.nn.relu, "gelu": gelu, "late": gelu}
            x = own.get(c.classifier, jnp.tanh)(x)
            x = dropout(x, rate, keys[1])
        if c.classifier == "late":
            # The mean of their logits, since what is left is linear.
            x = _mean(x, fields)
        inputs = "mlp" if c.classifier == "difference" else "embed"
        logits = Dense(c, (c.num_labels,), (inputs,), name="out")(x)
        # The loss takes its logarithm in float32.
        return logits.astype(jnp.float32)


class TaskClassifiers(nn.Module):
    """A `Classifier` for each of the model's `task_labels`, whose name its parameters stand
    under."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self, h_BLD: Array, key: Key, fields: Fields, task: str | None = None
    ) -> dict[str, Array]:
        """{task: logits}, of one task or of all."""
        c = self.config
        logits = {}
        for name, labels in c.task_labels:
            if task is None or task == name:
                classifier = Classifier(c.replace(num_labels=labels), name=name)
                logits[name] = classifier(h_BLD, key, fields)
        return logits


def _mean(x_BLD: Array, fields: Fields) -> Array:
    valid_BL1 = fields.valid[..., None]
    return (x_BLD * valid_BL1).sum(1, dtype=jnp.float32) / valid_BL1.sum(1)


def mean_state(h_BLD: Array, chosen_BL: Array) -> Array:
    """float32 mean_BD of the chosen states, scaled to length sqrt(D); 0 where none is chosen."""
    sum_BD = jnp.einsum("bld,bl->bd", h_BLD.astype(jnp.float32), chosen_BL.astype(jnp.float32))
    # Scaled, a sum is what its mean is: nothing is divided by the number of states.
    return sum_BD * jax.lax.rsqrt(jnp.square(sum_BD).mean(-1, keepdims=True) + 1e-12)


class FirstState(nn.Module):
    """Dropout and a linear layer on the first state: float32 logit_B."""

    config: ModelConfig

    @nn.compact
    def __call__(self, h_BLD: Array, key: Key) -> Array:
        c = self.config
        x_BD = dropout(h_BLD[:, 0], c.dropout, key)
        logits_B1 = Dense(c, (1,), name="out")(x_BD)
        return logits_B1.astype(jnp.float32)[:, 0]


class DeepAveraging(nn.Module):
    """Deep averaging network (Iyyer et al. 2015): the mean of a text's word embeddings through two
    tanh layers, float32 [B, F]."""

    config: ModelConfig

    @nn.compact
    def __call__(self, e_BLD: Array, chosen_BL: Array) -> Array:
        c = self.config
        chosen_BL = chosen_BL.astype(jnp.float32)
        sum_BD = jnp.einsum("bld,bl->bd", e_BLD, chosen_BL)
        mean_BD = sum_BD / jnp.maximum(chosen_BL.sum(1, keepdims=True), 1)
        h_BF = jnp.tanh(Dense(c, (c.dan,), ("embed",), ("mlp",), name="in")(mean_BD))
        h_BF = jnp.tanh(Dense(c, (c.dan,), ("mlp",), name="out")(h_BF))
        return h_BF.astype(jnp.float32)


class WordRecovery(nn.Module):
    """Word embeddings of one text as mixtures of those of its translation (Unicoder §3.2,
    cross-lingual word recovery).

    Scores A_ij = w [e_i; e_j; e_i * e_j], in float32; e_i itself enters no mixture. The first third
    of w shifts all scores of a row alike and so has no effect; it is kept as the paper writes it.
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, e_BLD: Array, values_BSD: Array, allowed_BLS: Array) -> tuple[Array, Array]:
        """(x_BLD, attention_BLS) from the embeddings e that are compared and those that are mixed,
        the same but in a leak test."""
        dim = e_BLD.shape[-1]
        w = parameter(self, "kernel", kernel_init(self.config, 3 * dim), (None,), (3 * dim,))
        e_BLD = e_BLD.astype(jnp.float32)
        # w [a; b; a * b] without [L, S, 3 D]: a share of a, one of b, and a product weighted by D.
        own_BL = e_BLD @ w[:dim]
        other_BS = e_BLD @ w[dim : 2 * dim]
        weighted_BLD = e_BLD * w[2 * dim :]
        product_BLS = jnp.einsum("bld,bsd->bls", weighted_BLD, e_BLD)
        a_BLS = own_BL[:, :, None] + other_BS[:, None, :] + product_BLS
        # Finite, so that no gradient through it is NaN.
        a_BLS = jnp.where(allowed_BLS, a_BLS, jnp.finfo(jnp.float32).min)
        p_BLS = jax.nn.softmax(a_BLS, axis=-1)
        x_BLD = jnp.einsum("bls,bsd->bld", p_BLS, values_BSD.astype(jnp.float32))
        return x_BLD, p_BLS
