"""Hugging Face ProphetNet and XLM-ProphetNet (XGLUE's Unicoder with xFNP): an encoder and an
n-stream decoder with one table of words. Positions begin at the row after that of padding."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlingjax.convert.formats import seq2seq_form
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import Names, below
from xlingjax.convert.formats.reading import within
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.convert.formats.writing import differing
from xlingjax.convert.formats.xlm_roberta import counted
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.model.config import ModelConfig

CROSS_LINGUAL = "xlm-prophetnet"
MODEL_TYPE = "prophetnet"
"""What is written: of the cross-lingual one transformers 5 has no name."""
MODEL_TYPES = (MODEL_TYPE, CROSS_LINGUAL)
ROLES = {"pad_id": ("pad_token_id", 0), "eos_id": ("eos_token_id", 2)}
BODY, HEAD = "prophetnet.", None
WORDS = f"{BODY}word_embeddings.weight"
TIED = dict.fromkeys(
    (f"{BODY}encoder.word_embeddings.weight", f"{BODY}decoder.word_embeddings.weight"), WORDS
)
TIED["lm_head.weight"] = WORDS
WITHOUT_MEANING = LEFT = ()

_EMBEDDINGS = {"positions": "position_embeddings", "norm": "embeddings_layer_norm"}
_ATTENTION = {name: f"{name}_proj" for name in ("query", "key", "value", "out")}
_LAYER = {
    **below("attention/", "self_attn.", _ATTENTION),
    "attention_norm": "self_attn_layer_norm",
    "ffn/in": "feed_forward.intermediate",
    "ffn/out": "feed_forward.output",
    "ffn_norm": "feed_forward_layer_norm",
}
_DECODER = {
    **_LAYER,
    "attention/relative": "self_attn.relative_pos_embeddings",
    **below("cross_attention/attention/", "cross_attn.", _ATTENTION),
    "cross_attention/norm": "cross_attn_layer_norm",
}
MODULES = {
    "embeddings/tokens": f"{BODY}word_embeddings",
    **below("embeddings/", f"{BODY}encoder.", _EMBEDDINGS),
    **below("decoder_embeddings/", f"{BODY}decoder.", _EMBEDDINGS),
    **below("encoder/layers/", f"{BODY}encoder.layers.{{n}}.", _LAYER),
    **below("decoder/layers/", f"{BODY}decoder.layers.{{n}}.", _DECODER),
    "decoder/streams": f"{BODY}decoder.ngram_embeddings",
}
_HEADS = {
    "ProphetNetModel": None,
    "ProphetNetForConditionalGeneration": None,
    "XLMProphetNetModel": None,
    "XLMProphetNetForConditionalGeneration": None,
}


def config_of(fields: Fields, name: str) -> ModelConfig:
    """The model that config.json describes. Raises UserError for what is not computed here."""
    fields.architecture(_HEADS, "ProphetNetModel")
    fields.only("is_encoder_decoder", True)
    fields.only("add_cross_attention", True)
    fields.only("tie_word_embeddings", True)
    return ModelConfig(
        name=name,
        layers=fields.count("num_encoder_layers"),
        decoder_layers=fields.count("num_decoder_layers"),
        decoder_embeddings="shared_tokens",
        dim=fields.count("hidden_size"),
        heads=fields.same("num_encoder_attention_heads", "num_decoder_attention_heads"),
        ffn=fields.same("encoder_ffn_dim", "decoder_ffn_dim"),
        vocab_size=fields.count("vocab_size"),
        max_positions=fields.count("max_position_embeddings"),
        # The class counts positions from the row after that of padding.
        position_offset=fields.index("pad_token_id", 0) + 1,
        norm_eps=1e-5,
        gelu=fields.one_of("activation_function", {"gelu": "exact"}, "gelu"),
        head="plain",
        streams=fields.count("ngram", 2),
        relative_buckets=fields.count("num_buckets", 32),
        relative_max_distance=fields.count("relative_max_distance", 128),
        classifier="xlmr",
        dropout=fields.rate("dropout", 0.1),
        attention_dropout=fields.rate("attention_dropout", 0.1),
        init_std=fields.rate("init_std", 0.02),
    )


def names_of(config: ModelConfig) -> Names:
    return Names(MODULES)


def usual(tensors: Tensors) -> Tensors:
    """With the names of `ProphetNetForConditionalGeneration`. Raises UserError for a head that is
    not tied."""
    return within(tensors, BODY, ("lm_head.",), TIED)


# ---- and back ------------------------------------------------------------------------------------


def unfit(config: ModelConfig) -> str:
    """Why their class does not compute this model; "": it does. config: as our run has it, see
    `seq2seq_form`."""
    others = [
        differing(
            config,
            norm_order="post",
            embedding_norm=True,
            gelu="exact",
            head="plain",
            embedding_scale=False,
            segments=None,
        ),
        seq2seq_form.unlike(config),
    ]
    if config.decoder_embeddings == "separate":
        others.append("decoder_embeddings='separate'")
    # transformers has room for the keys of as many layers as the encoder has.
    if config.decoder_layers > config.layers:
        others.append(f"decoder_layers={config.decoder_layers} above layers={config.layers}")
    return ", ".join(filter(None, others))


def written_names(config: ModelConfig) -> Names:
    return names_of(config)


def unfold(theirs: dict[str, np.ndarray], config: ModelConfig, pad_id: int) -> None:
    """Positions that begin at row 1."""
    for side in ("encoder", "decoder"):
        name = f"{BODY}{side}.position_embeddings.weight"
        theirs[name] = counted(theirs[name], config.position_offset, 1)


def described(
    config: ModelConfig,
    vocabulary: Vocabulary,
    labels: Sequence[str] = (),
    languages: Sequence[str] = (),
) -> dict[str, Any]:
    """Their config.json. Their class embeds no languages."""
    init_std = config.init_std
    if init_std is None:
        init_std = 0.02
    return {
        "architectures": ["ProphetNetForConditionalGeneration"],
        "model_type": MODEL_TYPE,
        "is_encoder_decoder": True,
        "add_cross_attention": True,
        "vocab_size": config.true_rows,
        "hidden_size": config.dim,
        "num_encoder_layers": config.layers,
        "num_decoder_layers": config.decoder_layers,
        "num_encoder_attention_heads": config.heads,
        "num_decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.ffn,
        "decoder_ffn_dim": config.ffn,
        "max_position_embeddings": (config.max_positions - config.position_offset + 1),
        "activation_function": "gelu",
        "ngram": config.streams,
        "num_buckets": config.relative_buckets,
        "relative_max_distance": config.relative_max_distance,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": 0.0,
        "init_std": init_std,
        "tie_word_embeddings": True,
        # Not the vocabulary's: the class counts positions from it on, and its decoder counts
        # distances rightly from 0 alone.
        "pad_token_id": 0,
        "bos_token_id": vocabulary.bos_id,
        "eos_token_id": vocabulary.eos_id,
        "dtype": "float32",
    }
