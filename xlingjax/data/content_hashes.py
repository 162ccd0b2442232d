"""Hashes of files, remembered from run to run, so that a corpus is not read again to know it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import time

from xlingjax.data.store.entries import cache_root
from xlingjax.runtime.files import parsed_json

SMALL_BYTES = 1 << 16  # a smaller file is hashed faster than it is looked up
SETTLED_SECONDS = 2  # seconds without change before a hash is kept: file systems count in steps


def content_hash(path: str | os.PathLike) -> str:
    """sha256 (hex) of a file's bytes, remembered until its size, times or inode change."""
    name = os.path.abspath(path)
    status = os.stat(path)
    # ctime and inode show a file put in another's place with its mtime kept, as by rsync.
    state = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    remembered = _remembered(_file())
    known = remembered.get(name)
    if known and tuple(known[:-1]) == state:
        return known[-1]
    begun = time.time()
    with open(path, "rb") as file:
        # In pieces, so that a file larger than memory has a hash, too.
        made = hashlib.file_digest(file, "sha256").hexdigest()
    if begun - max(status.st_mtime, status.st_ctime) > SETTLED_SECONDS:
        remembered[name] = (*state, made)
        if status.st_size > SMALL_BYTES:
            # Where the cache cannot be written the file is hashed again, and what writes to it says
            # so. One short line each, which several processes may append at a time.
            with contextlib.suppress(OSError):
                os.makedirs(cache_root(), exist_ok=True)
                with open(_file(), "a", encoding="utf-8") as lines:
                    lines.write(json.dumps([name, *remembered[name]]) + "\n")
    return made


def _file() -> str:
    return os.path.join(cache_root(), "hashes.jsonl")


@functools.cache
def _remembered(file: str) -> dict[str, tuple]:
    """{path: (*state, hash)} of this cache folder."""
    known: dict[str, tuple] = {}
    with contextlib.suppress(OSError), open(file, "rb") as lines:
        for line in lines:
            # The last line of a run that was cut off may be half a line.
            with contextlib.suppress(ValueError, TypeError):
                name, *state, made = parsed_json(line)
                known[str(name)] = (*state, str(made))
    return known
