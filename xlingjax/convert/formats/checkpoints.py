"""Other programs' checkpoints, with the files beside them: fairseq's `model.pt` (XLM-R or mBART,
with dict.txt), XLM's `.pth` and PaddleNLP's `model_state.pdparams` (ERNIE-M).

All three are pickles. Only tensors, plain values and `argparse.Namespace` are let out of them.
"""

import argparse
import itertools
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.convert.formats.bart import FAIRSEQ_BART
from xlingjax.convert.formats.family import Converted, converted, unwrapped
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.hugging_face import Foreign, vocabulary_of
from xlingjax.convert.formats.tensors import Tensors, of_torch, unpickled
from xlingjax.convert.formats.xlm import XLM, XLM_SEQ2SEQ
from xlingjax.convert.formats.xlm_roberta import FAIRSEQ_XLM_ROBERTA, PADDLE_ERNIE_M
from xlingjax.data.vocabulary.fastbpe import FastBpeVocabulary
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError


def read(path: Path) -> Foreign:
    """Raises UserError for a pickle that holds more, options that are not computed here, a
    vocabulary that is not the model's own."""
    languages: tuple[str, ...] = ()
    if path.suffix == ".pth":
        model, fields, words = _of_xlm(path)
        vocabulary = FastBpeVocabulary.of_xlm(path.parent, words) or vocabulary_of(path.parent)
        if model.config.has_languages:
            languages = XLM.languages_of(fields)
    else:
        # Before the weights, which take long: a wrong tokenizer is found by two small files.
        vocabulary = vocabulary_of(path.parent)
        if path.suffix == ".pt":
            _require_order(vocabulary, path.parent / "dict.txt")
        model = params_of(path)
    pieces = model.config.vocab_size
    if vocabulary.size != pieces or (path.suffix == ".pth" and vocabulary.layout != "xlm"):
        raise UserError(
            f"{path}: its tokenizer has {vocabulary.size} pieces (layout {vocabulary.layout}), the"
            f" model {pieces}; give the tokenizer that the model was trained with"
        )
    return Foreign(**vars(model), vocabulary=vocabulary, languages=languages)


def params_of(path: Path) -> Converted:
    """The model and its parameters, whatever its vocabulary. Raises UserError as `read` does."""
    return READERS[path.suffix](path)


def _of_fairseq(path: Path) -> Converted:
    # fairseq keeps its options as a Namespace, which holds values and runs nothing.
    checkpoint = unpickled(path, [argparse.Namespace])
    options = None
    if isinstance(checkpoint, dict) and "model" in checkpoint:
        options = checkpoint.get("args") or (checkpoint.get("cfg") or {}).get("model")
    options = _table(options)
    if options is None:
        raise UserError(f"{path} is no checkpoint of fairseq: it needs model, and args or cfg")
    tensors = of_torch(str(path), checkpoint["model"])
    # RoBERTa's class has its layers there.
    is_encoder = any(".sentence_encoder." in name for name in tensors.shapes)
    family = FAIRSEQ_XLM_ROBERTA if is_encoder else FAIRSEQ_BART
    shapes = family.usual(tensors).shapes
    for name, table in (("words", family.words), ("positions", family.positions)):
        if table not in shapes:
            raise UserError(f"{path}: neither XLM-R nor mBART of fairseq, it has no {table}")
        # fairseq sizes its tables by the dictionary, which `args` do not hold.
        options[name] = shapes[table][0]
    return converted(family, family.config_of(Fields(path, options), path.stem), tensors)


def _table(options: Any) -> dict[str, Any] | None:
    if isinstance(options, argparse.Namespace):
        options = vars(options)
    return dict(options) if isinstance(options, dict) else None


