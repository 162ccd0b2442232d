"""A folder of Hugging Face transformers as our model, parameters and vocabulary."""

import dataclasses
import json
from pathlib import Path
from types import ModuleType
from typing import Any

from xlingjax.convert import bart, bert, ernie_m, prophetnet, roberta_prelayernorm, xlm, xlm_roberta
from xlingjax.convert.fields import Fields
from xlingjax.convert.mbart import LanguageRows, language_rows
from xlingjax.convert.reading import Converted, converted
from xlingjax.convert.sentencepiece_model import sentencepiece_model
from xlingjax.convert.tensors import open_tensors
from xlingjax.data.fastbpe_vocabulary import FastBpeVocabulary
from xlingjax.data.tokenizer_vocabulary import PROPHETNET, TokenizerVocabulary
from xlingjax.data.vocabulary import Vocabulary
from xlingjax.errors import UserError

FAMILIES: dict[str, ModuleType] = {
    xlm_roberta.MODEL_TYPE: xlm_roberta,
    roberta_prelayernorm.MODEL_TYPE: roberta_prelayernorm,
    xlm.MODEL_TYPE: xlm,
    bert.MODEL_TYPE: bert,
    **dict.fromkeys(bart.MODEL_TYPES, bart),
    **dict.fromkeys(prophetnet.MODEL_TYPES, prophetnet),
    ernie_m.MODEL_TYPE: ernie_m,
}
TOKENIZER, OURS = "sentencepiece.bpe.model", "vocab.model"


@dataclasses.dataclass(frozen=True)
class Foreign(Converted):
    vocabulary: Vocabulary
    languages: tuple[str, ...] = ()
    """Of its language embedding or its language tokens, index = id."""
    labels: tuple[str, ...] = ()
    """Of the classes, in order; none where it does not tell."""
    rows: LanguageRows | None = None
    """Where the rows of its table are in another order than ours."""

    @classmethod
    def of(cls, found: Converted, vocabulary: Vocabulary, **more: Any) -> "Foreign":
        notes = (*found.notes, *vocabulary.notes)
        return cls(**vars(found) | {"notes": notes}, vocabulary=vocabulary, **more)


def read(folder: Path) -> Foreign:
    """Raises UserError for what is no such folder, a family that is not known, weights that config.json does not
    describe, a tokenizer that is not read or of another size."""
    family, fields = _family(folder)
    config = family.config_of(fields, folder.resolve().name)
    vocabulary = vocabulary_of(folder, fields.values["model_type"])
    rows = language_rows(folder, config.vocab_size, vocabulary) if fields.values["model_type"] == "mbart" else None
    roles = {name: fields.values.get(key, value) for name, (key, value) in family.ROLES.items()}
    wanted = {"size": config.vocab_size - (len(rows.codes) if rows else 0), **roles}
    there = {name: getattr(vocabulary, name) for name in wanted}
    if there != wanted:
        raise UserError(
            f"{folder}: its tokenizer has {_said(there)}, its config.json {_said(wanted)}; give the tokenizer that the "
            "model was trained with"
        )
    found = converted(family, config, open_tensors(folder))
    labels = fields.labels() if config.num_labels else ()
    if rows:
        return Foreign.of(rows.reordered(found), vocabulary, languages=rows.languages, labels=labels, rows=rows)
    languages = family.languages_of(fields) if config.has_languages else ()
    return Foreign.of(found, vocabulary, languages=languages, labels=labels)


def params_of(folder: Path) -> Converted:
    """The model and its parameters alone, whatever its tokenizer. Raises UserError as `read` does."""
    family, fields = _family(folder)
    return converted(family, family.config_of(fields, folder.resolve().name), open_tensors(folder))


def _family(folder: Path) -> tuple[ModuleType, Fields]:
    fields = Fields(folder / "config.json")
    return fields.one_of("model_type", FAMILIES, None), fields


def _said(values: dict[str, int]) -> str:
    return f"{values['size']} pieces, " + ", ".join(f"{name} {values[name]}" for name in values if name != "size")


def vocabulary_of(folder: Path, model_type: str = "") -> Vocabulary:
    """The vocabulary of any family's folder. model_type: of its config.json, which alone tells the two kinds of
    prophetnet.tokenizer apart. Raises UserError where it has no tokenizer that is read here."""
    if (folder / OURS).is_file():
        return Vocabulary.load(folder / OURS)
    if (folder / TOKENIZER).is_file():
        return Vocabulary.load(folder / TOKENIZER, "xlmr")
    if model_type in prophetnet.MODEL_TYPES and (folder / PROPHETNET).is_file():
        if model_type == prophetnet.CROSS_LINGUAL:
            return Vocabulary.load(folder / PROPHETNET, "xprophetnet")
        return TokenizerVocabulary.read(folder, PROPHETNET)
    if (folder / "vocab.txt").is_file() or _model_of(folder / "tokenizer.json") == "WordPiece":
        return TokenizerVocabulary.read(folder)
    if (folder / "tokenizer.json").is_file():
        try:
            return Vocabulary(sentencepiece_model(folder / "tokenizer.json"), "xlmr")
        except UserError as error:
            if model_type != "mbart":
                raise
            raise UserError(f"{error}; mBART's is read from {TOKENIZER}: put it there") from None
    if (folder / "merges.txt").is_file():
        return FastBpeVocabulary.read(folder)
    if model_type == "xlm":
        raise UserError(f"{folder} has no merges.txt beside vocab.json, and no tokenizer.json: fetch XLM's vocabulary")
    raise UserError(
        f"no {TOKENIZER} in {folder}, no tokenizer.json and no vocab.txt; take them from the model that "
        "this one was continued from"
    )


def _model_of(path: Path) -> str | None:
    """The kind of tokenizer.json's model; None where there is none to see."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["model"].get("type")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
