"""Hugging Face BERT (`Bert*`), multilingual BERT above all, DistilBERT, and DeBERTa-v3. BERT's
pooler and the head of next-sentence prediction have no counterpart here, segments only where a head
reads pairs."""

from xlingjax.convert.formats.family import Values
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.convert.formats.xlm_roberta import XlmRoberta
from xlingjax.model.config import ModelConfig

_DROPOUT = {"relu": "seq_classif_dropout", "spans": "qa_dropout"}


class Bert(XlmRoberta):
    def tell(self, fields: Fields, ours: Values) -> None:
        super().tell(fields, ours)
        # A single text is of segment 0 throughout, which is folded into the positions.
        segments = fields.count("type_vocab_size", 2)
        reads_pairs = ours["num_labels"] and ours["classifier"] in ("xlmr", "spans")
        if reads_pairs and segments > 1:
            ours["segments"] = segments

    def pairs_in(self, tensors: Tensors) -> bool:
        pooled = {"classifier.weight", "bert.pooler.dense.weight"} <= {*tensors.shapes}
        return pooled or "qa_outputs.weight" in tensors.shapes


class DistilBert(XlmRoberta):
    def tell(self, fields: Fields, ours: Values) -> None:
        super().tell(fields, ours)
        field = _DROPOUT.get(ours["classifier"])
        if field and ours["num_labels"]:
            ours["classifier_dropout"] = fields.rate(field, 0.1)

    def more_fields(self, config: ModelConfig) -> Values:
        field, rate = _DROPOUT.get(self.kind_of(config)), config.classifier_dropout
        return {field: rate} if field and rate is not None else {}


class DebertaV2(XlmRoberta):
    """Distances have states that every layer makes queries and keys of, as of words. Of the heads
    that pretraining had the class has none."""

    def tell(self, fields: Fields, ours: Values) -> None:
        kinds = fields.values.get("pos_att_type") or ()
        kinds = sorted(kinds.split("|") if isinstance(kinds, str) else kinds)
        Fields(fields.path, {"pos_att_type": "|".join(kinds)}).only("pos_att_type", "c2p|p2c")
        super().tell(fields, ours)
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


BERT = Bert("xlm_roberta", "bert")
DEBERTA = DebertaV2("xlm_roberta", "bert", "deberta")
DISTILBERT = DistilBert("distilbert")
