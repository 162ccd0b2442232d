"""The model that a configuration describes, and how many parameters it has."""

import functools
import math

import jax
from jax.sharding import Mesh

from xlingjax.model.config import ModelConfig
from xlingjax.model.encoder import Encoder
from xlingjax.model.ngram_decoder import NgramSeq2Seq
from xlingjax.model.seq2seq import Seq2Seq


def build_model(config: ModelConfig, mesh: Mesh | None = None) -> Encoder:
    """An encoder, an encoder-decoder (`decoder_layers`), or one with an n-stream decoder
    (`streams`); see `Encoder`."""
    # First, since a model with streams has decoder layers too.
    if config.streams:
        return NgramSeq2Seq(config, mesh)
    if config.decoder_layers:
        return Seq2Seq(config, mesh)
    return Encoder(config, mesh)


@functools.lru_cache(maxsize=16)
def count_parameters(config: ModelConfig) -> int:
    """Number of parameters, LM head included, with the table's true rows (not the padded ones)."""
    model = build_model(config)
    padding = config.padded_vocab_size - config.true_rows
    shapes = jax.tree.leaves(model.abstract())
    axes = jax.tree.leaves(model.logical_axes(), is_leaf=lambda x: isinstance(x, tuple))
    # The norm that only the other layers have is in the stack.
    total = 0 if config.first_norm else -config.dim * (1 + config.norm_bias)
    for leaf, names in zip(shapes, axes, strict=True):
        total += math.prod(
            size - padding if name == "vocab" else size
            for size, name in zip(leaf.shape, names, strict=True)
        )
    return total
