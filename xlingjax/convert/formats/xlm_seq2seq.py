"""XLM's translation models: an encoder and a decoder, each with tables, languages and a head of its
own. Their names begin with "encoder." and "decoder." here."""

from xlingjax.convert.formats import xlm
from xlingjax.convert.formats.names import Names
from xlingjax.convert.formats.reading import renamed
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.model.config import ModelConfig

HEAD = "encoder.pred_layer."
WITHOUT_MEANING = LEFT = ()
TIED = {
    f"{side}.pred_layer.proj.weight": f"{side}.embeddings.weight"
    for side in ("encoder", "decoder")
}

_BARE = {ours: theirs.removeprefix(xlm.BODY) for ours, theirs in xlm.MODULES.items()}
_CROSS = {
    "cross_attention/attention/query": "q_lin",
    "cross_attention/attention/key": "k_lin",
    "cross_attention/attention/value": "v_lin",
    "cross_attention/attention/out": "out_lin",
}


def _of_decoder(ours: str) -> str:
    """Our name there of what the encoder has under `ours`."""
    first, _, rest = ours.partition("/")
    first = {
        "embeddings": "decoder_embeddings",
        "encoder": "decoder",
        "head": "decoder_head",
    }[first]
    return f"{first}/{rest}" if rest else first


MODULES = {
    **{ours: f"encoder.{theirs}" for ours, theirs in _BARE.items()},
    **{_of_decoder(ours): f"decoder.{theirs}" for ours, theirs in _BARE.items()},
    **{
        f"decoder/layers/{ours}": f"decoder.encoder_attn.{{n}}.{theirs}"
        for ours, theirs in _CROSS.items()
    },
    "decoder/layers/cross_attention/norm": "decoder.layer_norm15.{n}",
}


def names_of(config: ModelConfig) -> Names:
    return Names(MODULES)


def usual(tensors: Tensors) -> Tensors:
    """Raises UserError for a head that is not tied."""
    return renamed(tensors, lambda name: name, TIED)
