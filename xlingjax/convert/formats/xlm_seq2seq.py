"""XLM's translation models: an encoder and a decoder, each with tables, languages and a head of its
own. Their names begin with "encoder." and "decoder." here."""

from xlingjax.convert.formats import xlm
from xlingjax.convert.formats.names import Names, below
from xlingjax.convert.formats.reading import renamed
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.model.config import ModelConfig

HEAD = "encoder.pred_layer."
WITHOUT_MEANING = LEFT = ()
TIED = {
    "encoder.pred_layer.proj.weight": "encoder.embeddings.weight",
    "decoder.pred_layer.proj.weight": "decoder.embeddings.weight",
}

_BARE = {ours: theirs.removeprefix(xlm.BODY) for ours, theirs in xlm.MODULES.items()}
_CROSS = {"query": "q_lin", "key": "k_lin", "value": "v_lin", "out": "out_lin"}
_DECODER = {"embeddings": "decoder_embeddings", "encoder": "decoder", "head": "decoder_head"}


def _of_decoder(ours: str) -> str:
    """Our name there of what the encoder has under `ours`."""
    first, slash, rest = ours.partition("/")
    return f"{_DECODER[first]}{slash}{rest}"


_BARE_DECODER = {_of_decoder(ours): theirs for ours, theirs in _BARE.items()}
MODULES = {
    **below("", "encoder.", _BARE),
    **below("", "decoder.", _BARE_DECODER),
    **below("decoder/layers/cross_attention/attention/", "decoder.encoder_attn.{n}.", _CROSS),
    "decoder/layers/cross_attention/norm": "decoder.layer_norm15.{n}",
}


def names_of(config: ModelConfig) -> Names:
    return Names(MODULES)


def usual(tensors: Tensors) -> Tensors:
    """Raises UserError for a head that is not tied."""
    return renamed(tensors, lambda name: name, TIED)
