"""What stands on the encoder: the vocabulary head's transform and the classifier."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from xlingjax.model.attention import Attention
from xlingjax.model.config import ModelConfig
from xlingjax.model.layers import Dense, Embed, LayerNorm, dropout, gelu
from xlingjax.model.stack import Stack

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
    """First token's state -> float32 logits_BC (XLM §5.1 fine-tuning; XLM-R adds a dense-tanh layer).

    With `classifier_layers` blocks of its own first, over the states of both texts and an embedding of the side.
    """

    config: ModelConfig
    mesh: Mesh | None = None

    @nn.compact
    def __call__(self, h_BLD: Array, key: Array | None, sides_BL: Array | None, attention: Attention | None) -> Array:
        c = self.config
        keys = (None, None, None, None) if key is None else jax.random.split(key, 4)
        if c.classifier_layers:
            sides_BLD = Embed(c, 2, (None, None), name="sides")(sides_BL).astype(h_BLD.dtype)
            # The encoder's states may be of any size: without the norm they would drown what the blocks add.
            x_BLD = dropout(LayerNorm(c, name="norm")(h_BLD) + sides_BLD, c.dropout, keys[2])
            blocks = Stack(c.replace(layers=c.classifier_layers, cross_attention=False), self.mesh, name="blocks")
            h_BLD = blocks(x_BLD, keys[3], attention)
        h_BD = dropout(h_BLD[:, 0], c.dropout, keys[0])
        if c.classifier == "xlmr":
            h_BD = jnp.tanh(Dense(c, (c.dim,), ("embed",), (None,), name="dense")(h_BD))
            h_BD = dropout(h_BD, c.dropout, keys[1])
        return Dense(c, (c.num_labels,), ("embed",), (None,), name="out")(h_BD).astype(jnp.float32)
