"""A folder of Hugging Face transformers as our model, parameters and vocabulary."""

import dataclasses
from pathlib import Path
from typing import Any

from xlingjax.convert.formats import language_tokens
from xlingjax.convert.formats.bart import BART, LanguageRows, language_rows
from xlingjax.convert.formats.bert import BERT
from xlingjax.convert.formats.ernie_m import ERNIE_M
from xlingjax.convert.formats.family import Converted, Family, converted
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.prophetnet import CROSS_LINGUAL, PROPHETNET
from xlingjax.convert.formats.roberta_prelayernorm import ROBERTA_PRELAYERNORM
from xlingjax.convert.formats.tensors import open_tensors
from xlingjax.convert.formats.xlm import XLM
from xlingjax.convert.formats.xlm_roberta import XLM_ROBERTA
from xlingjax.data.vocabulary.fastbpe import FastBpeVocabulary
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.data.vocabulary.tokenizer import TokenizerVocabulary
from xlingjax.data.vocabulary.tokenizer_files import PROPHETNET as PROPHETNET_FILE
from xlingjax.data.vocabulary.tokenizer_files import read_object, special_of
from xlingjax.errors import UserError
from xlingjax.model.config import ModelConfig

# By config.json's model_type, which transformers itself goes by.
FAMILIES: dict[str, Family] = {
    name: family
    for family in (XLM_ROBERTA, ROBERTA_PRELAYERNORM, XLM, BERT, BART, PROPHETNET, ERNIE_M)
    for name in family.types
}
TOKENIZER = "sentencepiece.bpe.model"
OURS = "vocab.model"
TOKENIZER_OF_RUN = "xlingjax.tokenizer.json"
"""The run's own, where the tokenizer.json that transformers reads has language tokens or another
template."""
_SPARE, _MULTIPLE, _PADDING = 64, 64, 1024
"""More rows than pieces are spare ones, or padding to a multiple; many more are of a table that
belongs to another tokenizer."""


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
    def of(cls, model: Converted, vocabulary: Vocabulary, **more: Any) -> "Foreign":
        notes = (*model.notes, *vocabulary.notes)
        return cls(**vars(model) | {"notes": notes}, vocabulary=vocabulary, **more)


def read(folder: Path) -> Foreign:
    """Raises UserError for what is no such folder, a family that is not known, weights that
    config.json does not describe, a tokenizer that is not read or of another size."""
    family, fields = _family(folder)
    model_type = fields.values["model_type"]
    config = family.config_of(fields, folder.resolve().name)
    # The small files first: what they contradict is found before gigabytes are read.
    vocabulary = vocabulary_of(folder, model_type)
    rows = None
    codes = ()
    if config.decoder_layers:
        codes = language_tokens.written(folder, vocabulary)
    # An export of ours has its rows in our order.
    in_order = codes
    if model_type == "mbart" and not in_order:
        rows = language_rows(folder, config.vocab_size, vocabulary)
    if rows:
        codes = rows.codes
    config, notes = _fitted(config, vocabulary, len(codes), model_type == "mbart", folder)
    config = config.replace(language_tokens=len(in_order))
    notes += _other_roles(family, fields, vocabulary)
    model = converted(family, config, open_tensors(folder))
    # What was found of the tokenizer stands before what was found of the weights.
    model = dataclasses.replace(model, notes=(*notes, *model.notes))
    labels = ()
    # Of spans the two classes are the ends of an answer, which have no names.
    if config.num_labels and config.classifier != "spans":
        labels = fields.labels()
    if rows:
        return Foreign.of(
            rows.reordered(model), vocabulary, languages=rows.languages, labels=labels, rows=rows
        )
    languages = XLM.languages_of(fields) if config.has_languages else in_order
    return Foreign.of(model, vocabulary, languages=languages, labels=labels)


