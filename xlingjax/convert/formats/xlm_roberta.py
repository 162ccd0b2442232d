"""Hugging Face XLM-R (`XLMRoberta*`), and what has its layout: RoBERTa, InfoXLM, XLM-V, AfroXLMR
and other continued ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import Names, with_classifier
from xlingjax.convert.formats.reading import folded, within
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.convert.formats.writing import classes, differing, kind_of, names_of_class
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.model.config import ModelConfig

MODEL_TYPE = "xlm-roberta"
"""What is written."""
MODEL_TYPES = (MODEL_TYPE, "roberta")
ROLES = {"pad_id": ("pad_token_id", 1)}
BODY, HEAD = "roberta.", "lm_head."
WORDS = f"{BODY}embeddings.word_embeddings.weight"
SEGMENTS = f"{BODY}embeddings.token_type_embeddings.weight"
POSITIONS = f"{BODY}embeddings.position_embeddings.weight"
# Other names of the same tensor.
TIED = {"lm_head.decoder.weight": WORDS, "lm_head.decoder.bias": "lm_head.bias"}
# Buffers, and the layer that next-sentence prediction left in the class without being trained.
WITHOUT_MEANING = (
    f"{BODY}embeddings.position_ids",
    f"{BODY}embeddings.token_type_ids",
    f"{BODY}pooler.dense.",
)
LEFT = ()

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
    "spans": {"classifier/out": "qa_outputs"},
}
HEADS = {
    "XLMRobertaModel": None,
    "XLMRobertaForMaskedLM": None,
    "XLMRobertaForSequenceClassification": "xlmr",
    "XLMRobertaForTokenClassification": "tagging",
    "XLMRobertaForQuestionAnswering": "spans",
}
_ROBERTA = {name.removeprefix("XLM"): kind for name, kind in HEADS.items()}
# Of the two without a classifier the later one is written, which has the vocabulary head.
_ARCHITECTURES = {kind or "words": architecture for architecture, kind in HEADS.items()}


def config_of(fields: Fields, name: str) -> ModelConfig:
    """The model that config.json describes. Raises UserError for what is not computed here."""
    kind = fields.architecture(HEADS | _ROBERTA, "XLMRobertaModel")
    return encoder_of(fields, name, kind, position_offset=fields.index("pad_token_id") + 1)


def encoder_of(
    fields: Fields, name: str, classifier: str | None, position_offset: int, norm_eps: float = 1e-12
) -> ModelConfig:
    """Of the options that BERT, RoBERTa, XLM-R and ERNIE-M have in common. norm_eps: where none is
    named. Raises UserError for what is not computed here."""
    fields.only("is_decoder", False)
    fields.only("add_cross_attention", False)
    fields.only("tie_word_embeddings", True)
    fields.only("position_embedding_type", "absolute")
    num_labels = 0
    if classifier == "spans":
        # Where the answer begins, and where it ends.
        num_labels = 2
    elif classifier:
        num_labels = len(fields.labels())
    config = ModelConfig(
        name=name,
        layers=fields.count("num_hidden_layers"),
        dim=fields.count("hidden_size"),
        heads=fields.count("num_attention_heads"),
        ffn=fields.count("intermediate_size"),
        vocab_size=fields.count("vocab_size"),
        max_positions=fields.count("max_position_embeddings"),
        position_offset=position_offset,
        norm_eps=fields.rate("layer_norm_eps", norm_eps),
        # XLM-R's vocabulary head has this one in any case.
        gelu=fields.one_of("hidden_act", {"gelu": "exact"}, "gelu"),
        head="transform",
        classifier=classifier or "xlmr",
        num_labels=num_labels,
        dropout=fields.rate("hidden_dropout_prob", 0.1),
        attention_dropout=fields.rate("attention_probs_dropout_prob", 0.1),
        init_std=fields.rate("initializer_range", 0.02),
    )
    if classifier and fields.values.get("classifier_dropout") is not None:
        config = config.replace(classifier_dropout=fields.rate("classifier_dropout", 0.1))
    return config


def names_of(config: ModelConfig) -> Names:
    return with_classifier(MODULES, CLASSIFIERS, config)


def usual(tensors: Tensors) -> Tensors:
    """With the names of `XLMRobertaForMaskedLM`, segment 0 in the positions. Raises UserError for a
    head that is not tied."""
    tensors = within(tensors, BODY, (HEAD, "classifier.", "qa_outputs."), TIED)
    return folded(tensors, POSITIONS, SEGMENTS)


def unfit(config: ModelConfig) -> str:
    """Why their classes do not compute this model; "": they do."""
    return differing(
        config,
        norm_order="post",
        embedding_norm=True,
        gelu="exact",
        head="transform",
        embedding_scale=False,
        decoder_layers=0,
        segments=None,
    )


def written_names(config: ModelConfig) -> Names:
    """Of the class that `described` names."""
    return names_of_class(config, MODULES, CLASSIFIERS, HEAD)


def unfold(theirs: dict[str, np.ndarray], config: ModelConfig, pad_id: int) -> None:
    """What theirs has and ours has not: a row of segments; positions count from the row after that
    of `pad_id`."""
    # Zeros, so that what the class adds to every token is nothing.
    theirs[SEGMENTS] = np.zeros((1, config.dim), np.float32)
    theirs[POSITIONS] = counted(theirs[POSITIONS], config.position_offset, pad_id + 1)


def counted(table: np.ndarray, rows: int, wanted: int) -> np.ndarray:
    """A table of positions with `wanted` in place of `rows` rows in front of the first position's,
    which no sentence reads."""
    if rows == wanted:
        return np.concatenate([table[:rows], table[rows:]])
    before = np.zeros((wanted, table.shape[1]), np.float32)
    return np.concatenate([before, table[rows:]])


def described(
    config: ModelConfig,
    vocabulary: Vocabulary,
    labels: Sequence[str] = (),
    languages: Sequence[str] = (),
) -> dict[str, Any]:
    """Their config.json. labels: names of the classes, in order. Their classes embed no
    languages."""
    kind = kind_of(config, CLASSIFIERS)
    init_std = config.init_std
    if init_std is None:
        init_std = 0.02
    fields = {
        "architectures": [_ARCHITECTURES[kind]],
        "model_type": MODEL_TYPE,
        "vocab_size": config.true_rows,
        "hidden_size": config.dim,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.ffn,
        "hidden_act": "gelu",
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        # Theirs counts from the row after that of padding, wherever ours begins.
        "max_position_embeddings": (
            config.max_positions - config.position_offset + vocabulary.pad_id + 1
        ),
        # The class has segments in any case; ours gives it a row of zeros.
        "type_vocab_size": 1,
        "initializer_range": init_std,
        "layer_norm_eps": config.norm_eps,
        "pad_token_id": vocabulary.pad_id,
        "bos_token_id": vocabulary.bos_id,
        "eos_token_id": vocabulary.eos_id,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    # The two outputs of spans have no names.
    if kind in ("xlmr", "tagging"):
        fields |= classes(config, labels)
    if kind != "words" and config.classifier_dropout is not None:
        fields["classifier_dropout"] = config.classifier_dropout
    return fields
