"""Frozen batches: a run's data as one file, read without TensorFlow or a vocabulary.

The file is a zip archive: `header.json`, then one compressed `.npy` per field and batch. Integers
are stored in the narrowest type that holds them and given back in the type of `features.FIELDS`, so
a batch hashes the same as before.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from xlingjax.data.features import FIELDS, batch_hash
from xlingjax.data.loader import BatchSource, CountedSource
from xlingjax.errors import UserError
from xlingjax.runtime.files import is_of_system, parsed_json, refused_by_system
from xlingjax.runtime.records import ANY, NUMBER, misfit

VERSION = 1
MOST_BYTES = 1 << 31
"""Of one field of a batch."""
_HEADER = {
    "version": int,
    "batches": int,
    "fields": [str],
    "languages": [str],
    "identity": {
        "options?": {str: ANY},
        "sampling_table?": [
            {
                "name": str,
                "sentences": int,
                "tokens": int,
                "rows": int,
                "share": NUMBER,
                "epochs_per_1000_steps": NUMBER,
            }
        ],
    },
    "hashes": [str],
}
_DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    KeyError,
    ArithmeticError,
    ValueError,
    TypeError,
    SyntaxError,
    EOFError,
    RuntimeError,
    MemoryError,
    OSError,
)
"""What reading a damaged archive raises, by where it is damaged: its list, a member, an array's
header."""


def _member(index: int, name: str) -> str:
    return f"{index:08d}/{name}.npy"


def _narrow(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in "iu" or array.size == 0:
        return array
    lowest = np.min_scalar_type(array.min())
    highest = np.min_scalar_type(array.max())
    # Of a signed lowest and an unsigned highest, the narrowest type that holds both.
    return array.astype(np.promote_types(lowest, highest))


def write_frozen(source: BatchSource, path: str | os.PathLike, batches: int) -> Path:
    """Writes the next `batches` batches of `source` to `path` (its folder is made) and returns the
    path.

    The file appears under its name only when it is complete. The source must hold all rows of a
    batch. Raises UserError when it does not, when it ends early, or when the folder cannot be
    written.
    """
    path = Path(path)
    # In the same folder, since renaming is atomic only within one file system.
    partial = path.with_name(path.name + ".partial")
    hashes: list[str] = []
    header = {
        "version": VERSION,
        "batches": batches,
        "fields": sorted(source.shapes),
        "languages": list(source.languages),
        "identity": source.identity,
        "hashes": hashes,
    }
    # What could not be read again.
    if wrong := misfit(header, _HEADER):
        raise UserError(
            f"batches of this source cannot be frozen: {wrong}; leave that out of its identity"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            for index in range(batches):
                try:
                    batch = source.next()
                except StopIteration:
                    raise UserError(
                        f"the data source ended after {index} batches, {batches} were asked for"
                    ) from None
                _write_batch(archive, index, batch, source.shapes)
                # Of the batch as given, not as stored: what is read back has the wide types again.
                hashes.append(batch_hash(batch))
            # Last, since the hashes are known only now; a zip is read from its end.
            archive.writestr("header.json", json.dumps(header))
        os.replace(partial, path)
    except OSError as error:
        raise UserError(
            f"cannot write frozen batches to {path}: {error.strerror or error}; choose another"
            " --output"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    return path


def _write_batch(
    archive: zipfile.ZipFile,
    index: int,
    batch: dict[str, np.ndarray],
    shapes: dict[str, tuple[int, ...]],
) -> None:
    for name, array in batch.items():
        # The other axes may be shorter, where rows are batched by length.
        if len(array) != shapes[name][0]:
            raise UserError("frozen batches need whole batches: read the source on one host")
        # Through memory, since the archive takes a member's bytes at once.
        buffer = io.BytesIO()
        np.save(buffer, _narrow(array), allow_pickle=False)
        archive.writestr(_member(index, name), buffer.getvalue())


def read_header(path: str | os.PathLike) -> dict:
    """The header of a file of frozen batches: batches, fields, languages, identity, hashes. Raises
    UserError."""
    try:
        with zipfile.ZipFile(path) as archive:
            header = parsed_json(_content(archive, "header.json"))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"no frozen batches at {path}; write them with `xlingjax freeze`") from None
    # A file that was copied in part has no end, and with it no list of members.
    except _DAMAGES as error:
        raise _unreadable(path, "", error) from None
    wrong = misfit(header, {"version": int})
    if wrong:
        raise _damaged(path, f"its header: {wrong}")
    if header["version"] != VERSION:
        raise UserError(
            f"{path} has frozen-batch version {header['version']}, this program reads {VERSION};"
            " write it again"
        )
    wrong = misfit(header, _HEADER)
    unknown = []
    if not wrong:
        unknown = [name for name in header["fields"] if name not in FIELDS]
    if unknown:
        wrong = f"the field {unknown[0]!r} is unknown"
    elif not wrong and not 0 < header["batches"] == len(header["hashes"]):
        wrong = "batches and hashes are not as many"
    if wrong:
        raise _damaged(path, f"its header: {wrong}")
    return header


def _unreadable(path: str | os.PathLike, where: str, error: Exception) -> UserError:
    """For an error of `_DAMAGES`."""
    why = f"{error or type(error).__name__}"
    if isinstance(error, OSError):
        # Of a file that cannot be looked into nothing is known, and writing it again may be no
        # remedy.
        if is_of_system(error):
            error.filename = os.fspath(path)
            return UserError(refused_by_system(error))
        why = error.strerror or why
    return _damaged(path, f"{where}{why}")


def _damaged(path: str | os.PathLike, why: str) -> UserError:
    why = (why.splitlines() or [""])[0][:200]
    return UserError(
        f"{path} is not a complete file of frozen batches ({why}); write it again with `xlingjax"
        " freeze`"
    )


def _content(archive: zipfile.ZipFile, member: str) -> bytes:
    """A member's bytes, of which the archive has a checksum. Raises what is in `_DAMAGES`."""
    # What it unpacks to is told beforehand: a small file may claim any memory.
    if archive.getinfo(member).file_size > MOST_BYTES:
        raise ValueError(f"{member} claims more than {MOST_BYTES:,} bytes")
    return archive.read(member)


