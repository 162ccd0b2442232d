"""Hugging Face XLM (`XLM*`: `xlm-mlm-*`), language embeddings included. Its FFN is always 4 D
wide."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import Names, with_classifier
from xlingjax.convert.formats.reading import within
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.convert.formats.writing import classes, differing, kind_of, names_of_class
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig

MODEL_TYPE = "xlm"
# Ids of the special pieces: the same numbers in every published one.
ROLES = {
    "pad_id": ("pad_token_id", 2),
    "eos_id": ("eos_token_id", 1),
    "unk_id": ("unk_index", 3),
    "mask_id": ("mask_index", 5),
}
BODY, HEAD = "transformer.", "pred_layer."
TIED = {"pred_layer.proj.weight": f"{BODY}embeddings.weight"}
WITHOUT_MEANING = (f"{BODY}position_ids",)
LEFT = ()

MODULES = {
    "embeddings/tokens": f"{BODY}embeddings",
    "embeddings/positions": f"{BODY}position_embeddings",
    "embeddings/languages": f"{BODY}lang_embeddings",
    "embeddings/norm": f"{BODY}layer_norm_emb",
    "encoder/layers/attention/query": f"{BODY}attentions.{{n}}.q_lin",
    "encoder/layers/attention/key": f"{BODY}attentions.{{n}}.k_lin",
    "encoder/layers/attention/value": f"{BODY}attentions.{{n}}.v_lin",
    "encoder/layers/attention/out": f"{BODY}attentions.{{n}}.out_lin",
    "encoder/layers/attention_norm": f"{BODY}layer_norm1.{{n}}",
    "encoder/layers/ffn/in": f"{BODY}ffns.{{n}}.lin1",
    "encoder/layers/ffn/out": f"{BODY}ffns.{{n}}.lin2",
    "encoder/layers/ffn_norm": f"{BODY}layer_norm2.{{n}}",
    "head": "pred_layer.proj",
}
CLASSIFIERS = {
    "xlm": {"classifier/out": "sequence_summary.summary"},
    "tagging": {"classifier/out": "classifier"},
    "spans": {"classifier/out": "qa_outputs"},
}
_HEADS = {
    "XLMModel": None,
    "XLMWithLMHeadModel": None,
    "XLMForSequenceClassification": "xlm",
    "XLMForTokenClassification": "tagging",
    "XLMForQuestionAnsweringSimple": "spans",
}
# Of the two without a classifier the later one is written, which has the vocabulary head.
_ARCHITECTURES = {kind or "words": architecture for architecture, kind in _HEADS.items()}


def config_of(fields: Fields, name: str) -> ModelConfig:
    """The model that config.json describes. Raises UserError for what is not computed here."""
    kind = fields.architecture(_HEADS, "XLMModel")
    fields.only("gelu_activation", True)
    fields.only("sinusoidal_embeddings", False)
    fields.only("causal", False)
    # Adaptive softmax has a head of clusters.
    fields.only("asm", False)
    fields.only("is_encoder", True)
    fields.only("tie_word_embeddings", True)
    languages = 0
    if fields.one_of("use_lang_emb", {True: True, False: False}, True):
        languages = fields.count("n_langs", 1)
    if languages == 1:
        # The class makes no table for a single one.
        languages = 0
    # The first releases have XLM's own name, transformers writes the other.
    words = "n_words"
    if "vocab_size" in fields.values:
        words = "vocab_size"
    dim = fields.count("emb_dim")
    config = ModelConfig(
        name=name,
        layers=fields.count("n_layers"),
        dim=dim,
        heads=fields.count("n_heads"),
        ffn=4 * dim,
        vocab_size=fields.count(words),
        max_positions=fields.count("max_position_embeddings"),
        num_languages=languages,
        norm_eps=fields.rate("layer_norm_eps", 1e-12),
        head="tied",
        classifier="xlm",
        dropout=fields.rate("dropout", 0.1),
        attention_dropout=fields.rate("attention_dropout", 0.1),
    )
    if kind == "spans":
        # Where the answer begins, and where it ends.
        config = config.replace(classifier=kind, num_labels=2)
    elif kind:
        config = config.replace(classifier=kind, num_labels=len(fields.labels()))
    if kind == "xlm":
        fields.only("summary_type", "first")
        fields.only("summary_use_proj", True)
        fields.only("summary_proj_to_labels", True)
        fields.only("summary_activation", None)
        config = config.replace(
            # XLM's class has a rate of its own before the classifier.
            classifier_dropout=fields.rate("summary_first_dropout", 0.1)
        )
    return config


def languages_of(fields: Fields) -> tuple[str, ...]:
    """The codes of its language embedding, index = id. Raises UserError where config.json does not
    name them all, in the order that runs have."""
    count = fields.count("n_langs", 1)
    named = fields.values.get("lang2id")
    numbers = sorted(range(count), key=repr)
    # By `repr`, since anything may stand there, and 1 and "1" cannot be compared.
    if not isinstance(named, dict) or sorted(named.values(), key=repr) != numbers:
        raise UserError(
            f"{fields.path}: lang2id={named!r} does not name n_langs={count} languages; give their"
            ' codes, {"ar": 0, "bg": 1, ...}'
        )
    codes = sorted(named)
    if codes != sorted(named, key=named.__getitem__):
        raise UserError(
            f"{fields.path}: lang2id={named!r} is not in alphabetical order, as the languages of a"
            " run are; reorder the rows of lang_embeddings and lang2id"
        )
    return tuple(codes)


def names_of(config: ModelConfig) -> Names:
    return with_classifier(MODULES, CLASSIFIERS, config)


def usual(tensors: Tensors) -> Tensors:
    """With the names of `XLMWithLMHeadModel`. Raises UserError for a head that is not tied."""
    heads = (HEAD, "sequence_summary.", "classifier.", "qa_outputs.")
    return within(tensors, BODY, heads, TIED)


# ---- and back ------------------------------------------------------------------------------------


def unfit(config: ModelConfig) -> str:
    """Why their classes do not compute this model; "": they do."""
    return differing(
        config,
        head="tied",
        norm_order="post",
        gelu="exact",
        ffn=4 * config.dim,
        position_offset=0,
        embedding_norm=True,
        embedding_scale=False,
        decoder_layers=0,
        segments=None,
    )


def written_names(config: ModelConfig) -> Names:
    """Of the class that `described` names."""
    return names_of_class(config, MODULES, CLASSIFIERS, HEAD)


def unfold(theirs: dict[str, np.ndarray], config: ModelConfig, pad_id: int) -> None:
    """Theirs has nothing that ours has not."""


def described(
    config: ModelConfig,
    vocabulary: Vocabulary,
    labels: Sequence[str] = (),
    languages: Sequence[str] = (),
) -> dict[str, Any]:
    """Their config.json. labels: names of the classes, in order; languages: the codes, index =
    id."""
    kind = kind_of(config, CLASSIFIERS)
    fields = {
        "architectures": [_ARCHITECTURES[kind]],
        "model_type": MODEL_TYPE,
        "vocab_size": config.true_rows,
        "emb_dim": config.dim,
        "n_layers": config.layers,
        "n_heads": config.heads,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "gelu_activation": True,
        "sinusoidal_embeddings": False,
        "causal": False,
        "asm": False,
        "n_langs": max(config.num_languages, 1),
        "use_lang_emb": config.has_languages,
        "max_position_embeddings": config.max_positions,
        "layer_norm_eps": config.norm_eps,
        "tie_word_embeddings": True,
        "pad_token_id": vocabulary.pad_id,
        "bos_token_id": vocabulary.bos_id,
        "eos_token_id": vocabulary.eos_id,
        "unk_index": vocabulary.unk_id,
        "mask_index": vocabulary.mask_id,
        "dtype": "float32",
    }
    if config.has_languages:
        codes = [*languages]
        for number in range(len(languages), config.num_languages):
            codes.append(f"language {number}")
        fields["lang2id"] = {code: i for i, code in enumerate(codes)}
        fields["id2lang"] = {str(i): code for i, code in enumerate(codes)}
    if kind in ("xlm", "tagging"):
        fields |= classes(config, labels)
    if kind == "xlm":
        rate = config.classifier_dropout
        if rate is None:
            rate = config.dropout
        fields |= {
            "summary_type": "first",
            "summary_use_proj": True,
            "summary_proj_to_labels": True,
            "summary_activation": None,
            "summary_first_dropout": rate,
        }
    return fields
