"""Hugging Face BART and mBART (`Bart*`, `MBart*`): encoder-decoders with one table of words, each
side its own positions (from row 2 on) and norms. BART is post-LN, mBART pre-LN."""

import dataclasses

from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import Names, below
from xlingjax.convert.formats.reading import within
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig

MODEL_TYPES = ("bart", "mbart")
ROLES = {"pad_id": ("pad_token_id", 1), "eos_id": ("eos_token_id", 2)}
BODY, HEAD = "model.", None
WORDS, BIAS = f"{BODY}shared.weight", "final_logits_bias"
TIED = dict.fromkeys(
    (
        f"{BODY}encoder.embed_tokens.weight",
        f"{BODY}decoder.embed_tokens.weight",
    ),
    WORDS,
)
TIED["lm_head.weight"] = WORDS
WITHOUT_MEANING = (f"{BODY}encoder.version", f"{BODY}decoder.version")
LEFT = ()
# fairseq's positions begin behind the index of padding, 1, and transformers kept its rows.
OFFSET = 2

_EMBEDDINGS = {"positions": "embed_positions", "norm": "layernorm_embedding"}
_ATTENTION = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "out": "out_proj",
}
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
    fields.only("tie_word_embeddings", True)
    fields.only("static_position_embeddings", False)
    # Older files say in fields of their own what the class computes in any case: both must agree.
    fields.only("normalize_before", pre)
    fields.only("add_final_layer_norm", pre)
    fields.only("normalize_embedding", True)
    return ModelConfig(
        name=name,
        layers=fields.count("encoder_layers"),
        decoder_layers=fields.count("decoder_layers"),
        decoder_embeddings="shared_tokens",
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
        embedding_scale=fields.one_of(
            "scale_embedding",
            {True: True, False: False},
            False,
        ),
        classifier="xlmr",
        dropout=fields.rate("dropout", 0.1),
        attention_dropout=fields.rate("attention_dropout", 0.0),
        init_std=fields.rate("init_std", 0.02),
    )


def names_of(config: ModelConfig) -> Names:
    return Names(MODULES)


def usual(tensors: Tensors) -> Tensors:
    """With the names of `MBartForConditionalGeneration`. Raises UserError for a head that is not
    tied or has a bias."""
    tensors = within(tensors, BODY, ("lm_head.", BIAS), TIED)
    # A buffer of zeros in the class of transformers, which saves it with the weights.
    if BIAS in tensors.shapes:
        if tensors.read(BIAS).any():
            raise UserError(
                f"{tensors.origin}: {BIAS} is not 0; an encoder-decoder's head has no bias here",
            )
        shapes = dict(tensors.shapes)
        del shapes[BIAS]
        tensors = dataclasses.replace(tensors, shapes=shapes)
    return tensors
