"""A folder of Hugging Face transformers as our model, parameters and vocabulary."""

import dataclasses
import json
import re
from pathlib import Path

from xlingjax.convert.formats.bart import BART, M2M_100, NLLB, language_rows
from xlingjax.convert.formats.bert import BERT, DEBERTA, DISTILBERT
from xlingjax.convert.formats.family import Converted, Family, adapter, converted
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.modern import EUROBERT, GTE, MODERNBERT
from xlingjax.convert.formats.prophetnet import CROSS_LINGUAL, PROPHETNET
from xlingjax.convert.formats.t5 import MT5, PIECES, UMT5, tokenizer_of
from xlingjax.convert.formats.tensors import open_tensors
from xlingjax.convert.formats.tokenizer_json import tokenizer_json
from xlingjax.convert.formats.xlm import XLM
from xlingjax.convert.formats.xlm_roberta import (
    ERNIE_M,
    ROBERTA_PRELAYERNORM,
    XLM_ROBERTA,
    XLM_ROBERTA_XL,
)
from xlingjax.data.vocabulary.fastbpe import FastBpeVocabulary
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.tokenizer import TokenizerVocabulary
from xlingjax.data.vocabulary.tokenizer_files import PROPHETNET as PROPHETNET_FILE
from xlingjax.data.vocabulary.tokenizer_files import (
    UNREADABLE,
    added_in,
    read_object,
    special_of,
    with_added,
)
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig
from xlingjax.runtime.files import parsed_json

# By config.json's model_type, which transformers itself goes by.
FAMILIES: dict[str, Family] = {
    name: family
    for family in (
        *(XLM_ROBERTA, ROBERTA_PRELAYERNORM, XLM_ROBERTA_XL, XLM, BERT, DISTILBERT, DEBERTA),
        *(ERNIE_M, MODERNBERT, EUROBERT, GTE, BART, M2M_100, PROPHETNET, MT5, UMT5),
    )
    for name in family.types
}
TOKENIZER = "sentencepiece.bpe.model"
OURS = "vocab.model"
DESCRIPTION = "xlingjax.json"
TOKENIZER_OF_RUN = "xlingjax.tokenizer.json"
"""The run's own, where transformers reads one with language tokens or another template."""
_CODES = {"mbart": "[a-z]+_[A-Z]+", "m2m_100": NLLB.pattern}
"""model_type: a pattern of the language codes of its tokenizer."""
_LACKING = {
    "xmod": "an adapter for each language",
    "rembert": "words and states of different widths",
    "jina_embeddings_v3": "adapters for tasks",
    "nomic_bert": "rotary positions of another layout",
    **dict.fromkeys(("t5gemma", "gemma3_text", "qwen3"), "layers of a large language model"),
}
"""model_type: what is missing."""
_SPARE, _MULTIPLE, _PADDING = 64, 64, 1024
"""Rows beyond pieces are spare, or padding to a multiple; many more: another tokenizer's."""


@dataclasses.dataclass(frozen=True)
class Foreign(Converted):
    vocabulary: Vocabulary
    languages: tuple[str, ...] = ()  # of its language embedding or tokens, index = id
    labels: tuple[str, ...] = ()  # of the classes, in order; none where it does not tell
    as_there: Converted | None = None  # the same in the order of its table, if another


def read(folder: Path) -> Foreign:
    """Raises UserError for what is no such folder, a family that is not known, weights that
    config.json does not describe, a tokenizer that is not read or of another size."""
    if (folder / "adapter_config.json").is_file():
        raise adapter(folder)
    family, fields = family_of(folder)
    model_type = fields.values["model_type"]
    config = family.config_of(fields, folder.resolve().name)
    # The small files first: what they contradict is found before gigabytes are read.
    vocabulary = vocabulary_of(folder, model_type)
    rows = None
    tokens = 0
    languages: tuple[str, ...] = ()
    ours = description(folder)
    if ours:
        tokens = ours[0].language_tokens
        languages = ours[1]
    elif model_type in _CODES:
        rows = language_rows(config.vocab_size, vocabulary, folder)
    codes = len(rows.codes) if rows else tokens
    of_mbart = model_type == "mbart" and not codes
    config, notes = _fitted(config, vocabulary, codes, of_mbart, folder)
    config = config.replace(language_tokens=tokens)
    model = converted(family, config, open_tensors(folder))
    model = dataclasses.replace(model, notes=(*notes, *model.notes))
    labels = ()
    # Of spans the two classes are the ends of an answer, which have no names.
    if config.num_labels and config.classifier != "spans":
        labels = fields.labels()
    as_there = None
    if rows:
        as_there = model
        model = rows.reordered(model)
        languages = rows.languages
    elif config.has_languages:
        languages = XLM.languages_of(fields)
    more = {"vocabulary": vocabulary, "languages": languages, "labels": labels}
    return Foreign(**vars(model), **more, as_there=as_there)


