"""A folder of PaddleNLP: `model_state.pdparams`, a pickle of which nothing but NumPy arrays is let
out."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.convert.formats import ernie_m_paddle
from xlingjax.convert.formats.fields import Fields
from xlingjax.convert.formats.hugging_face import Foreign, vocabulary_of
from xlingjax.convert.formats.reading import Converted, converted
from xlingjax.convert.formats.tensors import Tensors
from xlingjax.errors import UserError
from xlingjax.runtime.machine import first_line

CONFIGS = ("config.json", "model_config.json")
_NAMES = "StructuredToParameterName@@"
"""The key of Paddle's own names of the same tensors."""
_TYPES = frozenset(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"])


def read(path: Path) -> Foreign:
    """Raises UserError for a pickle that holds more than arrays, another family, a tokenizer of
    another size."""
    vocabulary = vocabulary_of(path.parent)
    model = params_of(path)
    if vocabulary.size != model.config.vocab_size:
        raise UserError(
            f"{path}: its tokenizer has {vocabulary.size} pieces, it {model.config.vocab_size};"
            " give the tokenizer that the model was trained with"
        )
    # ERNIE-M was released without its language embedding.
    return Foreign(**vars(model), vocabulary=vocabulary, languages=())


def params_of(path: Path) -> Converted:
    """The model and its parameters alone, whatever its tokenizer. Raises UserError as `read`
    does."""
    configs = [path.parent / name for name in CONFIGS]
    present = [config for config in configs if config.is_file()]
    if not present:
        raise UserError(f"no {' or '.join(CONFIGS)} beside {path}; fetch it too")
    fields = _flat(Fields(present[0]))
    fields.one_of("model_type", {"ernie_m": None}, None)
    return converted(
        ernie_m_paddle,
        ernie_m_paddle.config_of(fields, path.resolve().parent.name),
        open_arrays(path),
    )


def open_arrays(path: Path) -> Tensors:
    """Raises UserError for a file that is cut or holds more than arrays."""
    try:
        with path.open("rb") as file:
            # Not by NumPy's or Paddle's own readers, which run what a pickle says.
            arrays = _Unpickler(file).load()
    except UserError as error:
        raise UserError(f"{path} {error}") from None
    # Of many kinds: anything may stand in a pickle.
    except Exception as error:
        raise UserError(f"{path} cannot be read ({first_line(error)}); fetch it again") from None
    is_table = isinstance(arrays, dict)
    if is_table:
        # It is a table of names among arrays.
        arrays.pop(_NAMES, None)
    if not is_table or not all(isinstance(v, _Array) for v in arrays.values()):
        raise UserError(
            f"{path} is no table of names and arrays; give the file of the weights alone"
        )
    shapes = {str(name): array.value.shape for name, array in arrays.items()}
    return Tensors(str(path), shapes, lambda name: arrays[name].value)


class _Type:
    """A type of numbers, as NumPy pickles it."""

    def __init__(self, code: str, *_: Any):
        if code not in _TYPES:
            raise UserError(f"holds arrays of {code!r}, no numbers: refused")
        self.code = code
        self.order = "="

    def __setstate__(self, state: tuple):
        # NumPy's state of a type: (version, byte order, ...).
        self.order = state[1]

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.code).newbyteorder(self.order)


class _Array:
    """An array, made of its bytes here and not by what the pickle says."""

    # A pickle may name an array and never fill it.
    value = np.zeros(0)

    def __setstate__(self, state: tuple):
        # NumPy's state of an array: (version, shape, type, by column, bytes).
        _, shape, kind, by_column, content = state
        order = "C"
        if by_column:
            order = "F"
        self.value = np.frombuffer(content, kind.dtype).reshape(shape, order=order)


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _frombuffer(content: bytes, kind: _Type, shape: tuple, order: str) -> _Array:
    array = _Array()
    array.__setstate__((1, shape, kind, order == "F", content))
    return array


def _encode(text: str, encoding: str) -> bytes:
    # Python itself writes bytes with this one alone.
    if encoding != "latin1":
        raise UserError(f"holds bytes as {encoding}: refused")
    return text.encode("latin1")


_KNOWN = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    # Protocol 5 has arrays so.
    ("numpy.core.numeric", "_frombuffer"): _frombuffer,
    ("numpy._core.numeric", "_frombuffer"): _frombuffer,
    # Protocol 2 has no bytes, and writes them as text.
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): dict,
}


class _Unpickler(pickle.Unpickler):
    """Finds nothing but what arrays are made of, and of that our own, which runs no code of NumPy
    that trusts it."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise UserError(
                f"holds more than arrays ({module}.{name}), and what a pickle holds it can run:"
                " refused"
            )
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
