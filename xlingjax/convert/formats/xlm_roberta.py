"""XLM-R, of Hugging Face (`XLMRoberta*`) and of fairseq (`RobertaModel`), and what has its layout:
RoBERTa, InfoXLM, XLM-V, AfroXLMR and other continued ones."""

from xlingjax.convert.formats.family import (
    IN_PROJ,
    SHAPE,
    TAGS_AND_SPANS,
    Family,
    Values,
    projections,
    renamed,
    split,
)
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import below
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.model.config import ModelConfig

_CLASSIFIERS = {
    "ForSequenceClassification": "xlmr",
    "ForTokenClassification": "tagging",
    "ForQuestionAnswering": "spans",
}


def architectures(prefix: str, *plain: str) -> dict[str, str | None]:
    """plain: those without a classifier."""
    named: dict[str, str | None] = {f"{prefix}{name}": None for name in plain}
    return named | {f"{prefix}{name}": kind for name, kind in _CLASSIFIERS.items()}


class XlmRoberta(Family):
    types = ("xlm-roberta", "roberta")
    # Those of XLM-R come last: they are written.
    architectures = architectures("Roberta", "Model", "ForMaskedLM") | architectures(
        "XLMRoberta", "Model", "ForMaskedLM"
    )
    bare = "XLMRobertaModel"
    settings = {
        **SHAPE,
        "norm_eps": ("layer_norm_eps", 1e-12),
        "dropout": ("hidden_dropout_prob", 0.1),
        "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    }
    fixed = {
        # XLM-R's vocabulary head has this one in any case.
        "hidden_act": "gelu",
        "is_decoder": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
        "position_embedding_type": "absolute",
    }
    computed = {
        "norm_order": "post",
        "head": "transform",
        "embedding_scale": False,
        "decoder_layers": 0,
        "segments": None,
    }
    body, head = "roberta.", "lm_head."
    beside = ("lm_head.", "classifier.", "qa_outputs.")
    positions = "roberta.embeddings.position_embeddings.weight"
    segments = "roberta.embeddings.token_type_embeddings.weight"
    tied = {
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }
    # Buffers, and the layer that next-sentence prediction left in the class without being trained.
    ignored = (
        "roberta.embeddings.position_ids",
        "roberta.embeddings.token_type_ids",
        "roberta.pooler.dense.",
    )
    modules = {
        "embeddings/tokens": "roberta.embeddings.word_embeddings",
        "embeddings/positions": "roberta.embeddings.position_embeddings",
        "embeddings/norm": "roberta.embeddings.LayerNorm",
        **below(
            "encoder/layers/",
            "roberta.encoder.layer.{n}.",
            {
                "attention/query": "attention.self.query",
                "attention/key": "attention.self.key",
                "attention/value": "attention.self.value",
                "attention/out": "attention.output.dense",
                "attention_norm": "attention.output.LayerNorm",
                "ffn/in": "intermediate.dense",
                "ffn/out": "output.dense",
                "ffn_norm": "output.LayerNorm",
            },
        ),
        "head": "lm_head",
        "head/dense": "lm_head.dense",
        "head/norm": "lm_head.layer_norm",
    }
    classifiers = {
        "xlmr": {"classifier/dense": "classifier.dense", "classifier/out": "classifier.out_proj"},
        **TAGS_AND_SPANS,
    }

    def tell(self, fields: Fields, ours: Values) -> None:
        ours["position_offset"] = self.offset_of(fields)
        if ours["num_labels"] and fields.values.get("classifier_dropout") is not None:
            ours["classifier_dropout"] = fields.rate("classifier_dropout", 0.1)

    def offset_of(self, fields: Fields) -> int:
        """The row of the first position."""
        return fields.index("pad_token_id") + 1

    def rows_before(self, pad_id: int) -> int:
        return pad_id + 1

    def more_fields(self, config: ModelConfig) -> Values:
        fields: Values = {"type_vocab_size": config.segments or self.segment_rows}
        if self.kind_of(config) and config.classifier_dropout is not None:
            fields["classifier_dropout"] = config.classifier_dropout
        return fields


class FairseqXlmRoberta(Family):
    """Under the names of fairseq's newest versions; `words` and `positions` are those of its
    tables, and `args` do not name `norm_eps`, PyTorch's default of LayerNorm."""

    settings = {
        "layers": "encoder_layers",
        "dim": "encoder_embed_dim",
        "heads": "encoder_attention_heads",
        "ffn": "encoder_ffn_embed_dim",
        "vocab_size": "words",
        "max_positions": "positions",
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.1),
    }
    fixed = {"activation_fn": "gelu"}
    computed = {
        "position_offset": 2,
        "norm_eps": 1e-5,
        "head": "transform",
        "init_std": 0.02,
    }
    head = "encoder.lm_head."
    words = "encoder.sentence_encoder.embed_tokens.weight"
    positions = "encoder.sentence_encoder.embed_positions.weight"
    tied = {"encoder.lm_head.weight": words}
    ignored = ("encoder.sentence_encoder.version", "encoder.version", "classification_heads.")
    modules = below(
        "",
        "encoder.",
        {
            "embeddings/tokens": "sentence_encoder.embed_tokens",
            "embeddings/positions": "sentence_encoder.embed_positions",
            "embeddings/norm": "sentence_encoder.layernorm_embedding",
            **below(
                "encoder/layers/",
                "sentence_encoder.layers.{n}.",
                {
                    **projections("attention", "self_attn.*_proj"),
                    "attention_norm": "self_attn_layer_norm",
                    "ffn/in": "fc1",
                    "ffn/out": "fc2",
                    "ffn_norm": "final_layer_norm",
                },
            ),
            "head": "lm_head",
            "head/dense": "lm_head.dense",
            "head/norm": "lm_head.layer_norm",
        },
    )

    def usual(self, tensors: Tensors) -> Tensors:
        def rename(name: str) -> str:
            # So before fairseq 0.10, though it is an encoder.
            if name.startswith("decoder."):
                name = "encoder." + name.removeprefix("decoder.")
            return name.replace(".emb_layer_norm.", ".layernorm_embedding.")

        return renamed(split(tensors, IN_PROJ), rename, self.tied)


XLM_ROBERTA = XlmRoberta()
FAIRSEQ_XLM_ROBERTA = FairseqXlmRoberta()