def _fitted(
    config: ModelConfig, vocabulary: Vocabulary, codes: int, of_mbart: bool, folder: Path
) -> tuple[ModelConfig, list[str]]:
    """The configuration with a row for each piece (and language code), its other rows kept beside;
    what is said of them. of_mbart: other rows would be languages. Raises UserError for a table
    that is not of this vocabulary."""
    more = config.vocab_size - codes - vocabulary.size
    if more == 0:
        return config, []
    # Tables are padded for the speed of matrix products, or have rows for pieces to come.
    most = _PADDING if config.vocab_size % _MULTIPLE == 0 else _SPARE
    if of_mbart or not 0 < more <= most:
        raise UserError(
            f"{folder}: its embedding table has {config.vocab_size:,} rows, its tokenizer"
            f" {vocabulary.size:,} pieces and {codes} languages: these are not of one model; give"
            " the tokenizer that it was trained with, or cut the table with transformers'"
            f" resize_token_embeddings({vocabulary.size + codes})"
        )
    note = (
        f"{more} rows of the embedding table have no piece: harmless, they are kept, written by an"
        " export and never predicted"
    )
    fitted = config.replace(vocab_size=vocabulary.size + codes, table_rows=config.vocab_size)
    return fitted, [note]


def description(folder: Path) -> tuple[ModelConfig, tuple[str, ...], tuple[str, ...], bool] | None:
    """(the model, its languages, its labels, whether its vocabulary head is there) of ours that was
    exported there; None: none was. Raises UserError for a description that cannot be read."""
    path = folder / DESCRIPTION
    if not path.is_file():
        return None
    try:
        described = parsed_json(path.read_bytes())
        languages = tuple(map(str, described["languages"]))
        labels = tuple(map(str, described["labels"]))
        has_head = bool(described["vocabulary_head"])
        return ModelConfig(**described["model"]), languages, labels, has_head
    except (ValueError, KeyError, TypeError, UserError) as error:
        raise UserError(
            f"{path} does not describe a model of this version of xlingjax ({error}); delete it to"
            " read the folder without what lies beside transformers' files"
        ) from None


def family_of(folder: Path) -> tuple[Family, Fields]:
    fields = Fields(folder / "config.json")
    kind = str(fields.values.get("model_type"))
    if kind in _LACKING:
        raise UserError(f"{fields.path}: {kind} is not computed here: it has {_LACKING[kind]}")
    return fields.one_of("model_type", FAMILIES, None), fields


def vocabulary_of(folder: Path, model_type: str = "") -> Vocabulary:
    """The vocabulary of any family's folder. model_type: of its config.json, which alone tells the
    two kinds of prophetnet.tokenizer apart. Raises UserError: none is read here."""
    if (folder / OURS).is_file():
        return Vocabulary.load(folder / OURS)
    if (folder / TOKENIZER_OF_RUN).is_file():
        content = (folder / TOKENIZER_OF_RUN).read_bytes()
        return TokenizerVocabulary(content, special_of(folder, content))
    # XLM-R's family: the model itself, before the tokenizer.json that was made of it.
    if (folder / TOKENIZER).is_file():
        vocabulary = Vocabulary.load(folder / TOKENIZER, "xlmr")
        # What is added in ours are the language tokens.
        if (folder / DESCRIPTION).is_file():
            return vocabulary
        # In theirs language codes.
        more = _added_to(vocabulary, folder, _CODES.get(model_type, ""))
        if not more:
            return vocabulary
        if model_type in _CODES:
            raise _not_read(more[0], folder)
        if (folder / "tokenizer.json").is_file():
            return TokenizerVocabulary.read(folder)
        content = with_added(json.dumps(tokenizer_json(vocabulary)).encode(), folder)
        return TokenizerVocabulary(content, special_of(folder, content))
    if model_type in PROPHETNET.types and (folder / PROPHETNET_FILE).is_file():
        if model_type == CROSS_LINGUAL:
            vocabulary = Vocabulary.load(folder / PROPHETNET_FILE, "xprophetnet")
            if more := _added_to(vocabulary, folder):
                raise _not_read(more[0], folder)
            return vocabulary
        return TokenizerVocabulary.read(folder, PROPHETNET_FILE)
    files = {path.name for path in folder.iterdir()}
    if PIECES in files and "tokenizer.json" not in files:
        content = tokenizer_of(folder)
        return TokenizerVocabulary(content, special_of(folder, content))
    # Merges of XLM are of characters, with </w> at the end of a word; those of RoBERTa of bytes.
    if "merges.txt" in files and model_type in ("", "xlm") and "tokenizer.json" not in files:
        vocabulary = FastBpeVocabulary.read(folder)
        if more := _added_to(vocabulary, folder):
            raise _not_read(more[0], folder)
        return vocabulary
    if files & {"vocab.txt", "tokenizer.json", "merges.txt"} and model_type not in _CODES:
        return TokenizerVocabulary.read(folder)
    raise UserError(
        f"no {TOKENIZER} in {folder}, and no other tokenizer that is read for this kind of model;"
        " take it from the model that this one was continued from"
    )


def _added_to(vocabulary: Vocabulary, folder: Path, leave: str = "") -> list[str]:
    """Words added to a folder's tokenizer. leave: a pattern of those that do not count."""
    known = {*vocabulary.pieces(range(vocabulary.size))}
    try:
        tokens = read_object(folder / "tokenizer.json").get("added_tokens") or ()
        words = [*(token["content"] for token in tokens), *added_in(folder)]
        return [word for word in words if word not in known and not re.fullmatch(leave, word)]
    except UNREADABLE as error:
        raise UserError(
            f"{folder}: the files of its tokenizer cannot be read ({error}); fetch them again"
        ) from None


def _not_read(word: str, folder: Path) -> UserError:
    return UserError(
        f"{folder}: the word {word!r} was added to its tokenizer, which is not read of this kind of"
        " model; cut the table with transformers' resize_token_embeddings, and remove"
        " added_tokens.json"
    )
