"""Arrays and JSON with hashes: every damage is noticed, and what the system refuses is none."""

import builtins
import errno
import os

import numpy as np
import pytest

from xlingjax.runtime import checked_file
from xlingjax.runtime.checked_file import (
    Damaged,
    file_hash,
    hash_of,
    read_array,
    read_index,
    write_array,
    write_index,
)

ARRAYS = {
    "small": np.arange(7, dtype=np.uint16),
    "empty": np.zeros(0, np.int32),
    "mapped": np.arange(40_000, dtype=np.int32).reshape(2, -1),
    "structured": np.array([(1, 2), (3, 4)], [("a", np.uint8), ("b", np.uint32)]),
}

SYSTEM = [errno.EMFILE, errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOMEM, errno.EINTR]


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_comes_back_and_no_bit_of_its_file_may_change(tmp_path, name):
    array = ARRAYS[name]
    path = tmp_path / "x.npy"
    write_array(path, array)
    np.testing.assert_array_equal(read_array(path), array)
    assert read_array(path).dtype == array.dtype
    # NumPy reads it as any other.
    np.testing.assert_array_equal(np.load(path), array)
    assert [file.name for file in tmp_path.iterdir()] == ["x.npy"]
    content = path.read_bytes()
    draw = np.random.default_rng(0)
    ends = [0, 7, 11, 40, 127, len(content) - 1]
    for place in [*ends, *draw.integers(len(content), size=20).tolist()]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(draw.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(Damaged):
            read_array(path)
    for size in (0, 5, 60, len(content) - 17, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(Damaged):
            read_array(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_array(path)
    path.mkdir()
    with pytest.raises(Damaged):
        read_array(path)


def test_a_hash_of_a_file_is_that_of_its_bytes(tmp_path):
    path = tmp_path / "x"
    for content in (b"", b"abc", np.random.default_rng(0).bytes(3 << 20)):
        path.write_bytes(content)
        assert file_hash(path) == hash_of(content) == hash_of(content[:2], content[2:])
    # The specification's own value (XXH3, 128 bits, of nothing).
    assert hash_of() == "99aa06d3014798d86001c324468d497f"


@pytest.mark.parametrize("number", SYSTEM)
def test_what_the_system_refuses_is_no_damage(tmp_path, monkeypatch, number):
    write_array(tmp_path / "small", ARRAYS["small"])
    write_array(tmp_path / "mapped", ARRAYS["mapped"])
    write_index(tmp_path / "index", {"a": 1})

    def refuse(path, *_, **__):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(checked_file, "_checked", set())
    for read, name in ((read_array, "small"), (read_array, "mapped"), (read_index, "index")):
        with monkeypatch.context() as patched:
            for place, function in ((builtins, "open"), (np, "memmap")):
                patched.setattr(place, function, refuse)
            patched.setattr("pathlib.Path.read_bytes", refuse)
            with pytest.raises(OSError) as refused:
                read(tmp_path / name)
            assert refused.value.errno == number
        read(tmp_path / name)


def test_an_index_comes_back_or_is_damaged(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(FileNotFoundError):
        read_index(path)
    index = {"lines": (1, 2), "mean": 0.1, "name": "ü", "deep": {"b": None, "a": [True]}}
    write_index(path, index)
    assert read_index(path) == index | {"lines": [1, 2]}
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(Damaged):
            read_index(path)
    for other in (b"", b"[]", b"{}", b"[" * 100_000, content[:-5]):
        path.write_bytes(other)
        with pytest.raises(Damaged):
            read_index(path)
