"""Hashes of a checkpoint's files: written before the checkpoint has its name, checked before it is
read.

`checkpoints/STEP/ITEM/hashes.json` names each file of the item with its size and the hashes of its
blocks. Of files and not of arrays: a file is the same whatever the mesh and the number of processes
that read it, or read a part of it. Of blocks, since most of a checkpoint is one file, which several
cores then read at a time.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orbax.checkpoint.path import atomicity

from xlingjax.runtime.files import is_of_system, parsed_json
from xlingjax.runtime.hashes import file_hash

HASHES = "hashes.json"
_LATE = ("_CHECKPOINT_METADATA", "commit_success.txt")
"""Orbax writes them once more, with the time, when a checkpoint gets its name."""
_THREADS = 4
"""That read at a time."""
_BLOCK_BYTES = 16 << 20


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
    sizes = {name: path.stat().st_size for name, path in files.items()}
    found = _hashes(files, sizes, file_hash)
    hashes = {name: [size, found[name]] for name, size in sizes.items()}
    text = json.dumps(hashes, indent=0)
    (folder / HASHES).write_text(text, encoding="utf-8")


def damage(item: Path, process: int = 0, processes: int = 1) -> str:
    """What is wrong with the files of a checkpoint's item; "": nothing, or no item of the
    checkpoint has hashes. Of several processes each looks at its share of the files. Raises OSError
    where the system does not let it look."""
    path = item / HASHES
    # A link that leads nowhere is there.
    if not os.path.lexists(path):
        # All items have them, or none.
        if item.is_dir() and any(item.parent.glob(f"*/{HASHES}")):
            return f"{path} is missing"
        return ""
    try:
        written = parsed_json(path.read_text(encoding="utf-8"))
        sizes = {name: operator.index(size) for name, (size, _) in written.items()}
        hashes = {name: value for name, (_, value) in written.items()}
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
    for name in there:
        if name not in written:
            return f"{item / name} has no hash in {HASHES}"
    share = {name: there[name] for name in sorted(written)[process::processes]}
    found = _hashes(share, sizes, _readable_hash)
    for name, values in found.items():
        if values != hashes[name]:
            return f"{item / name} has other bytes than were written"
    return ""


def _hashes(
    files: Mapping[str, Path], sizes: Mapping[str, int], function: Callable[[Path, int, int], str]
) -> dict[str, list[str]]:
    """{name: of each block of the file}."""
    blocks = []
    for name in files:
        for start in range(0, sizes[name], _BLOCK_BYTES):
            blocks.append((name, start))

    def hash_of_block(block: tuple[str, int]) -> str:
        name, start = block
        return function(files[name], start, _BLOCK_BYTES)

    found: dict[str, list[str]] = {name: [] for name in files}
    # Neither reading nor hashing holds Python's lock.
    with ThreadPoolExecutor(_THREADS) as threads:
        values = threads.map(hash_of_block, blocks)
        for (name, _), value in zip(blocks, values, strict=True):
            found[name].append(value)
    return found


def _readable_hash(path: Path, start: int, size: int) -> str:
    try:
        return file_hash(path, start, size)
    except OSError as error:
        if is_of_system(error):
            raise
        return f"{error}"


def _files(folder: Path) -> dict[str, Path]:
    """{name below the folder: file}."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in (HASHES, *_LATE):
            files[path.relative_to(folder).as_posix()] = path
    return files
