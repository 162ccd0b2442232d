"""Hashes that tell a damaged file from a whole one: XXH3 (128 bits), which takes less time than
reading does. They hold against decay and half copies, not against people who mean harm."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import xxhash

CHUNK_BYTES = 1 << 20
_POPULATE_READ = 22
"""Linux's MADV_POPULATE_READ, of 5.14 and later, which Python 3.11 does not name."""


def hash_of(parts: Iterable[Any]) -> str:
    """Of the bytes of the parts, one after the other (32 hexadecimal digits)."""
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def file_hash(path: Path, start: int = 0, size: int | None = None) -> str:
    """Of a file's bytes from `start` on, `size` of them or as many as there are. start: a multiple
    of the system's pages. Raises OSError."""
    digest = xxhash.xxh3_128()
    with open(path, "rb", buffering=0) as file:
        if found := _mapped_hash(file.fileno(), start, size):
            return found
        # In pieces that stay in the processor's cache, so that no memory is taken.
        buffer = memoryview(bytearray(CHUNK_BYTES))
        file.seek(start)
        left = size
        while count := file.readinto(buffer[:left]):
            digest.update(buffer[:count])
            if left is not None:
                left -= count
    return digest.hexdigest()


def _mapped_hash(file: int, start: int, size: int | None) -> str:
    """The same of the pages of the system's cache, which spares half of the time: their copies.
    "": they are few, or the system has them not. file: its descriptor."""
    if sys.platform != "linux":
        return ""
    count = os.fstat(file).st_size - start
    if size is not None:
        count = min(count, size)
    if count < CHUNK_BYTES:
        return ""
    try:
        pages = mmap.mmap(file, count, access=mmap.ACCESS_READ, offset=start)
    except (OSError, ValueError):
        # Of a file system that maps none, of a file that has just become shorter.
        return ""
    with pages, memoryview(pages) as view:
        try:
            # All of them now: a file that cannot be read is an error here,
            # and where a page is read first it would end the process (SIGBUS).
            pages.madvise(_POPULATE_READ)
        except OSError:
            return ""
        return xxhash.xxh3_128_hexdigest(view)
