"""Rows of labelled tasks on disk: made once, without their padding, and read through a memory map.

A part (the examples of one language) is a folder below `$XLINGJAX_CACHE/task_rows`, named by the
hash of all that its rows depend on. A row is stored up to its last token; what follows from that
(padding, positions, sides) is a number or nothing. A row that is read in several languages has
several texts side by side, each padded by itself, and each is stored so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.content_hashes import content_hash
from xlingjax.data.features import FIELDS
from xlingjax.data.store.entries import cache_root
from xlingjax.errors import UserError
from xlingjax.runtime.checked_file import Damaged, read_index, write_index
from xlingjax.runtime.numerals import is_whole

FORMAT = 2
"""Part of every name: another form of the files leaves the old ones alone."""
_META = "part.json"
_PARTIAL = ".partial"
_MAPPED_BYTES = 1 << 16
"""A smaller file is read whole: a map of each would be many."""
_HASHED_BYTES = 1 << 26
"""A file of no more is hashed whenever it is opened, which takes a fraction of a second for the
examples of a language. A larger one only where its times tell that it changed since it was hashed
last: a start does not read a store that is mapped because it is large."""
_IDS = np.dtype(np.int32)
_COLUMNS = ("start_positions", "end_positions", "beside_start_positions", "beside_end_positions")
"""Fields that are columns of the row."""
_DERIVED = ("pack_ids", "language_ids")
"""Of every token alike: not stored."""

Rows = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class RaggedRows:
    """Rows without their padding, in memory or mapped.

    arrays: "lengths" uint16[N * H]: the tokens of each text, H of a row; "restarts": the column
    where its positions begin anew, "turns": where side 1 begins (`length`: nowhere); numbers of a
    row [N]; fields of tokens [T], one text behind the other.
    """

    length: int
    """Columns of a text when it is padded."""
    texts: int
    """H: of a row."""
    pad_id: int
    arrays: Rows
    offsets: np.ndarray
    """int64[N * H]: where the tokens of each text begin."""

    @classmethod
    def of(cls, rows: Rows, length: int, pad_id: int, id_dtype: np.dtype = _IDS) -> RaggedRows:
        """The same rows. rows: arrays [N, H * length] and [N]. id_dtype: that their ids fit in.
        Raises ValueError for rows that cannot be stored so."""
        count, width = rows["pack_ids"].shape
        texts = width // length
        valid = rows["pack_ids"].reshape(-1, length) > 0
        lengths = valid.sum(axis=1)
        arrays = {"lengths": lengths.astype(np.uint16)}
        for name, values in rows.items():
            if name in _DERIVED:
                continue
            if values.ndim == 1:
                arrays[name] = values
                continue
            by_text = values.reshape(-1, length)
            if name == "position_ids":
                again = valid & (by_text == 0)
                again[:, :1] = False
                arrays["restarts"] = _first(again)
            elif name == "sides":
                arrays["turns"] = _first(valid & (by_text == 1))
            elif name == "input_ids":
                arrays[name] = by_text[valid].astype(id_dtype)
            else:
                arrays[name] = by_text[valid].astype(_stored(name))
        made = cls(length, texts, pad_id, arrays, _offsets(lengths))
        again = made.take(np.arange(count), length, (0,) * texts)
        for name, values in rows.items():
            # The store says nothing of languages.
            if name == "language_ids":
                continue
            if not np.array_equal(again[name], values):
                raise ValueError(f"rows whose {name} cannot be stored")
        return made

    def __len__(self) -> int:
        return len(self.offsets) // self.texts

    @property
    def longest(self) -> np.ndarray:
        """uint16[N]: tokens of the longest text of each row."""
        return self.arrays["lengths"].reshape(-1, self.texts).max(axis=1)

    def take(
        self, rows: np.ndarray, length: int, language_ids: Sequence[int]
    ) -> dict[str, np.ndarray]:
        """Arrays [n, H * length] and [n] of the rows of these numbers. length: of each text, at
        least that of the longest. language_ids: of the texts of a row."""
        places = (rows[:, None] * self.texts + np.arange(self.texts)).ravel()
        lengths = self.arrays["lengths"][places].astype(np.int64)
        columns = np.arange(length)
        valid = columns < lengths[:, None]
        at = (self.offsets[places][:, None] + columns)[valid]
        shape = (len(rows), self.texts * length)
        languages = np.tile(np.array(language_ids, np.int32), len(rows))
        made = {"pack_ids": valid.astype(np.int32), "language_ids": valid * languages[:, None]}
        for name, stored in self.arrays.items():
            if name == "lengths":
                continue
            if name == "restarts":
                restarts = stored[places].astype(np.int64)[:, None]
                begins = np.where(columns >= restarts, restarts, 0)
                made["position_ids"] = (columns - begins) * valid
            elif name == "turns":
                turns = stored[places].astype(np.int64)[:, None]
                made["sides"] = (columns >= turns) & valid
            elif len(FIELDS[name].shape) == 1:
                made[name] = stored[rows]
            else:
                fill = 0
                if name == "input_ids":
                    fill = self.pad_id
                dense = np.full(valid.shape, fill, FIELDS[name].dtype)
                dense[valid] = stored[at]
                made[name] = dense
        for name in _COLUMNS:
            if name in made:
                # A column of the second text moves with its begin.
                text, column = np.divmod(made[name], self.length)
                made[name] = text * length + column
        for name, values in made.items():
            if len(FIELDS[name].shape) > 1:
                values = values.reshape(shape)
            made[name] = values.astype(FIELDS[name].dtype, copy=False)
        return made


def _first(where: np.ndarray) -> np.ndarray:
    """uint16[N]: the first true column of each row; without one the number of columns."""
    found = np.where(where.any(axis=1), where.argmax(axis=1), where.shape[1])
    return found.astype(np.uint16)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    lengths = lengths.astype(np.int64)
    return np.cumsum(lengths) - lengths


def _stored(name: str) -> np.dtype:
    """How a field of tokens is kept. What does not fit is found by `RaggedRows.of`."""
    if name == "tag_labels":
        return np.dtype(np.uint16)
    # What is 0 or 1.
    return np.dtype(np.uint8)


# --- on disk --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredPart:
    """A part in the store."""

    rows: RaggedRows
    digest: str
    """sha256 (hex) of all of it: equal iff the rows are."""
    facts: Mapping[str, Any]
    """What was written beside the rows."""


def part_folder(key: str) -> Path:
    """Where a part lies. key: all that its rows depend on."""
    name = hashlib.sha256(f"{FORMAT}:{key}".encode()).hexdigest()[:32]
    return cache_root() / "task_rows" / name


def read_part(folder: Path) -> StoredPart | None:
    """What the store has of a part; None: nothing. Raises ValueError where it is damaged: in size
    or, see `_HASHED_BYTES`, in content."""
    try:
        meta = read_index(folder / _META)
    except FileNotFoundError:
        if folder.is_dir():
            raise ValueError(f"{_META} is missing") from None
        return None
    except Damaged:
        raise ValueError(f"{_META} is not what was written") from None
    try:
        arrays = {}
        for name, (dtype, size) in meta["arrays"].items():
            path = folder / f"{name}.bin"
            arrays[name] = _read_array(path, dtype, size)
            _require_content(path, meta["sha256"][name])
        rows = RaggedRows(
            meta["length"], meta["texts"], meta["pad_id"], arrays, _offsets(arrays["lengths"])
        )
        return StoredPart(rows, meta["digest"], meta["facts"])
    except (KeyError, TypeError, AttributeError, OverflowError):
        raise ValueError(f"{_META} is not that of a part") from None


def _require_content(path: Path, digest: str) -> None:
    """Raises ValueError where the file has not this sha256 (hex)."""
    try:
        if path.stat().st_size > _HASHED_BYTES:
            found = content_hash(path)
        else:
            with open(path, "rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(f"{path.name}: {error.strerror or error}") from None
    if found != digest:
        raise ValueError(f"{path.name} has other bytes than were written")


def _read_array(path: Path, dtype: str, size: int) -> np.ndarray:
    """Raises ValueError where the file has not this size."""
    try:
        there = path.stat().st_size
        wanted = size * np.dtype(dtype).itemsize
        if there != wanted:
            raise ValueError(f"{path.name} has {there:,} bytes of {wanted:,}")
        if there <= _MAPPED_BYTES:
            return np.fromfile(path, dtype)
        # An ordinary array over the map: NumPy's own class for maps takes longer to index.
        return np.asarray(np.memmap(path, dtype, mode="r"))
    except OSError as error:
        raise ValueError(f"{path.name}: {error.strerror or error}") from None


class _Writer:
    """Writes the rows of a part, some at a time, into an empty folder."""

    def __init__(self, folder: Path, files: contextlib.ExitStack):
        self._folder = folder
        self._closing = files
        self._files: dict[str, Any] = {}
        self._hashes: dict[str, Any] = {}
        self._arrays: dict[str, tuple[str, int]] = {}
        self._made: RaggedRows | None = None

    def add(self, rows: RaggedRows) -> None:
        for name, values in rows.arrays.items():
            if name not in self._files:
                path = self._folder / f"{name}.bin"
                file = open(path, "wb")  # noqa: SIM115 - closed with the others
                self._files[name] = self._closing.enter_context(file)
                self._hashes[name] = hashlib.sha256()
                self._arrays[name] = (values.dtype.str, 0)
            content = np.ascontiguousarray(values).tobytes()
            self._files[name].write(content)
            self._hashes[name].update(content)
            dtype, size = self._arrays[name]
            self._arrays[name] = (dtype, size + values.size)
        self._made = rows

    def close(self, facts: Mapping[str, Any]) -> None:
        assert self._made is not None
        digests = {name: digest.hexdigest() for name, digest in self._hashes.items()}
        meta = {
            "length": self._made.length,
            "texts": self._made.texts,
            "pad_id": self._made.pad_id,
            "arrays": self._arrays,
        }
        everything = json.dumps([meta, digests], sort_keys=True)
        meta |= {
            "digest": hashlib.sha256(everything.encode()).hexdigest(),
            "facts": dict(facts),
            "sha256": digests,
        }
        self._closing.close()
        write_index(self._folder / _META, meta)


def write_part(folder: Path, chunks: Iterator[RaggedRows], facts: Mapping[str, Any]) -> None:
    """Writes a part whole or not at all; where another process did so meanwhile, its part stays.
    Raises UserError: no room."""
    with storing(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder)
        own = f"{os.getpid()}.{uuid.uuid4().hex[:8]}{_PARTIAL}"
        partial = folder.with_name(_of_machine(folder) + own)
        partial.mkdir()
    try:
        with contextlib.ExitStack() as files:
            writer = _Writer(partial, files)
            for chunk in chunks:
                with storing(folder.parent):
                    writer.add(chunk)
            with storing(folder.parent):
                writer.close(facts)
        with storing(folder.parent):
            _rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    """Deletes what processes of this machine left that were killed while they wrote."""
    begin = _of_machine(folder)
    for path in folder.parent.glob(f"{begin}*{_PARTIAL}"):
        process, _, _ = path.name.removeprefix(begin).partition(".")
        # Of a machine whose name begins with this one's it is more of the name.
        if is_whole(process) and not _is_alive(int(process)):
            shutil.rmtree(path, ignore_errors=True)


def _of_machine(folder: Path) -> str:
    """What the names begin with under which this machine writes a part: several may share the
    disk."""
    return f"{folder.name}.{socket.gethostname()}."


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # It is another user's.
        return True
    return True


def _rename(partial: Path, folder: Path) -> None:
    try:
        os.rename(partial, folder)
    except OSError:
        # A folder that is not empty is not renamed to: another process was faster.
        if not folder.is_dir():
            raise


@contextlib.contextmanager
def storing(folder: Path) -> Iterator[None]:
    """Around writing to the store. Raises UserError where the disk refuses."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write the rows of tasks in {folder}: {error.strerror or error}; set"
            " XLINGJAX_CACHE to a folder with room"
        ) from None


@contextlib.contextmanager
def alone(folder: Path, waits: Callable[[], None]) -> Iterator[None]:
    """While one process makes a part, others wait for it. waits: called by one that does."""
    path = folder.with_name(f"{folder.name}.lock")
    with storing(folder.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path, "w")  # noqa: SIM115 - closed below
    with lock:
        _take(lock, waits)
        try:
            yield
        finally:
            # Who waits for it looks for the part first, so a new lock beside an old one does no
            # harm.
            with contextlib.suppress(OSError):
                path.unlink()


def _take(lock: Any, waits: Callable[[], None]) -> None:
    try:
        import fcntl
    except ImportError:
        # Without locks a part may be made twice, and one of them stays.
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waits()
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        # A file system without locks.
        return