def _fitted(
    config: ModelConfig, vocabulary: Vocabulary, codes: int, of_languages: bool, folder: Path
) -> tuple[ModelConfig, list[str]]:
    """The configuration with a row for each piece (and language code), its other rows kept beside;
    what is said of them. of_languages: other rows would be languages. Raises UserError for a table
    that is not of this vocabulary.
    """
    more = config.vocab_size - codes - vocabulary.size
    if more == 0:
        return config, []
    where = (
        f"{folder}: its embedding table has {config.vocab_size:,} rows, its tokenizer"
        f" {vocabulary.size:,} pieces"
    )
    if codes:
        where += f" and {codes} languages"
    if more < 0:
        raise UserError(
            f"{where}: pieces without a row; give the tokenizer that the model was trained with"
        )
    # Tables are padded for the speed of matrix products, or have rows for pieces to come.
    spare = more <= _SPARE
    padding = config.vocab_size % _MULTIPLE == 0 and more < _PADDING
    # Of an export of ours the codes are known by name.
    of_languages = of_languages and not codes
    if of_languages or not (spare or padding):
        raise UserError(
            f"{where}: these are not of one model; give the tokenizer that it was trained with, or"
            f" cut the table with transformers' resize_token_embeddings({vocabulary.size + codes})"
        )
    note = (
        f"{more} rows of the embedding table have no piece: kept, written by an export, never"
        " predicted"
    )
    fitted = config.replace(vocab_size=vocabulary.size + codes, table_rows=config.vocab_size)
    return fitted, [note]


def _other_roles(family: Family, fields: Fields, vocabulary: Vocabulary) -> list[str]:
    """What is said of special ids that config.json and the tokenizer do not agree on: text is read
    with the tokenizer's."""
    notes = []
    for role, (key, default) in family.roles.items():
        configured = fields.values.get(key, default)
        ours = getattr(vocabulary, role)
        if configured != ours:
            notes.append(
                f"config.json has {key} {configured}, its tokenizer {ours}: the tokenizer's is"
                " taken"
            )
    return notes


def params_of(folder: Path) -> Converted:
    """The model and its parameters alone, whatever its tokenizer. Raises UserError as `read`
    does."""
    family, fields = _family(folder)
    config = family.config_of(fields, folder.resolve().name)
    return converted(family, config, open_tensors(folder))


def _family(folder: Path) -> tuple[Family, Fields]:
    fields = Fields(folder / "config.json")
    return fields.one_of("model_type", FAMILIES, None), fields


def vocabulary_of(folder: Path, model_type: str = "") -> Vocabulary:
    """The vocabulary of any family's folder. model_type: of its config.json, which alone tells the
    two kinds of prophetnet.tokenizer apart. Raises UserError where it has no tokenizer that is read
    here."""
    # Our export writes it for us, beside what transformers reads.
    if (folder / OURS).is_file():
        return Vocabulary.load(folder / OURS)
    if (folder / TOKENIZER_OF_RUN).is_file():
        content = (folder / TOKENIZER_OF_RUN).read_bytes()
        return TokenizerVocabulary(content, special_of(folder, content))
    # XLM-R's family: the model itself, before the tokenizer.json that was made of it.
    if (folder / TOKENIZER).is_file():
        vocabulary = Vocabulary.load(folder / TOKENIZER, "xlmr")
        # What mBART's adds are its language codes, which `mbart` reads.
        if model_type == "mbart":
            return vocabulary
        if _added_beside(folder / "tokenizer.json", vocabulary):
            return TokenizerVocabulary.read(folder)
        return vocabulary
    if model_type in PROPHETNET.types and (folder / PROPHETNET_FILE).is_file():
        if model_type == CROSS_LINGUAL:
            return Vocabulary.load(folder / PROPHETNET_FILE, "xprophetnet")
        return TokenizerVocabulary.read(folder, PROPHETNET_FILE)
    if model_type == "mbart":
        raise UserError(f"no {TOKENIZER} in {folder}, which mBART's vocabulary is read from")
    if (folder / "vocab.txt").is_file() or (folder / "tokenizer.json").is_file():
        return TokenizerVocabulary.read(folder)
    # Merges of XLM are of characters, with </w> at the
    # end of a word; those of RoBERTa are of bytes.
    if (folder / "merges.txt").is_file():
        if model_type in ("", "xlm"):
            return FastBpeVocabulary.read(folder)
        return TokenizerVocabulary.read(folder)
    if model_type == "xlm":
        raise UserError(
            f"{folder} has no merges.txt beside vocab.json, and no tokenizer.json: fetch XLM's"
            " vocabulary"
        )
    raise UserError(
        f"no {TOKENIZER} in {folder}, no tokenizer.json and no vocab.txt; take them from the model"
        " that this one was continued from"
    )


def _added_beside(path: Path, vocabulary: Vocabulary) -> list[str]:
    """Tokens that tokenizer.json has beside the pieces of the SentencePiece model, which cannot say
    them."""
    try:
        tokens = read_object(path).get("added_tokens") or ()
        added = [token["content"] for token in tokens]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path} is no whole tokenizer.json; fetch it again") from None
    known = {*vocabulary.pieces(range(vocabulary.size))}
    if language_tokens.written(path.parent, vocabulary):
        return []
    return [token for token in added if token not in known]
