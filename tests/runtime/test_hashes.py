"""Hashes of files: those of the library's own function, mapped or read."""

import mmap

import numpy as np
import pytest
import xxhash

from xlingjax.runtime import hashes
from xlingjax.runtime.hashes import CHUNK_BYTES, file_hash

CONTENT = np.random.default_rng(0).bytes(3 * CHUNK_BYTES + 5)


class Refusing:
    """A file system that maps nothing, as some of those of users' space."""

    ACCESS_READ = mmap.ACCESS_READ

    @staticmethod
    def mmap(*arguments, **names):
        raise OSError(19, "No such device")


@pytest.mark.parametrize(
    ("name", "value"), [("CHUNK_BYTES", CHUNK_BYTES), ("_POPULATE_READ", 9999), ("mmap", Refusing)]
)
def test_a_file_in_parts_and_whole(tmp_path, monkeypatch, name, value):
    """A system that maps files, one that is too old for it, and files that it does not map."""
    monkeypatch.setattr(hashes, name, value)
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    assert file_hash(path) == xxhash.xxh3_128_hexdigest(CONTENT)
    for start in (0, CHUNK_BYTES, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES):
        for size in (None, 1 << 12, 2 * CHUNK_BYTES, 9 * CHUNK_BYTES):
            end = None if size is None else start + size
            assert file_hash(path, start, size) == xxhash.xxh3_128_hexdigest(CONTENT[start:end])
    path.write_bytes(b"")
    assert file_hash(path) == xxhash.xxh3_128_hexdigest(b"")
    with pytest.raises(OSError, match="No such file"):
        file_hash(tmp_path / "none")
