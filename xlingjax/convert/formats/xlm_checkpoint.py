"""A checkpoint of XLM's own code (`.pth`): an encoder, or an encoder and a decoder, with its
options."""

import argparse
from pathlib import Path
from typing import Any

from xlingjax.convert.formats import xlm, xlm_seq2seq
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.hugging_face import Foreign, vocabulary_of
from xlingjax.convert.formats.reading import Converted, converted
from xlingjax.convert.formats.tensors import Tensors, of_torch, unpickled
from xlingjax.data.vocabulary.fastbpe import FastBpeVocabulary
from xlingjax.errors import UserError

# Those that the model depends on; the others are of its training and may be anything.
_OPTIONS = (
    "emb_dim",
    "n_layers",
    "n_heads",
    "n_words",
    "n_langs",
    "use_lang_emb",
    "lang2id",
    "dropout",
    "attention_dropout",
    "gelu_activation",
    "sinusoidal_embeddings",
    "asm",
    "use_memory",
)


def read(path: Path) -> Foreign:
    """Raises UserError for a pickle that holds more than tensors and plain values, options that are
    not computed here, a folder without a vocabulary that is read."""
    model, fields, words = _converted(path)
    vocabulary = FastBpeVocabulary.of_xlm(path.parent, words) or vocabulary_of(path.parent)
    if vocabulary.size != model.config.vocab_size or vocabulary.layout != "xlm":
        raise UserError(
            f"{path}: its vocabulary has {vocabulary.size} pieces (layout {vocabulary.layout}), it "
            f"{model.config.vocab_size} words; give the vocabulary that the model was trained with"
        )
    languages = ()
    if model.config.has_languages:
        languages = xlm.languages_of(fields)
    return Foreign.of(model, vocabulary, languages=languages)


def params_of(path: Path) -> Converted:
    """The model and its parameters alone, whatever its vocabulary. Raises UserError as `read`
    does."""
    model, _, _ = _converted(path)
    return model


def _converted(path: Path) -> tuple[Converted, Fields, list[str]]:
    """(the model, its options, the words in the order of their ids where the checkpoint has
    them)."""
    checkpoint = unpickled(path, [argparse.Namespace])
    params = None
    if isinstance(checkpoint, dict):
        params = checkpoint.get("params")
    if isinstance(params, argparse.Namespace):
        params = vars(params)
    if not isinstance(params, dict):
        raise UserError(f"{path} is no checkpoint of XLM: it needs params, and model or encoder")
    fields = Fields(path, {name: params[name] for name in _OPTIONS if name in params})
    # Product-key memories take the place of some feed-forward layers.
    fields.only("use_memory", False)
    decoder = {}
    if "decoder" in checkpoint and "encoder" in checkpoint:
        family = xlm_seq2seq
        tensors = _both(path, checkpoint)
        positions = tensors.shapes.get("encoder.position_embeddings.weight")
        # XLM's code gives both sides one depth.
        decoder["decoder_layers"] = fields.count("n_layers")
        decoder["decoder_embeddings"] = "separate"
    else:
        family = xlm
        # XLM's code saves an encoder alone as "model", and as "encoder" where it trains a decoder.
        encoder = checkpoint.get("model", checkpoint.get("encoder"))
        tensors = of_torch(str(path), _bare(encoder))
        positions = tensors.shapes.get("position_embeddings.weight")
    if positions is None:
        raise UserError(
            f"{path}: it has no position_embeddings.weight, and is no checkpoint of XLM"
        )
    # Not among the options: XLM's code builds its table for 512 positions, whatever they say.
    fields.values["max_position_embeddings"] = positions[0]
    config = xlm.config_of(fields, path.stem).replace(**decoder)
    made = converted(family, config, tensors)
    ids = checkpoint.get("dico_word2id") or {}
    try:
        return made, fields, sorted(ids, key=ids.__getitem__)
    except (TypeError, AttributeError):
        raise UserError(f"{path}: dico_word2id is no table of ids by word") from None


def _bare(table: Any) -> Any:
    """Without the "module." that training on several devices puts before every name."""
    if not isinstance(table, dict):
        return table
    return {str(name).removeprefix("module."): value for name, value in table.items()}


def _both(path: Path, checkpoint: dict[str, Any]) -> Tensors:
    sides = {}
    shapes = {}
    for side in ("encoder", "decoder"):
        sides[side] = of_torch(f"{path}, {side}", _bare(checkpoint[side]))
        for name, shape in sides[side].shapes.items():
            shapes[f"{side}.{name}"] = shape

    def fetch(name: str):
        side, _, own = name.partition(".")
        return sides[side].fetch(own)

    return Tensors(str(path), shapes, fetch)
