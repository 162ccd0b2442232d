"""Hugging Face BERT (`Bert*`), multilingual BERT above all. The pooler and the head of
next-sentence prediction have no counterpart here, segments only where a head reads pairs."""

from xlingjax.convert.formats import xlm_roberta
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import Names
from xlingjax.convert.formats.reading import folded, renamed
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.model.config import ModelConfig

MODEL_TYPE = "bert"
ROLES = {"pad_id": ("pad_token_id", 0)}
BODY, HEAD = "bert.", "cls.predictions."
SEGMENTS, POSITIONS = (
    f"{BODY}embeddings.{name}_embeddings.weight" for name in ("token_type", "position")
)
TIED = {
    "cls.predictions.decoder.weight": f"{BODY}embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# A head of tags may stand beside a pooler that nothing reads: it is then no head of pairs, and
# segments are folded.
WITHOUT_MEANING = (
    f"{BODY}embeddings.position_ids",
    f"{BODY}embeddings.token_type_ids",
    SEGMENTS,
)
LEFT = (f"{BODY}pooler.", "cls.seq_relationship.")

MODULES = {
    **{
        ours: theirs.replace(xlm_roberta.BODY, BODY)
        for ours, theirs in xlm_roberta.MODULES.items()
        if theirs.startswith(xlm_roberta.BODY)
    },
    "head": "cls.predictions",
    "head/dense": "cls.predictions.transform.dense",
    "head/norm": "cls.predictions.transform.LayerNorm",
}
CLASSIFIERS = {
    "xlmr": {
        "classifier/dense": f"{BODY}pooler.dense",
        "classifier/out": "classifier",
    },  # the same layers, the pooler one
    "tagging": {"classifier/out": "classifier"},
    "spans": {"classifier/out": "qa_outputs"},
}
_HEADS = {
    "BertModel": None,
    "BertForMaskedLM": None,
    "BertForPreTraining": None,
    "BertForSequenceClassification": "xlmr",
    "BertForTokenClassification": "tagging",
    "BertForQuestionAnswering": "spans",
}
PAIRS = ("xlmr", "spans")
"""Heads that read pairs of texts, of two segments."""


def config_of(fields: Fields, name: str) -> ModelConfig:
    """The model that config.json describes. Raises UserError for what is not computed here."""
    kind = fields.architecture(_HEADS, "BertModel")
    config = xlm_roberta.encoder_of(fields, name, kind, position_offset=0)
    segments = fields.count("type_vocab_size", 2)
    return (
        config.replace(segments=segments) if kind in PAIRS and segments > 1 else config
    )


def names_of(config: ModelConfig) -> Names:
    segments = (
        {"embeddings/segments": SEGMENTS.removesuffix(".weight")}
        if config.segments
        else {}
    )
    return Names(
        {
            **MODULES,
            **segments,
            **(CLASSIFIERS[config.classifier] if config.num_labels else {}),
        }
    )


def usual(tensors: Tensors) -> Tensors:
    """With the names of `BertForMaskedLM`, segment 0 in the positions. Raises UserError for a head
    that is not tied."""

    def rename(name: str) -> str:
        return (
            name
            if name.startswith((BODY, "cls.", "classifier.", "qa_outputs."))
            else BODY + name
        )

    found = renamed(tensors, rename, TIED)
    pooled = {"classifier.weight", f"{BODY}pooler.dense.weight"} <= {*found.shapes}
    return folded(
        found, POSITIONS, SEGMENTS, pairs=pooled or "qa_outputs.weight" in found.shapes
    )
