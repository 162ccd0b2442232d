"""What stands on the encoder: the vocabulary head's transform, classifiers, and word recovery
beneath it."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlingjax.model.config import ModelConfig
from xlingjax.model.layers import Dense, LayerNorm, dropout, gelu, kernel_init
from xlingjax.model.masks import Fields

Array = jax.Array


class VocabularyHead(nn.Module):
    """h_...D -> (g_...D, bias_V); logits are g @ token_table.T + bias. XLM-R transforms h first,
    XLM does not; BART
    has no bias."""

    config: ModelConfig

    @nn.compact
    def __call__(self, h_BMD: Array) -> tuple[Array, Array]:
        c = self.config
        if c.head == "transform":
            h_BMD = gelu(c, Dense(c, (c.dim,), ("embed",), (None,), name="dense")(h_BMD))
            h_BMD = LayerNorm(c, name="norm")(h_BMD)
        if c.head == "plain":
            return h_BMD, jnp.zeros((c.padded_vocab_size,), jnp.float32)
        zeros = nn.with_logical_partitioning(nn.initializers.zeros, ("vocab",))
        return h_BMD, self.param("bias", zeros, (c.padded_vocab_size,), jnp.float32)


class Classifier(nn.Module):
    """States -> float32 logits_BC (of "tagging" and "spans" logits_BLC), by the model's
    `classifier`.

    "xlm" reads the first state (XLM §5.1), "xlmr" has a dense layer with tanh between, "pooler" has
    no dropout before it; "mean" and "max" read the mean and the maximum of all states of the row.
    "difference" reads u - v and |u - v| of the mean states u, v of a pair's texts, each scaled to
    length sqrt(D): the sentence classifier of XNLI's baselines (Conneau et al. 2018, §4.1) without
    u, v and u * v themselves, since only in a difference of two sentences of one language
    everything cancels that all its sentences have in common. "plug_in" is "xlmr" on states of
    twice the width.
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, h_BLD: Array, key: Array | None, fields: Fields) -> Array:
        c = self.config
        rate = c.dropout if c.classifier_dropout is None else c.classifier_dropout
        keys = (None, None) if key is None else jax.random.split(key)
        if c.classifier == "difference":
            u_BD, v_BD = (
                mean_state(h_BLD, fields.valid & (fields.side == side)) for side in (0, 1)
            )
            d_BD = u_BD - v_BD
            h_BF = Dense(c, (c.ffn,), ("embed",), ("mlp",), name="dense")(
                jnp.concatenate([d_BD, jnp.abs(d_BD)], -1)
            )
            x = dropout(gelu(c, h_BF), rate, keys[0])
        elif c.classifier in ("tagging", "spans"):
            x = dropout(h_BLD, rate, keys[0])
        elif c.classifier in ("mean", "max"):
            x = dropout(pooled_states(h_BLD, fields.valid, c.classifier), rate, keys[0])
        elif c.classifier == "pooler":
            x = h_BLD[:, 0]
        else:
            x = dropout(h_BLD[:, 0], rate, keys[0])
        if c.classifier in ("xlmr", "pooler", "plug_in"):
            x = jnp.tanh(Dense(c, (c.dim,), ("embed",), (None,), name="dense")(x))
            x = dropout(x, rate, keys[1])
        inputs = "mlp" if c.classifier == "difference" else "embed"
        return Dense(c, (c.num_labels,), (inputs,), (None,), name="out")(x).astype(jnp.float32)


class TaskClassifiers(nn.Module):
    """A `Classifier` for each of the model's `task_labels`, whose name its parameters stand
    under."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self, h_BLD: Array, key: Array | None, fields: Fields, task: str | None = None
    ) -> dict[str, Array]:
        """{task: logits}, of one task or of all."""
        c = self.config
        return {
            name: Classifier(c.replace(num_labels=labels), name=name)(h_BLD, key, fields)
            for name, labels in c.task_labels
            if task in (None, name)
        }


def pooled_states(h_BLD: Array, valid_BL: Array, kind: str) -> Array:
    """The "mean" or "max" over a row's own states, BD; 0 of an empty row."""
    if kind == "max":
        x_BD = jnp.where(valid_BL[..., None], h_BLD, jnp.finfo(h_BLD.dtype).min).max(1)
        return jnp.where(valid_BL.any(1, keepdims=True), x_BD, 0)
    sum_BD = jnp.einsum("bld,bl->bd", h_BLD.astype(jnp.float32), valid_BL.astype(jnp.float32))
    return (sum_BD / jnp.maximum(valid_BL.sum(1, keepdims=True), 1)).astype(h_BLD.dtype)


def mean_state(h_BLD: Array, chosen_BL: Array) -> Array:
    """float32 mean_BD of the chosen states, scaled to length sqrt(D); 0 where none is chosen."""
    sum_BD = jnp.einsum("bld,bl->bd", h_BLD.astype(jnp.float32), chosen_BL.astype(jnp.float32))
    return sum_BD * jax.lax.rsqrt(
        jnp.square(sum_BD).mean(-1, keepdims=True) + 1e-12
    )  # the same for sum and mean


class FirstState(nn.Module):
    """Dropout and a linear layer on the first state: float32 logits_BC."""

    config: ModelConfig
    outputs: int

    @nn.compact
    def __call__(self, h_BLD: Array, key: Array | None) -> Array:
        x_BD = dropout(h_BLD[:, 0], self.config.dropout, key)
        return Dense(self.config, (self.outputs,), ("embed",), (None,), name="out")(x_BD).astype(
            jnp.float32
        )


class DeepAveraging(nn.Module):
    """Deep averaging network (Iyyer et al. 2015): the mean of a text's word embeddings through two
    tanh layers, float32 [B, F]."""

    config: ModelConfig

    @nn.compact
    def __call__(self, e_BLD: Array, chosen_BL: Array) -> Array:
        c = self.config
        chosen_BL = chosen_BL.astype(jnp.float32)
        mean_BD = jnp.einsum("bld,bl->bd", e_BLD, chosen_BL) / jnp.maximum(
            chosen_BL.sum(1, keepdims=True), 1
        )
        h_BF = jnp.tanh(Dense(c, (c.dan,), ("embed",), ("mlp",), name="in")(mean_BD))
        return jnp.tanh(Dense(c, (c.dan,), ("mlp",), (None,), name="out")(h_BF)).astype(jnp.float32)


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
        names = nn.with_logical_partitioning(kernel_init(self.config, 3 * dim), (None,))
        w = self.param("kernel", names, (3 * dim,), jnp.float32)
        e_BLD = e_BLD.astype(jnp.float32)
        own_BL, other_BS, product_BLD = (
            e_BLD @ w[:dim],
            e_BLD @ w[dim : 2 * dim],
            e_BLD * w[2 * dim :],
        )
        a_BLS = (
            own_BL[:, :, None]
            + other_BS[:, None, :]
            + jnp.einsum("bld,bsd->bls", product_BLD, e_BLD)
        )
        p_BLS = jax.nn.softmax(jnp.where(allowed_BLS, a_BLS, jnp.finfo(jnp.float32).min), axis=-1)
        return jnp.einsum("bls,bsd->bld", p_BLS, values_BSD.astype(jnp.float32)), p_BLS
