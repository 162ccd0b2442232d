"""The model that a configuration describes."""

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
