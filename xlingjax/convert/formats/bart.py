"""Hugging Face BART and mBART (`Bart*`, `MBart*`): encoder-decoders with one table of words, each
side its own positions (from row 2 on) and norms. BART is post-LN, mBART pre-LN."""

import dataclasses

from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import Names
from xlingjax.convert.formats.reading import renamed
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig

MODEL_TYPES = ("bart", "mbart")
ROLES = {"pad_id": ("pad_token_id", 1), "eos_id": ("eos_token_id", 2)}
BODY, HEAD = "model.", None
WORDS, BIAS = f"{BODY}shared.weight", "final_logits_bias"
TIED = dict.fromkeys(
    (f"{BODY}encoder.embed_tokens.weight", f"{BODY}decoder.embed_tokens.weight"), WORDS
)
TIED["lm_head.weight"] = WORDS
WITHOUT_MEANING = (f"{BODY}encoder.version", f"{BODY}decoder.version")
LEFT = ()
OFFSET = 2

_EMBEDDINGS = {"positions": "embed_positions", "norm": "layernorm_embedding"}
_LAYER = {
    "attention/query": "self_attn.q_proj",
    "attention/key": "self_attn.k_proj",
    "attention/value": "self_attn.v_proj",
    "attention/out": "self_attn.out_proj",
    "attention_norm": "self_attn_layer_norm",
    "ffn/in": "fc1",
    "ffn/out": "fc2",
    "ffn_norm": "final_layer_norm",
}
_CROSS = {
    "cross_attention/attention/query": "encoder_attn.q_proj",
    "cross_attention/attention/key": "encoder_attn.k_proj",
    "cross_attention/attention/value": "encoder_attn.v_proj",
    "cross_attention/attention/out": "encoder_attn.out_proj",
    "cross_attention/norm": "encoder_attn_layer_norm",
}
MODULES = {
    "embeddings/tokens": f"{BODY}shared",
    **{
        f"embeddings/{ours}": f"{BODY}encoder.{theirs}"
        for ours, theirs in _EMBEDDINGS.items()
    },
    **{
        f"decoder_embeddings/{ours}": f"{BODY}decoder.{theirs}"
        for ours, theirs in _EMBEDDINGS.items()
    },
    **{
        f"encoder/layers/{ours}": f"{BODY}encoder.layers.{{n}}.{theirs}"
        for ours, theirs in _LAYER.items()
    },
    **{
        f"decoder/layers/{ours}": f"{BODY}decoder.layers.{{n}}.{theirs}"
        for ours, theirs in (_LAYER | _CROSS).items()
    },
    "encoder/final_norm": f"{BODY}encoder.layer_norm",
    "decoder/final_norm": f"{BODY}decoder.layer_norm",
}
_HEADS = {
    f"{kind}{suffix}": None
    for kind in ("Bart", "MBart")
    for suffix in ("Model", "ForConditionalGeneration")
}


def config_of(fields: Fields, name: str) -> ModelConfig:
    """The model that config.json describes. Raises UserError for what is not computed here."""
    pre = fields.values["model_type"] == "mbart"
    fields.architecture(_HEADS, "BartModel")
    for option, only in (
        ("is_encoder_decoder", True),
        ("tie_word_embeddings", True),
        ("static_position_embeddings", False),
        ("normalize_before", pre),
        ("add_final_layer_norm", pre),
        ("normalize_embedding", True),
    ):
        fields.one_of(option, {only: only}, only)
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
        norm_order="pre" if pre else "post",
        norm_eps=1e-5,
        gelu=fields.one_of("activation_function", {"gelu": "exact"}, "gelu"),
        head="plain",
        embedding_scale=fields.one_of(
            "scale_embedding", {True: True, False: False}, False
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
    tied or has a
    bias."""
    own = (BODY, "lm_head.", BIAS)
    tensors = renamed(
        tensors, lambda name: name if name.startswith(own) else BODY + name, TIED
    )
    if BIAS in tensors.shapes:
        if tensors.read(BIAS).any():
            raise UserError(
                f"{tensors.origin}: {BIAS} is not 0; an encoder-decoder's head has no bias here"
            )
        shapes = {name: shape for name, shape in tensors.shapes.items() if name != BIAS}
        tensors = dataclasses.replace(tensors, shapes=shapes)
    return tensors
