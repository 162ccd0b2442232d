"""ERNIE-M under the names that transformers published it with (`ErnieM*`; it has the code no
longer). No vocabulary head was released."""

import dataclasses

from xlingjax.convert.formats import xlm_roberta
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import Names, with_classifier
from xlingjax.convert.formats.reading import within
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.model.config import ModelConfig

MODEL_TYPE = "ernie_m"
ROLES = {"pad_id": ("pad_token_id", 1)}
BODY, HEAD = "ernie_m.", None
WITHOUT_MEANING = (f"{BODY}embeddings.position_ids",)
LEFT = (f"{BODY}pooler.",)
OFFSET = 2
"""Row of the first position: they add it to any position they are given."""

TEXT = (
    "ERNIE-M's own tokenizer also rewrites curly quotes and dashes and cuts commas off digits; here"
    " text stays as it is"
)

_LAYER = BODY + "encoder.layers.{n}"
_SELF = _LAYER + ".self_attn.self_attn"
MODULES = {
    "embeddings/tokens": f"{BODY}embeddings.word_embeddings",
    "embeddings/positions": f"{BODY}embeddings.position_embeddings",
    "embeddings/norm": f"{BODY}embeddings.layer_norm",
    "encoder/layers/attention/query": f"{_SELF}.q_proj",
    "encoder/layers/attention/key": f"{_SELF}.k_proj",
    "encoder/layers/attention/value": f"{_SELF}.v_proj",
    "encoder/layers/attention/out": f"{_LAYER}.self_attn.out_proj",
    "encoder/layers/attention_norm": f"{_LAYER}.norm1",
    "encoder/layers/ffn/in": f"{_LAYER}.linear1",
    "encoder/layers/ffn/out": f"{_LAYER}.linear2",
    "encoder/layers/ffn_norm": f"{_LAYER}.norm2",
}
CLASSIFIERS = {
    "xlmr": {"classifier/dense": f"{BODY}pooler.dense", "classifier/out": "classifier"},
    "tagging": {"classifier/out": "classifier"},
    "spans": {"classifier/out": "qa_outputs"},
}
_HEADS = {
    "ErnieMModel": None,
    "ErnieMForSequenceClassification": "xlmr",
    "ErnieMForTokenClassification": "tagging",
    "ErnieMForQuestionAnswering": "spans",
}


def config_of(fields: Fields, name: str) -> ModelConfig:
    """The model that config.json describes. Raises UserError for what is not computed here."""
    kind = fields.architecture(_HEADS, "ErnieMModel")
    return xlm_roberta.encoder_of(fields, name, kind, OFFSET, norm_eps=1e-5)


def names_of(config: ModelConfig) -> Names:
    return with_classifier(MODULES, CLASSIFIERS, config)


def usual(tensors: Tensors) -> Tensors:
    """With the names of `ErnieMModel` in a model with a head."""
    tensors = within(tensors, BODY, ("classifier.", "qa_outputs."), {})
    return dataclasses.replace(tensors, notes=(*tensors.notes, TEXT))
