"""Hugging Face BERT (`Bert*`), multilingual BERT above all. Segments, the pooler and the head of next-sentence
prediction have no counterpart here."""

from xlingjax.convert import xlm_roberta
from xlingjax.convert.fields import Fields
from xlingjax.convert.names import Names
from xlingjax.convert.reading import folded, renamed
from xlingjax.convert.tensors import Tensors
from xlingjax.model.config import ModelConfig

MODEL_TYPE = "bert"
ROLES = {"pad_id": ("pad_token_id", 0)}
BODY, HEAD = "bert.", "cls.predictions."
SEGMENTS, POSITIONS = (f"{BODY}embeddings.{name}_embeddings.weight" for name in ("token_type", "position"))
TIED = {
    "cls.predictions.decoder.weight": f"{BODY}embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
WITHOUT_MEANING = (f"{BODY}embeddings.position_ids", f"{BODY}embeddings.token_type_ids")
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
}
_HEADS = {
    "BertModel": None,
    "BertForMaskedLM": None,
    "BertForPreTraining": None,
    "BertForSequenceClassification": "xlmr",
    "BertForTokenClassification": "tagging",
}


def config_of(fields: Fields, name: str) -> ModelConfig:
    """The model that config.json describes. Raises UserError for what is not computed here."""
    return xlm_roberta.encoder_of(fields, name, fields.architecture(_HEADS, "BertModel"), position_offset=0)


def names_of(config: ModelConfig) -> Names:
    return Names({**MODULES, **(CLASSIFIERS[config.classifier] if config.num_labels else {})})


def usual(tensors: Tensors) -> Tensors:
    """With the names of `BertForMaskedLM`, segment 0 in the positions. Raises UserError for a head that is not tied."""

    def rename(name: str) -> str:
        return name if name.startswith((BODY, "cls.", "classifier.")) else BODY + name

    return folded(renamed(tensors, rename, TIED), POSITIONS, SEGMENTS)
