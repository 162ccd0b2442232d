"""The store: what is made of files once and kept from run to run, below `$XLINGJAX_CACHE`.

An entry is a folder of arrays and of one index with facts. Its name is the hash of all that it
depends on, so that nothing in it ever changes. It is made by one process at a time, beside its
place, and gets its name when it is whole. Each file has one hash, which is checked when a process
first opens it; a damaged entry is removed, which is said, and the next start makes it again. What
the system refuses (no more open files, no permission, a disk that answers with an error) is an
error, and removes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.errors import UserError
from xlingjax.runtime.checked_file import (
    Damaged,
    read_array,
    read_index,
    write_array,
    write_index,
    write_parts,
)
from xlingjax.runtime.lock import holder, take

_INDEX = "entry.json"


def cache_root() -> Path:
    """`$XLINGJAX_CACHE`, by default `~/.cache/xlingjax`. Raises UserError without a home."""
    try:
        return Path(os.environ.get("XLINGJAX_CACHE") or "~/.cache/xlingjax").expanduser()
    except RuntimeError:
        raise UserError(
            "no home folder: HOME is not set, and this user has no entry in passwd; set"
            " XLINGJAX_CACHE to a folder for what is kept from run to run"
        ) from None


def name_of(*identity: Any) -> str:
    """The name of an entry that depends on these values of JSON."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]


class Writer:
    """What an entry is made with."""

    def __init__(self, folder: Path):
        self._folder = folder
        self.facts: dict[str, Any] = {}
        self.needs: list[str] = []
        """Other entries, KIND/NAME, without which this one is none."""

    def array(self, name: str, array: np.ndarray) -> None:
        with written(self._folder):
            write_array(self._folder / f"{name}.npy", array)

    def parts(self, name: str, dtype: np.dtype, size: int, parts: Iterable[np.ndarray]) -> None:
        """An array [size] of which the parts come one after the other."""
        with written(self._folder):
            write_parts(self._folder / f"{name}.npy", dtype, (size,), parts)


Make = Callable[[Writer], None]


@dataclass(frozen=True)
class Entry:
    """An entry of the store."""

    folder: Path
    facts: Mapping[str, Any]

    def array(self, name: str) -> np.ndarray:
        """See `read`."""
        return read(self.folder, name)


def folder_of(kind: str, name: str) -> Path:
    return cache_root() / kind / name


def get(kind: str, name: str, make: Make) -> Entry:
    """The entry, made now where there is none. name: see `name_of`. Raises UserError, OSError."""
    folder = folder_of(kind, name)
    facts = _facts(folder)
    if facts is None:
        with written(folder.parent):
            folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            # Another process may have made it meanwhile.
            facts = _facts(folder)
            if facts is None:
                facts = _make(folder, make)
    return Entry(folder, facts)


def has(kind: str, name: str) -> bool:
    """Whether the store has the entry; a damaged one is removed, which is said."""
    return _facts(folder_of(kind, name)) is not None


def read(folder: Path, name: str) -> np.ndarray:
    """An array of an entry, read-only, through a memory map where it is large. Raises UserError
    where it is damaged or missing, and removes the entry; and OSError."""
    path = folder / f"{name}.npy"
    try:
        return read_array(path)
    except (Damaged, FileNotFoundError) as error:
        fault = error if isinstance(error, Damaged) else Damaged(path, "it is missing")
        _remove(folder, fault)
        raise UserError(
            f"{fault} and was removed: start again, it is made again; if this comes back, set"
            " XLINGJAX_CACHE to another disk"
        ) from None


def _facts(folder: Path) -> dict[str, Any] | None:
    """None: there is no such entry, or one that it needs is gone. Raises OSError."""
    try:
        facts = read_index(folder / _INDEX)
    except FileNotFoundError:
        return None
    except Damaged as fault:
        _remove(folder, fault)
        print(f"{fault}; it is made again", flush=True)
        return None
    needs = facts.pop("needs", ())
    return facts if all((cache_root() / one / _INDEX).exists() for one in needs) else None


def _remove(folder: Path, fault: Damaged) -> None:
    # Out of the way in one step: half an entry must not be found.
    aside = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}.removed")
    try:
        folder.rename(aside)
        if aside.is_dir():
            shutil.rmtree(aside)
        else:
            aside.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(
            f"{fault} and cannot be removed ({error.strerror or error}): remove {folder}"
        ) from None


def _make(folder: Path, make: Make) -> dict[str, Any]:
    partial = folder.with_name(f"{folder.name}.partial")
    with written(folder.parent):
        # Of a process that was killed.
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
    try:
        writer = Writer(partial)
        make(writer)
        with written(folder.parent):
            write_index(partial / _INDEX, {**writer.facts, "needs": writer.needs})
            # What stands there is no whole entry.
            if folder.exists():
                shutil.rmtree(folder)
            # As they will be read again: JSON has no tuples.
            facts = read_index(partial / _INDEX)
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    del facts["needs"]
    return facts


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While one process makes an entry, others wait for it."""
    path = folder.with_name(f"{folder.name}.lock")
    told = False
    while (lock := take(path)) is None:
        if not told:
            told = True
            print(f"{folder}: waiting for {holder(path)}, which makes it", flush=True)
        time.sleep(0.1)
    with lock:
        yield


@contextlib.contextmanager
def written(folder: Path) -> Iterator[None]:
    """Around writing to the store. Raises UserError where the disk refuses."""
    try:
        yield
    except OSError as error:
        # Another folder would be no remedy: the command line says what is.
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        remedy = "set XLINGJAX_CACHE to a folder with room"
        if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.ELOOP):
            remedy = "remove what stands there, or set XLINGJAX_CACHE to another folder"
        raise UserError(
            f"cannot write the cache in {folder}: {error.strerror or error}; {remedy}"
        ) from None
