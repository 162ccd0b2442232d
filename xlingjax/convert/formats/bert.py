"""Hugging Face BERT (`Bert*`), multilingual BERT above all. The pooler and the head of
next-sentence prediction have no counterpart here, segments only where a head reads pairs."""

from xlingjax.convert.formats import xlm_roberta
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.names import Names, with_classifier
from xlingjax.convert.formats.reading import folded, within
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.model.config import ModelConfig

MODEL_TYPE = "bert"
ROLES = {"pad_id": ("pad_token_id", 0)}
BODY, HEAD = "bert.", "cls.predictions."
SEGMENTS = f"{BODY}embeddings.token_type_embeddings.weight"
POSITIONS = f"{BODY}embeddings.position_embeddings.weight"
TIED = {
    "cls.predictions.decoder.weight": f"{BODY}embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# A head of tags may stand beside a pooler that nothing reads: it is then no head of pairs, and
# segments are folded.
WITHOUT_MEANING = (f"{BODY}embeddings.position_ids", f"{BODY}embeddings.token_type_ids", SEGMENTS)
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
    # The same layers: the pooler is the first.
    "xlmr": {"classifier/dense": f"{BODY}pooler.dense", "classifier/out": "classifier"},
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
    # BERT's positions begin at row 0; RoBERTa's behind the row of padding.
    config = xlm_roberta.encoder_of(fields, name, kind, position_offset=0)
    # A single text is of segment 0 throughout, which is folded into the positions.
    segments = fields.count("type_vocab_size", 2)
    if kind in PAIRS and segments > 1:
        config = config.replace(segments=segments)
    return config


def names_of(config: ModelConfig) -> Names:
    modules = dict(MODULES)
    if config.segments:
        modules["embeddings/segments"] = SEGMENTS.removesuffix(".weight")
    return with_classifier(modules, CLASSIFIERS, config)


def usual(tensors: Tensors) -> Tensors:
    """With the names of `BertForMaskedLM`, segment 0 in the positions. Raises UserError for a head
    that is not tied."""
    tensors = within(tensors, BODY, ("cls.", "classifier.", "qa_outputs."), TIED)
    pooled = {"classifier.weight", f"{BODY}pooler.dense.weight"} <= {*tensors.shapes}
    pairs = pooled or "qa_outputs.weight" in tensors.shapes
    return folded(tensors, POSITIONS, SEGMENTS, pairs=pairs)
