"""Hugging Face ProphetNet and XLM-ProphetNet (XGLUE's Unicoder with xFNP): an encoder and an
n-stream decoder with one table of words. Positions begin at the row after that of padding."""

from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import Names, below
from xlingjax.convert.formats.reading import within
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.model.config import ModelConfig

CROSS_LINGUAL = "xlm-prophetnet"
MODEL_TYPES = ("prophetnet", CROSS_LINGUAL)
ROLES = {"pad_id": ("pad_token_id", 0), "eos_id": ("eos_token_id", 2)}
BODY, HEAD = "prophetnet.", None
WORDS = f"{BODY}word_embeddings.weight"
TIED = dict.fromkeys(
    (
        f"{BODY}encoder.word_embeddings.weight",
        f"{BODY}decoder.word_embeddings.weight",
    ),
    WORDS,
)
TIED["lm_head.weight"] = WORDS
WITHOUT_MEANING = LEFT = ()

_EMBEDDINGS = {
    "positions": "position_embeddings",
    "norm": "embeddings_layer_norm",
}
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
        heads=fields.same(
            "num_encoder_attention_heads",
            "num_decoder_attention_heads",
        ),
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
