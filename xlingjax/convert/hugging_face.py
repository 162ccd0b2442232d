"""A folder of Hugging Face transformers as our model, parameters and vocabulary."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.convert import xlm_roberta
from xlingjax.convert.fields import Fields
from xlingjax.convert.names import places, to_ours
from xlingjax.convert.sentencepiece_model import sentencepiece_model
from xlingjax.convert.tensors import open_tensors
from xlingjax.data.vocabulary import Vocabulary
from xlingjax.errors import UserError
from xlingjax.model.build import build_model
from xlingjax.model.config import ModelConfig
from xlingjax.optim import nested

FAMILIES = {xlm_roberta.MODEL_TYPE: xlm_roberta}
TOKENIZER, OURS = "sentencepiece.bpe.model", "vocab.model"


@dataclasses.dataclass(frozen=True)
class Foreign:
    config: ModelConfig
    params: Any
    vocabulary: Vocabulary
    vocabulary_head: bool
    """Came with it; else it is random."""
    notes: tuple[str, ...]
    """What was made up or left behind."""
    languages: tuple[str, ...] = ()
    """The index is the language id; none where the model does not tell."""
    labels: tuple[str, ...] = ()
    """Of the classes, in order."""


def read(folder: Path) -> Foreign:
    """Raises UserError for what is no such folder, a family that is not known, weights that config.json does not
    describe, a tokenizer of another size."""
    fields = Fields(folder / "config.json")
    family = fields.one_of("model_type", FAMILIES, None)
    config = family.config_of(fields, folder.resolve().name)
    vocabulary = _vocabulary(folder)
    if vocabulary.size != config.vocab_size or vocabulary.pad_id + 1 != config.position_offset:
        raise UserError(
            f"{folder}: its tokenizer has {vocabulary.size} pieces and <pad> {vocabulary.pad_id}, its config.json "
            f"vocab_size={config.vocab_size} and pad_token_id={config.position_offset - 1}; give the tokenizer that "
            "the model was trained with"
        )
    tensors = family.usual(open_tensors(folder))
    found, _ = places(family.names_of(config), config, build_model(config).abstract())
    notes = []
    if not any(name.startswith("lm_head.") for name in tensors.shapes):
        fresh = [place for place in found if place.ours.startswith("head/")]
        found = [place for place in found if place not in fresh]
        notes.append("the vocabulary head is random: the checkpoint has none")
    params = to_ours(found, tensors, (family.SEGMENTS,))
    family.fold(params, tensors)
    if notes:
        params.update(_random(fresh, config))
    labels = fields.values.get("id2label") if config.num_labels else None
    labels = (
        tuple(str(labels.get(str(i), f"LABEL_{i}")) for i in range(len(labels))) if isinstance(labels, dict) else ()
    )
    return Foreign(config, nested(params), vocabulary, not notes, tuple(notes), labels=labels)


def _vocabulary(folder: Path) -> Vocabulary:
    if (folder / OURS).is_file():
        return Vocabulary.load(folder / OURS)
    if (folder / TOKENIZER).is_file():
        return Vocabulary.load(folder / TOKENIZER, "xlmr")
    if (folder / "tokenizer.json").is_file():
        return Vocabulary(sentencepiece_model(folder / "tokenizer.json"), "xlmr")
    raise UserError(
        f"no {TOKENIZER} in {folder}, and no tokenizer.json; take it from the model that this one was continued from"
    )


def _random(fresh: list[Any], config: ModelConfig) -> dict[str, np.ndarray]:
    rng, made = np.random.default_rng(0), {}
    for place in fresh:
        if place.ours.endswith("/kernel"):
            made[place.ours] = rng.normal(0, config.init_std, place.leaf.shape).astype(np.float32)
        else:
            made[place.ours] = np.full(place.leaf.shape, float(place.ours.endswith("/scale")), np.float32)
    return made
