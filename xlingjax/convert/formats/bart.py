"""Hugging Face BART and mBART (`Bart*`, `MBart*`): encoder-decoders with one table of words, each
side its own positions (from row 2 on) and norms. BART is post-LN, mBART pre-LN.

A run whose sides have tables of words of their own is written as a model that ties none."""

import dataclasses
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

MODEL_TYPE = "bart"
MODEL_TYPES = (MODEL_TYPE, "mbart")
ROLES = {"pad_id": ("pad_token_id", 1), "eos_id": ("eos_token_id", 2)}
BODY, HEAD = "model.", None
WORDS, BIAS = f"{BODY}shared.weight", "final_logits_bias"
_OF_ENCODER = f"{BODY}encoder.embed_tokens"
_OF_DECODER = f"{BODY}decoder.embed_tokens"
_PROJECTION = "lm_head.weight"
TIED = dict.fromkeys((f"{_OF_ENCODER}.weight", f"{_OF_DECODER}.weight", _PROJECTION), WORDS)
# Under the name that our table of names makes of it.
_BIAS_OF_HEAD = f"{BIAS}.bias"
OUT = -1e9
"""Bias of rows that no text has: languages, and rows without a piece. Training leaves them out of
the softmax, and so must whoever searches there."""
WITHOUT_MEANING = (f"{BODY}encoder.version", f"{BODY}decoder.version")
LEFT = ()
# fairseq's positions begin behind the index of padding, 1, and transformers kept its rows.
OFFSET = 2

_EMBEDDINGS = {"positions": "embed_positions", "norm": "layernorm_embedding"}
_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}
_LAYER = {
    **below("attention/", "self_attn.", _ATTENTION),
    "attention_norm": "self_attn_layer_norm",
    "ffn/in": "fc1",
    "ffn/out": "fc2",
    "ffn_norm": "final_layer_norm",
}
_CROSS = {
    **below("cross_attention/attention/", "encoder_attn.", _ATTENTION),
    "cross_attention/norm": "encoder_attn_layer_norm",
}
MODULES = {
    "embeddings/tokens": f"{BODY}shared",
    **below("embeddings/", f"{BODY}encoder.", _EMBEDDINGS),
    **below("decoder_embeddings/", f"{BODY}decoder.", _EMBEDDINGS),
    **below("encoder/layers/", f"{BODY}encoder.layers.{{n}}.", _LAYER),
    **below("decoder/layers/", f"{BODY}decoder.layers.{{n}}.", _LAYER | _CROSS),
    "encoder/final_norm": f"{BODY}encoder.layer_norm",
    "decoder/final_norm": f"{BODY}decoder.layer_norm",
}
_HEADS = {
    "BartModel": None,
    "BartForConditionalGeneration": None,
    "MBartModel": None,
    "MBartForConditionalGeneration": None,
}


def config_of(fields: Fields, name: str) -> ModelConfig:
    """The model that config.json describes. Raises UserError for what is not computed here."""
    pre = fields.values["model_type"] == "mbart"
    norm_order = "post"
    if pre:
        norm_order = "pre"
    # Looked up for its error alone: none of the classes has a head that is read.
    fields.architecture(_HEADS, "BartModel")
    fields.only("is_encoder_decoder", True)
    tables = fields.one_of("tie_word_embeddings", {True: "shared_tokens", False: "separate"}, True)
    fields.only("static_position_embeddings", False)
    # Older files say in fields of their own what the class computes in any case: both must agree.
    fields.only("normalize_before", pre)
    fields.only("add_final_layer_norm", pre)
    fields.only("normalize_embedding", True)
    return ModelConfig(
        name=name,
        layers=fields.count("encoder_layers"),
        decoder_layers=fields.count("decoder_layers"),
        decoder_embeddings=tables,
        dim=fields.count("d_model"),
        heads=fields.same("encoder_attention_heads", "decoder_attention_heads"),
        ffn=fields.same("encoder_ffn_dim", "decoder_ffn_dim"),
        vocab_size=fields.count("vocab_size"),
        max_positions=fields.count("max_position_embeddings") + OFFSET,
        position_offset=OFFSET,
        norm_order=norm_order,
        norm_eps=1e-5,
        gelu=fields.one_of("activation_function", {"gelu": "exact"}, "gelu"),
        head="plain",
        embedding_scale=fields.one_of("scale_embedding", {True: True, False: False}, False),
        classifier="xlmr",
        dropout=fields.rate("dropout", 0.1),
        attention_dropout=fields.rate("attention_dropout", 0.0),
        init_std=fields.rate("init_std", 0.02),
    )


