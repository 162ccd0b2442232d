"""Hashes of a checkpoint's files: written before the checkpoint has its name, checked before it is
read.

`checkpoints/STEP/ITEM/hashes.json` names each file of the item with its size and hash. Of files and
not of arrays: a file is the same whatever the mesh and the number of processes that read it, or
read a part of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from orbax.checkpoint.path import atomicity

from xlingjax.runtime.files import is_of_system, parsed_json
from xlingjax.runtime.hashes import file_hash

HASHES = "hashes.json"
_LATE = ("_CHECKPOINT_METADATA", "commit_success.txt")
"""Orbax writes them once more, with the time, when a checkpoint gets its name."""
_THREADS = 8
"""That read at a time."""


class HashedPath(atomicity.AtomicRenameTemporaryPath):
    """Where Orbax writes a folder until it is whole. Its hashes are there before it gets its
    name."""

    async def finalize(self) -> None:
        await asyncio.to_thread(write_hashes, Path(self.get()))
        await super().finalize()


def write_hashes(folder: Path) -> None:
    """Writes those of the files of an item's folder; of the folder of a step nothing, as its items
    have theirs. Raises OSError."""
    if any(folder.glob(f"*/{HASHES}")):
        return
    files = _files(folder)
    hashes = {}
    for name, value in zip(files, _mapped(file_hash, files), strict=True):
        hashes[name] = [files[name].stat().st_size, value]
    text = json.dumps(hashes, indent=0)
    (folder / HASHES).write_text(text, encoding="utf-8")


def damage(item: Path, process: int = 0, processes: int = 1) -> str:
    """What is wrong with the files of a checkpoint's item; "": nothing, or it is of a version that
    wrote no hashes. Of several processes each looks at its share of the files. Raises OSError where
    the system does not let it look."""
    path = item / HASHES
    if not path.exists():
        return ""
    try:
        written = parsed_json(path.read_text(encoding="utf-8"))
        sizes = {name: int(size) for name, (size, _) in written.items()}
        hashes = {name: str(value) for name, (_, value) in written.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        if is_of_system(error):
            raise
        return f"{path} is damaged"
    # Those that are there: a name in a damaged table may lead anywhere.
    there = _files(item)
    for name in sorted(written):
        if name not in there:
            return f"{item / name} is missing"
        size = there[name].stat().st_size
        if size != sizes[name]:
            return f"{item / name} has {size:,} bytes of {sizes[name]:,}"
    share = {name: there[name] for name in sorted(written)[process::processes]}
    found = _mapped(_readable_hash, share)
    for name, value in zip(share, found, strict=True):
        if value != hashes[name]:
            return f"{item / name} has other bytes than were written"
    return ""


def _readable_hash(path: Path) -> str:
    try:
        return file_hash(path)
    except OSError as error:
        if is_of_system(error):
            raise
        return f"{error}"


def _mapped(function: Callable[[Path], str], files: Mapping[str, Path]) -> Any:
    # Neither reading nor hashing holds Python's lock.
    with ThreadPoolExecutor(_THREADS) as threads:
        return [*threads.map(function, files.values())]


def _files(folder: Path) -> dict[str, Path]:
    """{name below the folder: file}."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in (HASHES, *_LATE):
            files[path.relative_to(folder).as_posix()] = path
    return files
