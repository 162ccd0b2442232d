"""What stands on the encoder: the vocabulary head's transform and the classifier."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlingjax.model.config import ModelConfig
from xlingjax.model.layers import Dense, LayerNorm, dropout, gelu

Array = jax.Array


class VocabularyHead(nn.Module):
    """h_...D -> (g_...D, bias_V); logits are g @ token_table.T + bias. XLM-R transforms h first, XLM does not."""

    config: ModelConfig

    @nn.compact
    def __call__(self, h_BMD: Array) -> tuple[Array, Array]:
        c = self.config
        if c.head == "transform":
            h_BMD = gelu(c, Dense(c, (c.dim,), ("embed",), (None,), name="dense")(h_BMD))
            h_BMD = LayerNorm(c, name="norm")(h_BMD)
        zeros = nn.with_logical_partitioning(nn.initializers.zeros, ("vocab",))
        return h_BMD, self.param("bias", zeros, (c.padded_vocab_size,), jnp.float32)


class Classifier(nn.Module):
    """First token's state -> float32 logits_BC (XLM §5.1 fine-tuning; XLM-R adds a dense-tanh layer)."""

    config: ModelConfig

    @nn.compact
    def __call__(self, h_BLD: Array, key: Array | None) -> Array:
        c = self.config
        keys = (None, None) if key is None else jax.random.split(key)
        h_BD = dropout(h_BLD[:, 0], c.dropout, keys[0])
        if c.classifier == "xlmr":
            h_BD = jnp.tanh(Dense(c, (c.dim,), ("embed",), (None,), name="dense")(h_BD))
            h_BD = dropout(h_BD, c.dropout, keys[1])
        return Dense(c, (c.num_labels,), ("embed",), (None,), name="out")(h_BD).astype(jnp.float32)