def names_of(config: ModelConfig) -> Names:
    names = dict(MODULES)
    head = "head"
    if config.decoder_embeddings == "separate":
        names["embeddings/tokens"] = _OF_ENCODER
        names["decoder_embeddings/tokens"] = _OF_DECODER
        # The encoder's own head has no place there.
        head = "decoder_head"
    if config.head == "tied":
        names[head] = BIAS
    return Names(names)


def prepared(config: ModelConfig, tensors: Tensors) -> tuple[ModelConfig, Tensors]:
    """(the model whose head is as the bias there is, the tensors with the names of
    `MBartForConditionalGeneration`). Raises UserError for a head that is not tied to the words that
    the decoder reads."""
    tied = TIED
    if config.decoder_embeddings == "separate":
        tied = {_PROJECTION: f"{_OF_DECODER}.weight"}
    tensors = within(tensors, BODY, ("lm_head.", BIAS), tied)
    shapes = dict(tensors.shapes)
    if config.decoder_embeddings == "separate":
        # Neither side reads it.
        shapes.pop(WORDS, None)
    bias_V = np.zeros(config.true_rows, np.float32)
    # A buffer of zeros in the class of transformers, which saves it with the weights.
    if BIAS in shapes:
        del shapes[BIAS]
        bias_V = tensors.read(BIAS).reshape(-1).copy()
        bias_V[bias_V == OUT] = 0
    if bias_V.any():
        config = config.replace(head="tied")
        shapes[_BIAS_OF_HEAD] = bias_V.shape

    def fetch(name: str) -> np.ndarray:
        if name == _BIAS_OF_HEAD:
            return bias_V
        return tensors.fetch(name)

    return config, dataclasses.replace(tensors, shapes=shapes, fetch=fetch)


# ---- and back ------------------------------------------------------------------------------------


def unfit(config: ModelConfig) -> str:
    """Why their classes do not compute this model; "": they do. config: as our run has it, see
    `seq2seq_form`."""
    others = [
        differing(config, embedding_norm=True, gelu="exact", streams=0, segments=None),
        seq2seq_form.unlike(config),
    ]
    if config.head == "transform":
        others.append("head='transform'")
    return ", ".join(filter(None, others))


def written_names(config: ModelConfig) -> Names:
    return names_of(config)


def unfold(theirs: dict[str, np.ndarray], config: ModelConfig, pad_id: int) -> None:
    """What theirs has and ours has not: positions from row 2 on, a bias of the head in any case,
    and of tables that are not tied the decoder's by its other names."""
    for side in ("encoder", "decoder"):
        name = f"{BODY}{side}.embed_positions.weight"
        theirs[name] = counted(theirs[name], config.position_offset, OFFSET)
    bias_V = theirs.pop(_BIAS_OF_HEAD, np.zeros(config.true_rows, np.float32))
    bias_V = bias_V.copy()
    bias_V[config.vocab_size - config.language_tokens :] = OUT
    theirs[BIAS] = bias_V[None]
    if config.decoder_embeddings == "separate":
        words_VD = theirs[f"{_OF_DECODER}.weight"]
        theirs[_PROJECTION] = words_VD.copy()
        # The class wants it, and reads nothing of it.
        theirs[WORDS] = words_VD.copy()


def described(
    config: ModelConfig,
    vocabulary: Vocabulary,
    labels: Sequence[str] = (),
    languages: Sequence[str] = (),
) -> dict[str, Any]:
    """Their config.json. Their classes embed no languages."""
    architecture = "BartForConditionalGeneration"
    model_type = MODEL_TYPE
    if config.norm_order == "pre":
        architecture = "MBartForConditionalGeneration"
        model_type = "mbart"
    init_std = config.init_std
    if init_std is None:
        init_std = 0.02
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "is_encoder_decoder": True,
        "vocab_size": config.true_rows,
        "d_model": config.dim,
        "encoder_layers": config.layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.ffn,
        "decoder_ffn_dim": config.ffn,
        "max_position_embeddings": (config.max_positions - config.position_offset),
        "activation_function": "gelu",
        "scale_embedding": config.embedding_scale,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": 0.0,
        "init_std": init_std,
        "tie_word_embeddings": config.decoder_embeddings != "separate",
        "pad_token_id": vocabulary.pad_id,
        "bos_token_id": vocabulary.bos_id,
        "eos_token_id": vocabulary.eos_id,
        # BART's would be forced at the longest length.
        "forced_eos_token_id": None,
        "dtype": "float32",
    }
