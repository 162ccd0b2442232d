"""Files that show their own damage: arrays (`.npy` with a hash behind) and JSON with a hash in it.

Each is hashed when a process first opens it. XXH3 (128 bits) hashes faster than disks read; it
holds against decay and half copies, not against people who mean harm. What the system refuses
(no more open files, no permission, a disk that answers with an error) is an OSError and no damage.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from xlingjax.runtime.files import parsed_json, replaced

WHOLE_BYTES = 1 << 16  # a smaller file is read whole: a map of each would keep many files open
_HASH_BYTES = 16
_HASH = "xxh3"

_checked: set[tuple[str, int, int, int]] = set()  # whole arrays: (path, inode, size, ctime)


class Damaged(Exception):
    """A file is not what was written."""

    def __init__(self, path: Path, why: str):
        super().__init__(f"{path} is damaged ({why})")
        self.path = path


def hash_of(*parts: Any) -> str:
    """Of the bytes of the parts, one after the other (32 hexadecimal digits)."""
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def file_hash(path: Path) -> str:
    """Of a file's bytes. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


def write_array(path: Path, array: np.ndarray) -> None:
    """Write whole or not at all. Raises OSError."""
    write_parts(path, array.dtype, array.shape, [array])


def write_parts(
    path: Path, dtype: np.dtype, shape: tuple[int, ...], parts: Iterable[np.ndarray]
) -> None:
    """Write an array whose parts come one after the other. Raises OSError."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header,
        {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape},
    )
    digest = xxhash.xxh3_128(header.getvalue())
    with replaced(path) as file:
        file.write(header.getvalue())
        for part in parts:
            # As bytes: an array of structures is no buffer.
            content = np.ascontiguousarray(part, dtype).reshape(-1).view(np.uint8)
            file.write(content)
            digest.update(content)
        file.write(digest.digest())


def read_array(path: Path) -> np.ndarray:
    """The array, read-only, mapped where large. Raises Damaged, OSError (FileNotFoundError)."""
    try:
        status = os.stat(path)
        if status.st_size <= WHOLE_BYTES:
            # Not by NumPy, which takes an error of the disk for the file's end.
            content = np.frombuffer(path.read_bytes(), np.uint8)
        else:
            # An ordinary array over the map: NumPy's own class for maps takes longer to index.
            content = np.asarray(np.memmap(path, np.uint8, "r"))
    except NotADirectoryError:
        raise FileNotFoundError(2, "it is missing", str(path)) from None
    except IsADirectoryError:
        raise Damaged(path, "a folder") from None
    state = (str(path), status.st_ino, status.st_size, status.st_mtime_ns)
    written = content[-_HASH_BYTES:].tobytes()
    if state not in _checked:
        if xxhash.xxh3_128_digest(content[:-_HASH_BYTES]) != written:
            raise Damaged(path, "its content is not what was written")
        _checked.add(state)
    header = io.BytesIO(content[:WHOLE_BYTES].tobytes())
    np.lib.format.read_magic(header)
    shape, _, dtype = np.lib.format.read_array_header_1_0(header)
    return content[header.tell() : -_HASH_BYTES].view(dtype).reshape(shape)


def write_index(path: Path, index: Mapping[str, Any]) -> None:
    """Write JSON with a hash, whole or not at all. Raises OSError."""
    # Round-trip through JSON so that tuples become lists.
    index = json.loads(json.dumps(index))
    with replaced(path) as file:
        file.write(json.dumps(index | {_HASH: _hash_of(index)}).encode())


def read_index(path: Path) -> dict[str, Any]:
    """What `write_index` wrote. Raises Damaged, and OSError: FileNotFoundError without one."""
    try:
        index = parsed_json(path.read_bytes())
        written = index.pop(_HASH)
    except NotADirectoryError:
        raise FileNotFoundError(2, "it is missing", str(path)) from None
    except (ValueError, LookupError, TypeError, AttributeError, IsADirectoryError):
        raise Damaged(path, "no index") from None
    if written != _hash_of(index):
        raise Damaged(path, "its content is not what was written")
    return index


def _hash_of(index: Mapping[str, Any]) -> str:
    return hash_of(json.dumps(index).encode())
