"""Hugging Face BERT (`Bert*`), multilingual BERT above all, DistilBERT, and DeBERTa-v3. BERT's
pooler and the head of next-sentence prediction have no counterpart here, segments only where a head
reads pairs."""

from xlingjax.convert.formats.family import TAGS_AND_SPANS, Modules, Values, moved, projections
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import below
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.convert.formats.xlm_roberta import XlmRoberta, architectures
from xlingjax.model.config import ModelConfig

_RENAMED, _TO_DEBERTA = ("roberta.", "bert."), ("bert.", "deberta.")
_DROPOUT = {"relu": "seq_classif_dropout", "spans": "qa_dropout"}


class Bert(XlmRoberta):
    types = ("bert",)
    architectures = architectures("Bert", "Model", "ForPreTraining", "ForMaskedLM")
    bare = "BertModel"
    body, head = "bert.", "cls.predictions."
    beside = ("cls.", "classifier.", "qa_outputs.")
    computed = {name: value for name, value in XlmRoberta.computed.items() if name != "segments"}
    # Its tokenizer says which is the second text of a pair.
    segment_rows = 2
    positions = moved(XlmRoberta.positions, *_RENAMED)
    segments = moved(XlmRoberta.segments, *_RENAMED)
    tied = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    # Beside a head of tags nothing reads the pooler: no head of pairs, so segments are folded.
    ignored = (
        *("bert.embeddings.position_ids", "bert.embeddings.token_type_ids", segments),
        *("bert.pooler.", "cls.seq_relationship."),
    )
    modules = {
        **moved(XlmRoberta.modules, *_RENAMED),
        "head": "cls.predictions",
        "head/dense": "cls.predictions.transform.dense",
        "head/norm": "cls.predictions.transform.LayerNorm",
    }
    classifiers = {
        # The same layers: the pooler is the first.
        "xlmr": {"classifier/dense": "bert.pooler.dense", "classifier/out": "classifier"},
        **TAGS_AND_SPANS,
    }

    def tell(self, fields: Fields, ours: Values) -> None:
        super().tell(fields, ours)
        # A single text is of segment 0 throughout, which is folded into the positions.
        segments = fields.count("type_vocab_size", 2)
        reads_pairs = ours["num_labels"] and ours["classifier"] in ("xlmr", "spans")
        if reads_pairs and segments > 1:
            ours["segments"] = segments

    def offset_of(self, fields: Fields) -> int:
        return 0

    def rows_before(self, pad_id: int) -> int:
        return 0

    def names_of(self, config: ModelConfig) -> Modules:
        return {**super().names_of(config), **self._segments_of(config)}

    def written_names(self, config: ModelConfig) -> Modules:
        return {**super().written_names(config), **self._segments_of(config)}

    def _segments_of(self, config: ModelConfig) -> Modules:
        if not config.segments:
            return {}
        return {"embeddings/segments": self.segments.removesuffix(".weight")}

    def pairs_in(self, tensors: Tensors) -> bool:
        pooled = {"classifier.weight", "bert.pooler.dense.weight"} <= {*tensors.shapes}
        return pooled or "qa_outputs.weight" in tensors.shapes


