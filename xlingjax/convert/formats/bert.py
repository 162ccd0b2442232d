"""Hugging Face BERT (`Bert*`), multilingual BERT above all. The pooler and the head of
next-sentence prediction have no counterpart here, segments only where a head reads pairs."""

from xlingjax.convert.formats.family import TAGS_AND_SPANS, Modules, moved
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.convert.formats.xlm_roberta import XlmRoberta, architectures
from xlingjax.model.config import ModelConfig

_RENAMED = ("roberta.", "bert.")


class Bert(XlmRoberta):
    types = ("bert",)
    architectures = architectures("Bert", "Model", "ForMaskedLM", "ForPreTraining")
    bare = "BertModel"
    body, head = "bert.", "cls.predictions."
    beside = ("cls.", "classifier.", "qa_outputs.")
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

    def config_of(self, fields: Fields, name: str) -> ModelConfig:
        config = super().config_of(fields, name)
        # A single text is of segment 0 throughout, which is folded into the positions.
        segments = fields.count("type_vocab_size", 2)
        reads_pairs = config.num_labels and config.classifier in ("xlmr", "spans")
        if reads_pairs and segments > 1:
            config = config.replace(segments=segments)
        return config

    def offset_of(self, fields: Fields) -> int:
        return 0

    def names_of(self, config: ModelConfig) -> Modules:
        names = super().names_of(config)
        if not config.segments:
            return names
        return {**names, "embeddings/segments": self.segments.removesuffix(".weight")}

    def pairs_in(self, tensors: Tensors) -> bool:
        pooled = {"classifier.weight", "bert.pooler.dense.weight"} <= {*tensors.shapes}
        return pooled or "qa_outputs.weight" in tensors.shapes


BERT = Bert()