def _array(content: bytes) -> np.ndarray:
    """The array of an `.npy`. Raises ValueError before memory is taken for a shape that the bytes
    have not."""
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("another version of arrays")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    size = dtype.itemsize
    for length in shape:
        size *= length
    if size != len(content) - file.tell():
        raise ValueError(f"an array of shape {shape} in {len(content):,} bytes")
    file.seek(0)
    return np.load(file, allow_pickle=False)


class _FrozenSource(CountedSource):
    def __init__(self, path: str | os.PathLike, header: dict, epochs: int | None):
        # Kept open, since each batch is read when it is asked for; `close` ends it.
        self._archive = zipfile.ZipFile(path)

        def read(index: int) -> dict[str, np.ndarray]:
            batch = {}
            try:
                for name in header["fields"]:
                    stored = _array(_content(self._archive, _member(index, name)))
                    batch[name] = stored.astype(FIELDS[name].dtype)
            except _DAMAGES as error:
                raise _unreadable(path, f"batch {index}: ", error) from None
            # The archive's checksums are of members, whichever stands under which name.
            if batch_hash(batch) != header["hashes"][index]:
                raise _damaged(path, f"batch {index} is not what was written")
            return batch

        # What was frozen is the identity, and nothing of the path: a copied file continues the same
        # run.
        identity = {
            **header["identity"],
            "frozen": header["hashes"][0],
            "frozen_batches": header["batches"],
        }
        super().__init__(
            read, header["batches"], languages=header["languages"], identity=identity, epochs=epochs
        )

    def close(self) -> None:
        self._archive.close()


def frozen_source(path: str | os.PathLike, *, epochs: int | None = None) -> BatchSource:
    """A source over the file that `write_frozen` wrote, repeated `epochs` times (None: for ever).
    Raises UserError."""
    return _FrozenSource(path, read_header(path), epochs)