class DistilBert(XlmRoberta):
    types = ("distilbert",)
    architectures = architectures("DistilBert", "Model", "ForMaskedLM") | {
        "DistilBertForSequenceClassification": "relu"
    }
    bare = "DistilBertModel"
    settings = {
        "layers": "n_layers",
        "dim": "dim",
        "heads": "n_heads",
        "ffn": "hidden_dim",
        "vocab_size": "vocab_size",
        "max_positions": ("max_position_embeddings", 512),
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.1),
        "init_std": ("initializer_range", 0.02),
    }
    fixed = {"activation": "gelu", "sinusoidal_pos_embds": False, "tie_word_embeddings": True}
    computed = {**XlmRoberta.computed, "norm_eps": 1e-12}
    body, head = "distilbert.", "vocab_"
    beside = ("vocab_", "pre_classifier.", "classifier.", "qa_outputs.")
    positions = "distilbert.embeddings.position_embeddings.weight"
    segments = ""
    tied = {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"}
    ignored = ("distilbert.embeddings.position_ids",)
    modules = {
        "embeddings/tokens": "distilbert.embeddings.word_embeddings",
        "embeddings/positions": "distilbert.embeddings.position_embeddings",
        "embeddings/norm": "distilbert.embeddings.LayerNorm",
        **below(
            "encoder/layers/",
            "distilbert.transformer.layer.{n}.",
            {
                **projections("attention", "attention.*_lin"),
                "attention_norm": "sa_layer_norm",
                "ffn/in": "ffn.lin1",
                "ffn/out": "ffn.lin2",
                "ffn_norm": "output_layer_norm",
            },
        ),
        "head": "vocab_projector",
        "head/dense": "vocab_transform",
        "head/norm": "vocab_layer_norm",
    }
    classifiers = {
        "relu": {"classifier/dense": "pre_classifier", "classifier/out": "classifier"},
        **TAGS_AND_SPANS,
    }
    offset_of, rows_before = Bert.offset_of, Bert.rows_before

    def tell(self, fields: Fields, ours: Values) -> None:
        super().tell(fields, ours)
        field = _DROPOUT.get(ours["classifier"])
        if field and ours["num_labels"]:
            ours["classifier_dropout"] = fields.rate(field, 0.1)

    def more_fields(self, config: ModelConfig) -> Values:
        field, rate = _DROPOUT.get(self.kind_of(config)), config.classifier_dropout
        return {field: rate} if field and rate is not None else {}


class DebertaV2(Bert):
    """Distances have states that every layer makes queries and keys of, as of words. Of the heads
    that pretraining had the class has none."""

    types = ("deberta-v2",)
    architectures = architectures("DebertaV2", "Model", "ForMaskedLM") | {
        "DebertaV2ForSequenceClassification": "gelu"
    }
    bare = "DebertaV2Model"
    settings = {
        **XlmRoberta.settings,
        "norm_eps": ("layer_norm_eps", 1e-7),
        "relative_buckets": "position_buckets",
    }
    fixed = {
        "hidden_act": "gelu",
        "relative_attention": True,
        "share_att_key": True,
        "position_biased_input": False,
        "norm_rel_ebd": "layer_norm",
        "type_vocab_size": 0,
        "conv_kernel_size": 0,
        "tie_word_embeddings": True,
        "legacy": True,
        "pooler_hidden_act": "gelu",
    }
    computed = {**XlmRoberta.computed, "positions": "disentangled", "position_offset": 0}
    body = "deberta."
    beside = (*Bert.beside, "pooler.", "lm_predictions.", "mask_predictions.")
    positions = segments = ""
    tied = moved(Bert.tied, *_TO_DEBERTA) | {"cls.predictions.decoder.bias": "cls.predictions.bias"}
    ignored = ("deberta.embeddings.position_", "lm_predictions.", "mask_predictions.")
    modules = {
        **{
            ours: f"{name}_proj" if ".attention.self." in name else name
            for ours, name in moved(Bert.modules, *_TO_DEBERTA).items()
        },
        "encoder/distances": "deberta.encoder.rel_embeddings",
        "encoder/distances_norm": "deberta.encoder.LayerNorm",
    }
    classifiers = {
        "gelu": {"classifier/dense": "pooler.dense", "classifier/out": "classifier"},
        **TAGS_AND_SPANS,
    }

    def tell(self, fields: Fields, ours: Values) -> None:
        kinds = fields.values.get("pos_att_type") or ()
        kinds = sorted(kinds.split("|") if isinstance(kinds, str) else kinds)
        Fields(fields.path, {"pos_att_type": "|".join(kinds)}).only("pos_att_type", "c2p|p2c")
        XlmRoberta.tell(self, fields, ours)
        most = fields.values.get("max_relative_positions", -1)
        ours["relative_max_distance"] = most if most > 0 else ours["max_positions"]
        is_pairs = ours["num_labels"] and ours["classifier"] == "gelu"
        if is_pairs and fields.values.get("cls_dropout") is not None:
            ours["classifier_dropout"] = fields.rate("cls_dropout", 0.1)

    def more_fields(self, config: ModelConfig) -> Values:
        return {
            "pos_att_type": ["p2c", "c2p"],
            "max_relative_positions": config.relative_max_distance,
            "pooler_hidden_size": config.dim,
            "pooler_dropout": 0.0,
            "cls_dropout": config.classifier_dropout,
        }


BERT = Bert()
DEBERTA = DebertaV2()
DISTILBERT = DistilBert()
