"""mT5 and umT5: encoder-decoders whose scores know distances alone.

A text is `x </s>`, without `<s>`, and a decoder begins with padding. Rows here are opened by
padding that nobody sees (`ModelConfig.unseen`), so that all columns compute what they do there.
"""

import dataclasses
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from xlingjax.convert.formats.family import Family, Values, projections
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import below
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.data.vocabulary.tokenizer_files import T5, read_object
from xlingjax.model.config import ModelConfig

PIECES = "spiece.model"
_HEAD, _WORDS = "lm_head.weight", "shared.weight"
_BIASES = "layer.0.SelfAttention.relative_attention_bias"


def _attention(ours: str, theirs: str) -> dict[str, str]:
    return {**projections(ours, f"{theirs}.*"), f"{ours}/out": f"{theirs}.o"}


def _feed_forward(layer: str) -> dict[str, str]:
    dense = f"{layer}.DenseReluDense"
    inner = {"ffn/in": f"{dense}.wi_0", "ffn/gate": f"{dense}.wi_1", "ffn/out": f"{dense}.wo"}
    return {**inner, "ffn_norm": f"{layer}.layer_norm"}


_LAYER = {
    **_attention("attention", "layer.0.SelfAttention"),
    "attention_norm": "layer.0.layer_norm",
}
_CROSS = {
    **_attention("cross_attention/attention", "layer.1.EncDecAttention"),
    "cross_attention/norm": "layer.1.layer_norm",
}


_MODULES = {
    "embeddings/tokens": "shared",
    **below("encoder/layers/", "encoder.block.{n}.", _LAYER | _feed_forward("layer.1")),
    **below("decoder/layers/", "decoder.block.{n}.", _LAYER | _CROSS | _feed_forward("layer.2")),
    "encoder/final_norm": "encoder.final_layer_norm",
    "decoder/final_norm": "decoder.final_layer_norm",
    "head/tokens": "lm_head",
}


class Mt5(Family):
    """One table of distances for all layers of a side."""

    types = ("mt5",)
    architectures = {"MT5ForConditionalGeneration": None}
    bare = "MT5ForConditionalGeneration"
    classifier = "mean"
    settings = {
        "layers": "num_layers",
        "decoder_layers": "num_decoder_layers",
        "dim": "d_model",
        "heads": "num_heads",
        "head_size": ("d_kv", 64),
        "ffn": "d_ff",
        "vocab_size": "vocab_size",
        "relative_buckets": ("relative_attention_num_buckets", 32),
        "relative_max_distance": ("relative_attention_max_distance", 128),
        # Of no table: what mT5 was trained with.
        "max_positions": ("max_position_embeddings", 1024),
        "norm_eps": ("layer_norm_epsilon", 1e-6),
        "dropout": ("dropout_rate", 0.1),
        "attention_dropout": ("dropout_rate", 0.1),
    }
    fixed = {"feed_forward_proj": "gated-gelu", "is_encoder_decoder": True}
    computed = {
        "positions": "relative",
        "position_offset": 0,
        "segments": None,
        "embedding_norm": False,
        "embedding_scale": False,
        "norm_order": "pre",
        "norm": "rms",
        "attention_bias": False,
        "activation": "gelu_tanh",
        "gated": True,
        "ffn_bias": "none",
        "head": "plain",
        "decoder_embeddings": "shared",
        "tied_self_attention": False,
        "language_tokens": 0,
    }
    free = ("tied", "unseen")
    head = "lm_head."
    tied = dict.fromkeys(("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), _WORDS)
    modules = {
        **_MODULES,
        "encoder/distances": f"encoder.block.0.{_BIASES}",
        "decoder/distances": f"decoder.block.0.{_BIASES}",
    }

    def tell(self, fields: Fields, ours: Values) -> None:
        ours["unseen"] = fields.index("pad_token_id", 0)

    def prepared(self, config: ModelConfig, tensors: Tensors) -> tuple[ModelConfig, Tensors]:
        """transformers ties the head where it is not there, or is the table of words."""
        tensors = self.within(tensors, self.tied)
        shapes = dict(tensors.shapes)
        tied = _HEAD not in shapes
        if not tied and np.array_equal(tensors.fetch(_HEAD), tensors.fetch(_WORDS)):
            tied = True
            del shapes[_HEAD]
        return config.replace(tied=tied), dataclasses.replace(tensors, shapes=shapes)

    def more_fields(self, config: ModelConfig) -> Values:
        return {"bos_token_id": None, "tie_word_embeddings": config.tied}


class UMt5(Mt5):
    """A table of distances for each layer."""

    types = ("umt5",)
    architectures = {"UMT5ForConditionalGeneration": None}
    bare = "UMT5ForConditionalGeneration"
    # By transformers, which says that the head is tied even where it is not.
    computed = {**Mt5.computed, "positions": "relative_by_layer", "head_scale": True}
    modules = {
        **_MODULES,
        "encoder/layers/attention/distances": f"encoder.block.{{n}}.{_BIASES}",
        "decoder/layers/attention/distances": f"decoder.block.{{n}}.{_BIASES}",
    }


MT5 = Mt5()
UMT5 = UMt5()


def tokenizer_of(folder: Path) -> bytes:
    """tokenizer.json of `PIECES`, as transformers makes a T5Tokenizer of it: of pieces, scores and
    normalization table alone, words at white space; behind them the sentinels that
    tokenizer_config.json counts."""
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    proto = ModelProto.FromString((folder / PIECES).read_bytes())
    count = read_object(folder / "tokenizer_config.json").get("extra_ids", 100)
    sentinels = [f"<extra_id_{number}>" for number in reversed(range(count))]
    words = pre_tokenizers.Metaspace(prepend_scheme="always")
    made = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in proto.pieces], 2))
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        made.normalizer = normalizers.Precompiled(charsmap)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), words])
    made.decoder = decoders.Metaspace(prepend_scheme="always")
    made.add_special_tokens([*T5.values(), *sentinels])
    return made.to_str().encode()
