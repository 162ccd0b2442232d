"""The weights in a folder of another program, read one by one, and without running anything that
lies there."""

import dataclasses
import pickletools
import re
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json
from xlingjax.runtime.machine import first_line

SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"


@dataclasses.dataclass(frozen=True)
class Tensors:
    """Names and shapes, known without reading what they stand for."""

    origin: str
    """Where they lie, for messages."""
    shapes: dict[str, tuple[int, ...]]
    fetch: Callable[[str], np.ndarray]
    notes: tuple[str, ...] = ()
    """What of them is left behind."""

    def read(self, name: str) -> np.ndarray:
        """The tensor in float32. Raises UserError for NaN, infinity and what is no number."""
        value = self.fetch(name)
        # bfloat16 is no floating-point number to NumPy: its kind is V.
        if value.dtype.kind not in "fV" and value.dtype.name != "bfloat16":
            raise UserError(
                f"{self.origin}: {name} is {value.dtype}; weights are floating-point numbers"
            )
        # Released weights may be in half precision; ours are float32 in training.
        value = np.asarray(value, np.float32)
        if not np.isfinite(value).all():
            raise UserError(
                f"{self.origin}: {name} has {(~np.isfinite(value)).sum():,} values that are NaN or"
                " infinite; the checkpoint is broken, take an earlier one"
            )
        return value


def open_tensors(folder: Path) -> Tensors:
    """Of model.safetensors or pytorch_model.bin, whole or in shards; safetensors where both are
    there. Raises UserError for none, a damaged file, a pickle with more than tensors in it, and an
    index that points elsewhere.
    """
    # safetensors first: nothing in it can run.
    for name, reader in ((SAFE, safetensors), (PICKLED, _pickled)):
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return _joined(str(folder / name), [reader(folder / name)], None)
        if index.is_file():
            shard_of = _shards(index)
            # Each once, since the index names a shard for every tensor.
            shards = sorted({*shard_of.values()})
            parts = [reader(folder / shard) for shard in shards]
            return _joined(str(index), parts, shard_of)
    there = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    raise UserError(
        f"no weights in {folder}: looked for {SAFE} and {PICKLED}, whole or in shards; there is"
        f" {there}"
    )


def _joined(origin: str, parts: list[Tensors], index: dict[str, str] | None) -> Tensors:
    shapes = {}
    whose = {}
    for part in parts:
        for name, shape in part.shapes.items():
            if name in whose:
                raise UserError(
                    f"{origin}: {name} stands in {whose[name].origin} and in {part.origin};"
                    " leave one"
                )
            shapes[name] = shape
            whose[name] = part
    # A download that was cut short leaves an index that promises more than the shards hold.
    for name, shard in (index or {}).items():
        if name not in whose or Path(whose[name].origin).name != shard:
            raise UserError(
                f"{origin}: it says that {name} lies in {shard}, where it is not; fetch the files"
                " again"
            )
    return Tensors(origin, shapes, lambda name: whose[name].fetch(name))


def _shards(index: Path) -> dict[str, str]:
    """{name: the file it lies in}."""
    try:
        table = parsed_json(index.read_text(encoding="utf-8"))["weight_map"]
        shard_of = {str(name): str(shard) for name, shard in table.items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        raise UserError(
            f"{index} is no index of shards: it needs weight_map, {{name: file}}"
        ) from None
    # A name with folders in it would read a file that nobody gave.
    for shard in {*shard_of.values()}:
        if Path(shard).name != shard or shard in ("", ".", ".."):
            raise UserError(
                f"{index} names the shard {shard!r}, outside its own folder; nothing of it was read"
            )
        if not (index.parent / shard).is_file():
            raise UserError(
                f"{index} names the shard {shard}, which is not there; fetch all of the model's"
                " files"
            )
    return shard_of


def safetensors(path: Path) -> Tensors:
    """Of one file. Raises UserError where it is not whole."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
    except (SafetensorError, OSError, ValueError, struct.error) as error:
        raise UserError(
            f"{path} is no whole safetensors file ({first_line(error)}); fetch it again"
        ) from None

    # Opened for each tensor, so that no file stays open as long as the model is read.
    def fetch(name: str) -> np.ndarray:
        with safe_open(path, framework="numpy") as file:
            return file.get_tensor(name)

    return Tensors(str(path), shapes, fetch)


def _pickled(path: Path) -> Tensors:
    return of_torch(str(path), unpickled(path))


# What PyTorch's restricted reader may import comes from these packages (argparse: options beside
# the weights of fairseq and XLM).
_TENSOR_PACKAGES = frozenset({"torch", "collections", "numpy", "_codecs", "argparse"})
_REFUSED = "holds more than tensors, and what a pickle holds it can run: refused"


def _names_only_tensors(path: Path) -> bool:
    """Whether all that the pickle would import belongs to tensors, found without running it and
    without PyTorch, so that a program is refused in the same words on every machine. PyTorch's
    restricted reader still decides what is read.
    """
    try:
        if not zipfile.is_zipfile(path):
            with path.open("rb") as file:
                return _imports_only_tensors(file)
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith("data.pkl"):
                    with archive.open(name) as file:
                        return _imports_only_tensors(file)
    # What is no pickle at all: PyTorch says so.
    except (OSError, ValueError, zipfile.BadZipFile):
        pass
    return True


def _imports_only_tensors(file: IO[bytes]) -> bool:
    # PyTorch's older format has three pickles of numbers before the one of the tensors.
    for _ in range(4):
        for opcode, name, _ in pickletools.genops(file):
            # PyTorch writes protocol 2, whose imports are named in the open.
            if opcode.name in ("STACK_GLOBAL", "INST"):
                return False
            if opcode.name == "GLOBAL" and re.split("[. ]", name)[0] not in _TENSOR_PACKAGES:
                return False
    return True


def unpickled(path: Path, known: Sequence[type] = ()) -> Any:
    """What lies in a pickle of PyTorch. A pickle may run any program when it is opened; only
    tensors and plain values are let through, by PyTorch's restricted reader, and `known` types.
    Raises UserError for more.
    """
    if not _names_only_tensors(path):
        raise UserError(f"{path} {_REFUSED}; give its {SAFE}")
    try:
        import torch
    except ImportError:
        raise UserError(
            f"{path} is a pickle of PyTorch: pip install 'xlingjax[interop]' to read it, or give"
            f" its {SAFE}"
        ) from None
    try:
        with torch.serialization.safe_globals([*known]):
            # Only the newer of PyTorch's formats, a zip file, can be mapped.
            return torch.load(
                path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
            )
    # PyTorch raises a dozen kinds, and has none for what its restricted reader refuses.
    except Exception as error:
        why = f"cannot be read ({first_line(error)})"
        if "WeightsUnpickler" in str(error) or "Unsupported" in str(error):
            # PyTorch's own words tell how to run it all the same.
            why = _REFUSED
        elif "weights_only" in str(error):
            why = "cannot be read (it is no pickle of tensors)"
        raise UserError(f"{path} {why}; give its {SAFE}") from None


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
            # NumPy has no bfloat16.
            value = value.float()
        return value.numpy()

    shapes = {name: tuple(value.shape) for name, value in table.items()}
    return Tensors(origin, shapes, fetch)
