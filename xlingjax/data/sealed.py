"""Files of the caches that tell their own damage: arrays (`.npy` with a hash behind) and indices
(JSON with a hash in it).

A file's size and header are looked at whenever it is opened. Its content is hashed when a process
first uses it: for text that is a shard, some 16 MB of a store that may be larger than memory, so a
start reads no more of it than it did, and an epoch each shard once. XXH3 hashes faster than disks
read.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json
from xlingjax.runtime.hashes import hash_of

WHOLE_BYTES = 1 << 16
"""A smaller file is read whole: a map of each would keep a file open, and there may be many."""
_HASH_BYTES = 16
_HASH = "xxh3"
_NOT_THERE = (FileNotFoundError, NotADirectoryError)

_known: set[tuple[str, int, int, int]] = set()
"""(path, number on the disk, size, time of change) of what this process has found whole."""


class Damaged(Exception):
    """A file of a cache is not what was written."""

    def __init__(self, path: Path, why: str):
        super().__init__(f"{path} is damaged ({why})")
        self.path = path


@contextlib.contextmanager
def replaced(path: Path) -> Iterator:
    """A file that appears under its name when it is whole."""
    # Another process may write the same: each has a file of its own, and renaming is atomic.
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with open(partial, "wb") as file:
            yield file
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def write_array(path: Path, array: np.ndarray) -> None:
    """Raises OSError."""
    write_parts(path, array.dtype, array.shape, [array])


def write_parts(
    path: Path, dtype: np.dtype, shape: tuple[int, ...], parts: Iterable[np.ndarray]
) -> None:
    """An array of which the parts come one after the other. Raises OSError."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header,
        {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape},
    )
    with replaced(path) as file:

        def written() -> Iterator[memoryview]:
            file.write(header.getvalue())
            yield header.getbuffer()
            for part in parts:
                content = _bytes_of(np.ascontiguousarray(part, dtype))
                file.write(content)
                yield content

        file.write(bytes.fromhex(hash_of(written())))


def _bytes_of(array: np.ndarray) -> memoryview:
    # By way of bytes: an array of structures is no buffer.
    return array.reshape(-1).view(np.uint8).data


def is_whole(path: Path) -> bool:
    """Whether a file has the size that its header tells; its content is not looked at."""
    try:
        _header(path)
    except (Damaged, OSError):
        return False
    return True


def read_array(path: Path) -> np.ndarray:
    """The array, read-only through a map where it is large. Raises Damaged, and FileNotFoundError
    where it is not there."""
    try:
        dtype, shape, offset, status = _header(path)
        count = int(np.prod(shape, dtype=np.int64))
        # An ordinary array over the map: NumPy's own class for maps takes longer to index.
        if status.st_size <= WHOLE_BYTES:
            flat = np.fromfile(path, dtype, count, offset=offset)
        elif count:
            flat = np.asarray(np.memmap(path, dtype, "r", offset, (count,)))
        else:
            flat = np.zeros(0, dtype)
        state = (str(path), status.st_ino, status.st_size, status.st_mtime_ns)
        if state not in _known:
            _require_hash(path, flat, offset)
            _known.add(state)
        return flat.reshape(shape)
    except _NOT_THERE:
        raise FileNotFoundError(2, "it is missing", str(path)) from None
    except (OSError, ValueError) as error:
        raise Damaged(path, f"{error}") from None


def _header(path: Path) -> tuple[np.dtype, tuple[int, ...], int, Any]:
    """(dtype, shape, bytes before the array, the file's status). Raises Damaged and OSError. No
    memory is taken for what the header tells."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if np.lib.format.read_magic(file) != (1, 0):
                raise Damaged(path, "another version of arrays")
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            offset = file.tell()
    except OSError:
        raise
    # NumPy's parser lets through whatever Python's raises.
    except Exception as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(path, "no array begins there") from None
    count = 1
    for length in shape:
        count *= length
    wanted = offset + count * dtype.itemsize + _HASH_BYTES
    if dtype.hasobject or min(shape, default=0) < 0:
        raise Damaged(path, "no array of numbers")
    if status.st_size != wanted:
        raise Damaged(path, f"{status.st_size:,} bytes of {wanted:,}")
    return dtype, shape, offset, status


def _require_hash(path: Path, content: np.ndarray, offset: int) -> None:
    with open(path, "rb") as file:
        header = file.read(offset)
        file.seek(-_HASH_BYTES, os.SEEK_END)
        written = file.read().hex()
    if hash_of([header, _bytes_of(content)]) != written:
        raise Damaged(path, "its content is not what was written")


# ---- indices -------------------------------------------------------------------------------------


def write_index(path: Path, index: Mapping[str, Any]) -> None:
    """Raises OSError."""
    # As it will be read: tuples become lists.
    index = json.loads(json.dumps(index))
    with replaced(path) as file:
        file.write(json.dumps(index | {_HASH: _hash_of(index)}).encode())


def read_index(path: Path) -> dict[str, Any]:
    """Raises Damaged, and FileNotFoundError where it is not there."""
    try:
        index = parsed_json(path.read_bytes())
        written = index.pop(_HASH)
    except _NOT_THERE:
        raise FileNotFoundError(2, "it is missing", str(path)) from None
    # Whatever JSON of another kind raises; too many brackets are a RecursionError.
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise Damaged(path, "no index") from None
    except RecursionError:
        raise Damaged(path, "no index") from None
    if written != _hash_of(index):
        raise Damaged(path, "its content is not what was written")
    return index


def _hash_of(index: Mapping[str, Any]) -> str:
    return hash_of([json.dumps(index).encode()])


# ---- mending -------------------------------------------------------------------------------------


def index_at(path: Path) -> dict[str, Any] | None:
    """None where there is none. A damaged one is removed, which is said: what it tells of is made
    again. Raises UserError where it cannot be removed."""
    try:
        return read_index(path)
    except FileNotFoundError:
        return None
    except Damaged as fault:
        say_mended(fault)
        remove(fault, path)
        return None


def array_at(path: Path) -> np.ndarray | None:
    """As `index_at`, of an array."""
    try:
        return read_array(path)
    except FileNotFoundError:
        return None
    except Damaged as fault:
        say_mended(fault)
        remove(fault, path)
        return None


def say_mended(fault: Damaged) -> None:
    print(f"{fault}; it is made again", flush=True)


def unmendable(fault: Damaged) -> UserError:
    """For a file that was removed, and that only a new start makes again."""
    return UserError(f"{fault} and was removed: start again, it is made again")


def remove(fault: Damaged, *paths: Path) -> None:
    """Removes files, a folder in the place of one too. Raises UserError."""
    for path in paths:
        try:
            if path.is_dir() and not path.is_symlink():
                path.rename(path.with_name(f"{path.name}.folder"))
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(
                f"{fault} and cannot be removed ({error.strerror or error}): remove {path}"
            ) from None
