"""Hugging Face RoBERTa-PreLayerNorm: XLM-R's layout with LayerNorm before each sublayer and once at
the end.

A model whose vocabulary head has no transform is written without it: the class of that has one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlingjax.convert.formats import xlm_roberta
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import Names, with_classifier
from xlingjax.convert.formats.reading import folded, within
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.convert.formats.writing import differing, kind_of, names_of_class
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.model.config import ModelConfig

MODEL_TYPE = "roberta-prelayernorm"
ROLES = xlm_roberta.ROLES
BODY, HEAD = "roberta_prelayernorm.", xlm_roberta.HEAD
WORDS = f"{BODY}embeddings.word_embeddings.weight"
POSITIONS = f"{BODY}embeddings.position_embeddings.weight"
SEGMENTS = f"{BODY}embeddings.token_type_embeddings.weight"
TIED = {"lm_head.decoder.weight": WORDS, "lm_head.decoder.bias": "lm_head.bias"}
WITHOUT_MEANING = tuple(
    name.replace(xlm_roberta.BODY, BODY) for name in xlm_roberta.WITHOUT_MEANING
)
LEFT = ()

_LAYER = BODY + "encoder.layer.{n}"
MODULES = {
    **{
        ours: theirs.replace(xlm_roberta.BODY, BODY) for ours, theirs in xlm_roberta.MODULES.items()
    },
    "encoder/layers/attention_norm": f"{_LAYER}.attention.LayerNorm",
    "encoder/layers/ffn_norm": f"{_LAYER}.intermediate.LayerNorm",
    "encoder/final_norm": f"{BODY}LayerNorm",
}
CLASSIFIERS = xlm_roberta.CLASSIFIERS
_CLASS = "RobertaPreLayerNorm"
_HEADS = {name.replace("XLMRoberta", _CLASS): kind for name, kind in xlm_roberta.HEADS.items()}


def config_of(fields: Fields, name: str) -> ModelConfig:
    """The model that config.json describes. Raises UserError for what is not computed here."""
    bare = f"{_CLASS}Model"
    kind = fields.architecture(_HEADS, bare)
    config = xlm_roberta.encoder_of(
        fields, name, kind, position_offset=fields.index("pad_token_id") + 1
    )
    head = "transform"
    if fields.values.get("architectures") == [bare]:
        head = "tied"
    return config.replace(norm_order="pre", head=head)


def names_of(config: ModelConfig) -> Names:
    return with_classifier(MODULES, CLASSIFIERS, config)


def usual(tensors: Tensors) -> Tensors:
    """With the names of `RobertaPreLayerNormForMaskedLM`, segment 0 in the positions. Raises
    UserError for a head that is not tied."""
    tensors = within(tensors, BODY, (HEAD, "classifier.", "qa_outputs."), TIED)
    return folded(tensors, POSITIONS, SEGMENTS)


# ---- and back ------------------------------------------------------------------------------------


def unfit(config: ModelConfig) -> str:
    """Why their classes do not compute this model; "": they do."""
    others = differing(
        config,
        norm_order="pre",
        embedding_norm=True,
        gelu="exact",
        embedding_scale=False,
        decoder_layers=0,
    )
    if not others and config.head != "tied":
        others = differing(config, head="transform")
    return others


def written_names(config: ModelConfig) -> Names:
    """Of the class that `described` names."""
    if _is_bare(config):
        body = {}
        for ours, theirs in MODULES.items():
            if theirs.startswith(BODY):
                body[ours] = theirs
        return Names(body)
    return names_of_class(config, MODULES, CLASSIFIERS, HEAD)


def _is_bare(config: ModelConfig) -> bool:
    return config.head == "tied" and kind_of(config, CLASSIFIERS) == "words"


def unfold(theirs: dict[str, np.ndarray], config: ModelConfig, pad_id: int) -> None:
    """As XLM-R's."""
    theirs[SEGMENTS] = np.zeros((1, config.dim), np.float32)
    theirs[POSITIONS] = xlm_roberta.counted(theirs[POSITIONS], config.position_offset, pad_id + 1)


def described(
    config: ModelConfig,
    vocabulary: Vocabulary,
    labels: Sequence[str] = (),
    languages: Sequence[str] = (),
) -> dict[str, Any]:
    """Their config.json. labels: names of the classes, in order. Their classes embed no
    languages."""
    fields = xlm_roberta.described(config, vocabulary, labels, languages)
    architecture = fields["architectures"][0].replace("XLMRoberta", _CLASS)
    if _is_bare(config):
        architecture = f"{_CLASS}Model"
    return fields | {"architectures": [architecture], "model_type": MODEL_TYPE}
