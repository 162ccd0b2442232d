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
    found, fields, words = _converted(path)
    vocabulary = FastBpeVocabulary.of_xlm(path.parent, words) or vocabulary_of(
        path.parent
    )
    if vocabulary.size != found.config.vocab_size or vocabulary.layout != "xlm":
        raise UserError(
            f"{path}: its vocabulary has {vocabulary.size} pieces (layout {vocabulary.layout}), it "
            f"{found.config.vocab_size} words; give the vocabulary that the model was trained with"
        )
    languages = xlm.languages_of(fields) if found.config.has_languages else ()
    return Foreign.of(found, vocabulary, languages=languages)


def params_of(path: Path) -> Converted:
    """The model and its parameters alone, whatever its vocabulary. Raises UserError as `read`
    does."""
    return _converted(path)[0]


def _converted(path: Path) -> tuple[Converted, Fields, list[str]]:
    """(the model, its options, the words in the order of their ids where the checkpoint has
    them)."""
    found = unpickled(path, [argparse.Namespace])
    if not isinstance(found, dict) or not isinstance(
        found.get("params"), dict | argparse.Namespace
    ):
        raise UserError(
            f"{path} is no checkpoint of XLM: it needs params, and model or encoder"
        )
    params = (
        found["params"] if isinstance(found["params"], dict) else vars(found["params"])
    )
    fields = Fields(path, {name: params[name] for name in _OPTIONS if name in params})
    fields.one_of("use_memory", {False: False}, False)
    if "decoder" in found and "encoder" in found:
        tensors = _both(path, found)
        family, positions = (
            xlm_seq2seq,
            tensors.shapes.get("encoder.position_embeddings.weight"),
        )
        more = {
            "decoder_layers": fields.count("n_layers"),
            "decoder_embeddings": "separate",
        }
    else:
        tensors = of_torch(str(path), _bare(found.get("model", found.get("encoder"))))
        family, positions, more = (
            xlm,
            tensors.shapes.get("position_embeddings.weight"),
            {},
        )
    if positions is None:
        raise UserError(
            f"{path}: it has no position_embeddings.weight, and is no checkpoint of XLM"
        )
    fields.values["max_position_embeddings"] = positions[0]
    made = converted(family, xlm.config_of(fields, path.stem).replace(**more), tensors)
    ids = found.get("dico_word2id") or {}
    try:
        return made, fields, sorted(ids, key=ids.__getitem__)
    except (TypeError, AttributeError):
        raise UserError(f"{path}: dico_word2id is no table of ids by word") from None


def _bare(table: Any) -> Any:
    """Without the "module." that training on several devices puts before every name."""
    if not isinstance(table, dict):
        return table
    return {str(name).removeprefix("module."): value for name, value in table.items()}


def _both(path: Path, found: dict[str, Any]) -> Tensors:
    sides = {
        side: of_torch(f"{path}, {side}", _bare(found[side]))
        for side in ("encoder", "decoder")
    }
    shapes = {
        f"{side}.{name}": shape
        for side, own in sides.items()
        for name, shape in own.shapes.items()
    }

    def fetch(name: str):
        side, _, own = name.partition(".")
        return sides[side].fetch(own)

    return Tensors(str(path), shapes, fetch)
