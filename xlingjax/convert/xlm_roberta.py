"""Hugging Face XLM-R (`XLMRoberta*`), and what has its layout: InfoXLM, XLM-V, AfroXLMR and other continued ones."""

import dataclasses

import numpy as np

from xlingjax.convert.fields import Fields
from xlingjax.convert.names import Differing, Names
from xlingjax.convert.tensors import Tensors
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig

MODEL_TYPE = "xlm-roberta"
BODY = "roberta."
WORDS, SEGMENTS = f"{BODY}embeddings.word_embeddings.weight", f"{BODY}embeddings.token_type_embeddings.weight"
# Other names of the same tensor.
TIED = {"lm_head.decoder.weight": WORDS, "lm_head.decoder.bias": "lm_head.bias"}
# Buffers, and the layer that next-sentence prediction left in the class without being trained.
WITHOUT_MEANING = ("embeddings.position_ids", "embeddings.token_type_ids", "pooler.dense.weight", "pooler.dense.bias")

_LAYER = BODY + "encoder.layer.{n}"
MODULES = {
    "embeddings/tokens": f"{BODY}embeddings.word_embeddings",
    "embeddings/positions": f"{BODY}embeddings.position_embeddings",
    "embeddings/norm": f"{BODY}embeddings.LayerNorm",
    "encoder/layers/attention/query": f"{_LAYER}.attention.self.query",
    "encoder/layers/attention/key": f"{_LAYER}.attention.self.key",
    "encoder/layers/attention/value": f"{_LAYER}.attention.self.value",
    "encoder/layers/attention/out": f"{_LAYER}.attention.output.dense",
    "encoder/layers/attention_norm": f"{_LAYER}.attention.output.LayerNorm",
    "encoder/layers/ffn/in": f"{_LAYER}.intermediate.dense",
    "encoder/layers/ffn/out": f"{_LAYER}.output.dense",
    "encoder/layers/ffn_norm": f"{_LAYER}.output.LayerNorm",
    "head": "lm_head",
    "head/dense": "lm_head.dense",
    "head/norm": "lm_head.layer_norm",
}
CLASSIFIERS = {
    "xlmr": {"classifier/dense": "classifier.dense", "classifier/out": "classifier.out_proj"},
    "tagging": {"classifier/out": "classifier"},
}
_HEADS = {
    "XLMRobertaModel": None,
    "XLMRobertaForMaskedLM": None,
    "XLMRobertaForSequenceClassification": "xlmr",
    "XLMRobertaForTokenClassification": "tagging",
}


def config_of(fields: Fields, name: str) -> ModelConfig:
    """The model that config.json describes. Raises UserError for what is not computed here."""
    architecture = (fields.values.get("architectures") or ["XLMRobertaModel"])[0]
    if architecture not in _HEADS:
        raise UserError(f"{fields.path}: architecture {architecture} is not read (but {', '.join(_HEADS)})")
    for option in ("is_decoder", "add_cross_attention"):
        fields.one_of(option, {False: False}, False)
    fields.one_of("tie_word_embeddings", {True: True}, True)
    fields.one_of("position_embedding_type", {"absolute": None}, "absolute")
    config = ModelConfig(
        name=name,
        layers=fields.count("num_hidden_layers"),
        dim=fields.count("hidden_size"),
        heads=fields.count("num_attention_heads"),
        ffn=fields.count("intermediate_size"),
        vocab_size=fields.count("vocab_size"),
        max_positions=fields.count("max_position_embeddings"),
        position_offset=fields.count("pad_token_id") + 1,
        norm_eps=fields.rate("layer_norm_eps", 1e-12),
        gelu=fields.one_of("hidden_act", {"gelu": "exact"}, "gelu"),  # their vocabulary head has this one in any case
        head="transform",
        classifier="xlmr",
        dropout=fields.rate("hidden_dropout_prob", 0.1),
        attention_dropout=fields.rate("attention_probs_dropout_prob", 0.1),
        init_std=fields.rate("initializer_range", 0.02),
    )
    if kind := _HEADS[architecture]:
        labels = len(fields.values.get("id2label") or ("LABEL_0", "LABEL_1"))
        config = config.replace(classifier=kind, num_labels=labels)
        if fields.values.get("classifier_dropout") is not None:
            config = config.replace(classifier_dropout=fields.rate("classifier_dropout", 0.1))
    return config


def names_of(config: ModelConfig) -> Names:
    return Names({**MODULES, **(CLASSIFIERS[config.classifier] if config.num_labels else {})})


def usual(tensors: Tensors) -> Tensors:
    """With the names of `XLMRobertaForMaskedLM`, each tensor under one name. Raises UserError for a head that is not
    tied."""
    own = {}
    for name in tensors.shapes:
        bare = not name.startswith((BODY, "lm_head.", "classifier."))
        own[BODY + name if bare else name] = name
    for alias, name in TIED.items():
        if alias in own and name in own:
            if not np.array_equal(tensors.fetch(own[alias]), tensors.fetch(own[name])):
                raise UserError(f"{tensors.origin}: {alias} is not {name}; xlingjax has heads tied to the words alone")
            del own[alias]
        elif alias in own:
            own[name] = own.pop(alias)
    for name in WITHOUT_MEANING:
        own.pop(BODY + name, None)
    shapes = {name: tensors.shapes[there] for name, there in own.items()}
    return dataclasses.replace(tensors, shapes=shapes, fetch=lambda name: tensors.fetch(own[name]))


def fold(params: dict[str, np.ndarray], tensors: Tensors) -> None:
    """Every token is of segment 0: its row is part of what the positions give. Raises `Differing`."""
    positions = params["embeddings/positions/embedding"]
    if (there := tensors.shapes.get(SEGMENTS)) is not None:
        if len(there) != 2 or there[0] < 1 or there[1] != positions.shape[1]:
            raise Differing(tensors.origin, [(SEGMENTS, (1, positions.shape[1]), there)])
        positions += tensors.read(SEGMENTS)[0]
