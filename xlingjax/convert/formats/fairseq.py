"""A checkpoint of fairseq (`model.pt`) with dict.txt and sentencepiece.bpe.model beside it: XLM-R
or mBART. Only tensors, plain values and `argparse.Namespace` are let out of the pickle."""

import argparse
from pathlib import Path
from typing import Any

from xlingjax.convert.formats import fairseq_bart, fairseq_xlm_roberta
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.hugging_face import Foreign, vocabulary_of
from xlingjax.convert.formats.reading import Converted, converted
from xlingjax.convert.formats.tensors import of_torch, unpickled
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError


def read(path: Path) -> Foreign:
    """Raises UserError for a pickle that holds more, a model that is neither, a tokenizer that is
    not its own."""
    # Before the weights, which take long: a wrong tokenizer is found by two small files.
    vocabulary = vocabulary_of(path.parent)
    _require_order(vocabulary, path.parent / "dict.txt")
    model = params_of(path)
    if vocabulary.size != model.config.vocab_size:
        raise UserError(
            f"{path}: its tokenizer has {vocabulary.size} pieces, it {model.config.vocab_size}"
            " words; give the tokenizer that the model was trained with"
        )
    return Foreign.of(model, vocabulary)


def params_of(path: Path) -> Converted:
    """The model and its parameters alone, whatever its tokenizer. Raises UserError as `read`
    does."""
    # fairseq keeps its options as a Namespace, which holds values and runs nothing.
    checkpoint = unpickled(path, [argparse.Namespace])
    is_table = isinstance(checkpoint, dict)
    if not is_table or not isinstance(checkpoint.get("model"), dict):
        raise UserError(f"{path} is no checkpoint of fairseq: it needs model, and args or cfg")
    options = _options(path, checkpoint)
    tensors = of_torch(str(path), checkpoint["model"])
    family = fairseq_bart
    # RoBERTa's class has its layers there.
    if any(".sentence_encoder." in name for name in tensors.shapes):
        family = fairseq_xlm_roberta
    shapes = family.usual(tensors).shapes
    for name, table in (("words", family.WORDS), ("positions", family.POSITIONS)):
        if table not in shapes:
            raise UserError(f"{path}: neither XLM-R nor mBART of fairseq, it has no {table}")
        # fairseq sizes its tables by the dictionary, which `args` do not hold.
        options[name] = shapes[table][0]
    return converted(family, family.config_of(Fields(path, options), path.stem), tensors)


def _options(path: Path, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """What the model was made with: `args`, of newer versions `cfg.model`."""
    options = checkpoint.get("args") or checkpoint.get("cfg")
    if isinstance(options, dict):
        options = options.get("model")
    if isinstance(options, argparse.Namespace):
        options = vars(options)
    if not isinstance(options, dict):
        raise UserError(f"{path} is no checkpoint of fairseq: it needs args, or cfg with model")
    return dict(options)


def _require_order(vocabulary: Vocabulary, path: Path) -> None:
    """Ids of words are lines of dict.txt. Raises UserError where they are not the pieces in their
    order."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise UserError(
            f"cannot read {path}; it names the words of the model, put it beside the checkpoint"
        ) from None
    # dict.txt has neither the four special pieces before nor <mask> behind.
    ours = vocabulary.pieces(range(4, vocabulary.size - 1))
    theirs = [line.split(" ")[0] for line in lines if line]
    # The first that differs tells more than the two numbers of words.
    for i, (piece, word) in enumerate(zip(ours, theirs, strict=False)):
        if piece != word:
            raise UserError(
                f"{path}: line {i + 1} is {word!r}, the tokenizer has {piece!r}; give files of one"
                " model"
            )
    if len(theirs) != len(ours):
        raise UserError(
            f"{path} has {len(theirs)} words, the tokenizer {len(ours)}; give files of one model"
        )
