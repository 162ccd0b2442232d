"""Hashes that tell a damaged file from a whole one: XXH3 (128 bits), which takes less time than
reading does. They hold against decay and half copies, not against people who mean harm."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import xxhash

CHUNK_BYTES = 1 << 20


def hash_of(parts: Iterable[Any]) -> str:
    """Of the bytes of the parts, one after the other (32 hexadecimal digits)."""
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def file_hash(path: Path, start: int = 0, size: int | None = None) -> str:
    """Of a file's bytes from `start` on, `size` of them or as many as there are. Raises OSError."""
    digest = xxhash.xxh3_128()
    # In pieces that stay in the processor's cache, so that no memory is taken.
    buffer = memoryview(bytearray(CHUNK_BYTES))
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        left = size
        while count := file.readinto(buffer[:left]):
            digest.update(buffer[:count])
            if left is not None:
                left -= count
    return digest.hexdigest()
