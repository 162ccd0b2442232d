"""Weights in a folder of another program, read one by one, without running what lies there."""

import dataclasses
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.errors import UserError
from xlingjax.runtime.files import is_of_system, parsed_json
from xlingjax.runtime.machine import first_line

Arrays = dict[str, np.ndarray]
"""By the names of tensors, or of our parameters."""
SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"


@dataclasses.dataclass(frozen=True)
class Tensors:
    """Names and shapes, known without reading what they stand for."""

    origin: str  # where they lie, for messages
    shapes: dict[str, tuple[int, ...]]
    fetch: Callable[[str], np.ndarray]

    def read(self, name: str) -> np.ndarray:
        """The tensor in float32. Raises UserError for NaN, infinity and what is no number."""
        value = self.fetch(name)
        # bfloat16 is no floating-point number to NumPy: its kind is V.
        if value.dtype.kind not in "fV" and value.dtype.name != "bfloat16":
            raise UserError(
                f"{self.origin}: {name} is {value.dtype}; weights are floating-point numbers"
            )
        value = np.asarray(value, np.float32)
        if not np.isfinite(value).all():
            raise UserError(
                f"{self.origin}: {name} has {(~np.isfinite(value)).sum():,} values that are NaN or"
                " infinite; the checkpoint is broken, take an earlier one"
            )
        return value


def open_tensors(folder: Path) -> Tensors:
    """Of model.safetensors or pytorch_model.bin, whole or in shards. Raises UserError for none, a
    damaged file, a pickle with more than tensors in it, and an index that points elsewhere."""
    # safetensors first: nothing in it can run.
    for name, reader in (
        (SAFE, safetensors),
        (PICKLED, lambda path: of_torch(str(path), unpickled(path))),
    ):
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return reader(folder / name)
        if index.is_file():
            return _joined(index, [reader(folder / shard) for shard in _shards(index)])
    raise UserError(f"no weights in {folder}: no {SAFE} and no {PICKLED}, whole or in shards")


def _joined(index: Path, parts: list[Tensors]) -> Tensors:
    shapes = {}
    fetches = {}
    for part in parts:
        shapes |= part.shapes
        fetches |= dict.fromkeys(part.shapes, part.fetch)
    return Tensors(str(index), shapes, lambda name: fetches[name](name))


def _shards(index: Path) -> list[str]:
    try:
        table = parsed_json(index.read_bytes())["weight_map"]
        shards = sorted({*map(str, table.values())})
    except (ValueError, KeyError, AttributeError, TypeError):
        raise UserError(
            f"{index} is no index of shards: it needs weight_map, {{name: file}}"
        ) from None
    for shard in shards:
        # A name with folders in it would read a file that nobody gave.
        if Path(shard).name != shard or not (index.parent / shard).is_file():
            raise UserError(
                f"{index} names the shard {shard!r}, which is no file of its folder; fetch all of"
                " the model's files"
            )
    return shards


def safetensors(path: Path) -> Tensors:
    """Of one file. Raises UserError where it is not whole."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
    except (SafetensorError, OSError, ValueError, struct.error) as error:
        what = "is no whole safetensors file", "fetch it again"
        if is_of_system(error):
            what = "cannot be read", "repair that and call it again"
        raise UserError(f"{path} {what[0]} ({first_line(error)}); {what[1]}") from None

    # Opened for each tensor, so that no file stays open as long as the model is read.
    def fetch(name: str) -> np.ndarray:
        with safe_open(path, framework="numpy") as file:
            return file.get_tensor(name)

    return Tensors(str(path), shapes, fetch)


def unpickled(path: Path, known: Sequence[type] = ()) -> Any:
    """What lies in a pickle of PyTorch. A pickle may run any program when it is opened; only
    tensors and plain values are let through, by PyTorch's restricted reader, and `known` types.
    Raises UserError for more."""
    try:
        import torch
    except ImportError:
        raise UserError(
            f"{path} is a pickle, and what a pickle holds it can run: refused without PyTorch's"
            f" restricted reader (pip install 'xlingjax[interop]'); or give its {SAFE}"
        ) from None
    try:
        with torch.serialization.safe_globals([*known]):
            # Only the newer of PyTorch's formats, a zip file, can be mapped.
            return torch.load(
                path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
            )
    except OSError:
        raise
    # PyTorch raises a dozen kinds, in words that tell how to run what is refused.
    except Exception:
        raise UserError(
            f"{path} is damaged, or holds more than tensors, and what a pickle holds it can run:"
            f" refused; fetch it again, or give its {SAFE}"
        ) from None


def of_torch(origin: str, table: Any) -> Tensors:
    """Raises UserError for what is no table of tensors."""
    import torch

    is_table = isinstance(table, dict)
    if not is_table or not all(isinstance(v, torch.Tensor) for v in table.values()):
        raise UserError(
            f"{origin} is no table of names and tensors; give the file of the weights alone"
        )

    def fetch(name: str) -> np.ndarray:
        value = table[name]
        if value.is_floating_point():
            value = value.float()
        return value.numpy()

    shapes = {name: tuple(value.shape) for name, value in table.items()}
    return Tensors(origin, shapes, fetch)
