"""Hugging Face ProphetNet and XLM-ProphetNet (XGLUE's Unicoder with xFNP): an encoder and an
n-stream decoder with one table of words. Positions begin at the row after that of padding."""

from xlingjax.convert.formats.family import Family, Values, counted
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import below
from xlingjax.convert.formats.tensors import Arrays
from xlingjax.model.config import ModelConfig

CROSS_LINGUAL = "xlm-prophetnet"
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


class ProphetNet(Family):
    # Of the cross-lingual one transformers 5 has no name, so the other is written.
    types = ("prophetnet", CROSS_LINGUAL)
    architectures = dict.fromkeys(
        (
            "XLMProphetNetModel",
            "XLMProphetNetForConditionalGeneration",
            "ProphetNetModel",
            "ProphetNetForConditionalGeneration",
        )
    )
    settings = {
        "layers": "num_encoder_layers",
        "decoder_layers": "num_decoder_layers",
        "dim": "hidden_size",
        "heads": (("num_encoder_attention_heads", "num_decoder_attention_heads"), None),
        "ffn": (("encoder_ffn_dim", "decoder_ffn_dim"), None),
        "vocab_size": "vocab_size",
        "max_positions": "max_position_embeddings",
        "streams": ("ngram", 2),
        "relative_buckets": ("num_buckets", 32),
        "relative_max_distance": ("relative_max_distance", 128),
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.1),
        "init_std": ("init_std", 0.02),
    }
    fixed = {
        "activation_function": "gelu",
        "is_encoder_decoder": True,
        "add_cross_attention": True,
        "tie_word_embeddings": True,
    }
    computed = {
        "norm_order": "post",
        "head": "plain",
        "embedding_scale": False,
        "segments": None,
    }
    bare = "ProphetNetModel"
    body = "prophetnet."
    beside = ("lm_head.",)
    tied = dict.fromkeys(
        (
            "prophetnet.encoder.word_embeddings.weight",
            "prophetnet.decoder.word_embeddings.weight",
            "lm_head.weight",
        ),
        "prophetnet.word_embeddings.weight",
    )
    modules = {
        "embeddings/tokens": "prophetnet.word_embeddings",
        **below("embeddings/", "prophetnet.encoder.", _EMBEDDINGS),
        **below("decoder_embeddings/", "prophetnet.decoder.", _EMBEDDINGS),
        **below("encoder/layers/", "prophetnet.encoder.layers.{n}.", _LAYER),
        **below("decoder/layers/", "prophetnet.decoder.layers.{n}.", _DECODER),
        "decoder/streams": "prophetnet.decoder.ngram_embeddings",
    }

    def tell(self, fields: Fields, ours: Values) -> None:
        # The class counts positions from the row after that of padding.
        ours["position_offset"] = fields.index("pad_token_id", 0) + 1
        ours |= {"decoder_embeddings": "shared_tokens", "norm_eps": 1e-5}

    def unfit(self, config: ModelConfig) -> str:
        others = [super().unfit(config)]
        if config.decoder_embeddings == "separate":
            others.append("decoder_embeddings='separate'")
        # transformers has room for the keys of as many layers as the encoder has.
        if config.decoder_layers > config.layers:
            others.append(f"decoder_layers={config.decoder_layers} above layers={config.layers}")
        return ", ".join(filter(None, others))

    def rows_before(self, pad_id: int) -> int:
        return 1

    def unfold(self, theirs: Arrays, config: ModelConfig, pad_id: int) -> None:
        for side in ("encoder", "decoder"):
            name = f"prophetnet.{side}.position_embeddings.weight"
            theirs[name] = counted(theirs[name], config.position_offset, 1)

    def more_fields(self, config: ModelConfig) -> Values:
        # Padding is not the vocabulary's: the class counts positions from it on, and its decoder
        # counts distances rightly from 0 alone.
        return {"activation_dropout": 0.0, "pad_token_id": 0}


PROPHETNET = ProphetNet()