def _require_order(vocabulary: Vocabulary, path: Path) -> None:
    """Raises UserError unless pieces stand in the order of dict.txt, whose lines are the ids."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise UserError(
            f"cannot read {path}; it names the words of the model, put it beside the checkpoint"
        ) from None
    # dict.txt has neither the four special pieces before nor <mask> behind.
    ours = vocabulary.pieces(range(4, vocabulary.size - 1))
    theirs = [line.split(" ")[0] for line in lines if line]
    for i, (piece, word) in enumerate(itertools.zip_longest(ours, theirs)):
        if piece != word:
            raise UserError(
                f"{path}: line {i + 1} is {word!r}, the tokenizer has {piece!r}; give files of one"
                " model"
            )


def _of_xlm(path: Path) -> tuple[Converted, Fields, list[str]]:
    """(the model, its options, the words in the order of their ids where the file has them)."""
    checkpoint = unpickled(path, [argparse.Namespace])
    params = _table(checkpoint.get("params")) if isinstance(checkpoint, dict) else None
    if params is None:
        raise UserError(f"{path} is no checkpoint of XLM: it needs params, and model or encoder")
    fields = Fields(path, params)
    # Product-key memories take the place of some feed-forward layers.
    fields.only("use_memory", False)
    decoder = {}
    prefix = ""
    family = XLM
    if "decoder" in checkpoint and "encoder" in checkpoint:
        family = XLM_SEQ2SEQ
        prefix = "encoder."
        named = {side: checkpoint[side] for side in ("encoder", "decoder")}
        decoder = {"decoder_layers": fields.count("n_layers"), "decoder_embeddings": "separate"}
    else:
        # XLM's code saves an encoder alone as "model", and as "encoder" where it trains a decoder.
        named = {"": checkpoint.get("model", checkpoint.get("encoder"))}
    table = {}
    for side, part in named.items():
        if not isinstance(part, dict):
            part = {"": part}
        for name, value in part.items():
            table[f"{side}.{unwrapped(str(name))}".lstrip(".")] = value
    tensors = of_torch(str(path), table)
    positions = tensors.shapes.get(f"{prefix}position_embeddings.weight")
    if positions is None:
        raise UserError(
            f"{path}: it has no position_embeddings.weight, and is no checkpoint of XLM"
        )
    # Not among the options: XLM's code builds its table for 512 positions, whatever they say.
    fields.values["max_position_embeddings"] = positions[0]
    model = converted(family, XLM.config_of(fields, path.stem).replace(**decoder), tensors)
    ids = checkpoint.get("dico_word2id") or {}
    try:
        return model, fields, sorted(ids, key=ids.__getitem__)
    except (TypeError, AttributeError):
        raise UserError(f"{path}: dico_word2id is no table of ids by word") from None


_PARAMETER_NAMES = "StructuredToParameterName@@"  # the key of Paddle's own names for them


def _of_paddle(path: Path) -> Converted:
    beside = path.with_name("model_config.json")
    fields = _flat(Fields(beside if beside.is_file() else path.with_name("config.json")))
    fields.one_of("model_type", {"ernie_m": None}, None)
    config = PADDLE_ERNIE_M.config_of(fields, path.resolve().parent.name)
    return converted(PADDLE_ERNIE_M, config, open_arrays(path))


def open_arrays(path: Path) -> Tensors:
    """Raises UserError for a file that is cut or holds more than arrays."""
    try:
        with path.open("rb") as file:
            # Not by NumPy's or Paddle's own readers, which run what a pickle says.
            arrays = _Unpickler(file).load()
        arrays.pop(_PARAMETER_NAMES, None)
        shapes = {str(name): array.value.shape for name, array in arrays.items()}
    except OSError:
        raise
    # Of many kinds: anything may stand in a pickle.
    except Exception:
        raise UserError(
            f"{path} is damaged, or holds more than named arrays, and what a pickle holds it can"
            " run: refused; fetch it again"
        ) from None
    return Tensors(str(path), shapes, lambda name: arrays[name].value)


class _Type:
    """A type of numbers, as NumPy pickles it."""

    def __init__(self, code: str, *_: Any):
        if not re.fullmatch("[fiub][1248]", code):
            raise pickle.UnpicklingError(code)
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple):
        # NumPy's state of a type: (version, byte order, ...).
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """An array, made of its bytes here and not by what the pickle says."""

    # A pickle may name an array and never fill it.
    value = np.zeros(0)

    def __init__(self, *_: Any):
        pass

    def __setstate__(self, state: tuple):
        # NumPy's state of an array: (version, shape, type, by column, bytes).
        _, shape, kind, by_column, content = state
        order = "F" if by_column else "C"
        self.value = np.frombuffer(content, kind.dtype).reshape(shape, order=order)


_KNOWN = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    # Protocol 2 has no bytes, and writes them as text.
    ("_codecs", "encode"): lambda text, encoding: text.encode("latin1"),
    ("collections", "OrderedDict"): dict,
}


class _Unpickler(pickle.Unpickler):
    """Finds nothing but what arrays are made of, and of that ours: NumPy's own would run code."""

    def find_class(self, module: str, name: str) -> Any:
        return _KNOWN[module, name]


def _flat(fields: Fields) -> Fields:
    """The model's options under the names of config.json. Older files have those of a classifier's
    body within `init_args`; the feed-forward layers are 4 D wide, whatever they say."""
    values = fields.values
    kind = values.get("init_class")
    if kind is not None:
        values = dict(values)
        inner = values.get("init_args")
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            values |= inner[0]
        if "num_classes" in fields.values:
            classes = range(fields.count("num_classes"))
            values["id2label"] = {str(i): f"LABEL_{i}" for i in classes}
        # Older files do not name it; the tensors tell whether it is true.
        values["model_type"] = "ernie_m"
        values["architectures"] = [kind]
    dim = Fields(fields.path, values).count("hidden_size")
    return Fields(fields.path, {**values, "intermediate_size": 4 * dim})


# By ending, since pickles are not opened to be looked at.
READERS: dict[str, Callable[[Path], Converted]] = {
    ".pt": _of_fairseq,
    ".pth": lambda path: _of_xlm(path)[0],
    ".pdparams": _of_paddle,
}


def weights_in(source: Path) -> Path:
    """What is read of a folder or file: the file of the weights, or a folder of Hugging Face's.
    Raises UserError for a file of another kind, and for a folder with several."""
    if source.is_file():
        if source.suffix not in READERS:
            raise UserError(
                f"{source} is none of {', '.join(READERS)}; give the folder of a Hugging Face model"
            )
        return source
    paths = sorted(source.iterdir())
    files = [path for path in paths if path.suffix in READERS]
    suffixes = {path.suffix for path in paths}
    # A folder of the hub may hold its model for another program, too.
    of_transformers = suffixes & {".safetensors", ".bin"} and (source / "config.json").is_file()
    if not files or of_transformers:
        return source
    if len(files) > 1:
        raise UserError(
            f"{source} holds {', '.join(path.name for path in files)}; give one of them"
        )
    return files[0]
