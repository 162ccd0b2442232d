"""Arrays and indices of the caches: every damage is told, and nothing is allocated for it."""

import json

import numpy as np
import pytest

from xlingjax.data.sealed import Damaged, is_whole, read_array, read_index, write_array, write_index

ARRAYS = {
    "small": np.arange(7, dtype=np.uint16),
    "empty": np.zeros(0, np.int32),
    "mapped": np.arange(40_000, dtype=np.int32).reshape(2, -1),
    "structured": np.array([(1, 2), (3, 4)], [("a", np.uint8), ("b", np.uint32)]),
}


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
        assert not is_whole(path)
        with pytest.raises(Damaged):
            read_array(path)
    path.write_bytes(content + b"x")
    assert not is_whole(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_array(path)
    path.mkdir()
    with pytest.raises(Damaged):
        read_array(path)


@pytest.mark.parametrize("shape", ["(10**15,)", "(1000000000000,)", "(-5,)", "(1 << 62, 8)", "7"])
def test_an_absurd_shape_takes_no_memory(tmp_path, shape):
    text = f"{{'descr': '<i4', 'fortran_order': False, 'shape': {shape}, }}"
    head = text.ljust(117).encode() + b"\n"
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(48))
    with pytest.raises(Damaged):
        read_array(path)
    assert not is_whole(path)


def test_an_array_of_objects_is_none(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.array([{}, []], object), allow_pickle=True)
    with pytest.raises(Damaged):
        read_array(path)


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
    for other in (b"", b"[]", b"3", b"{}", b'{"xxh3": 1}', b"[" * 100_000, content[:-5]):
        path.write_bytes(other)
        with pytest.raises(Damaged):
            read_index(path)
    changed = json.loads(content) | {"mean": 0.2}
    path.write_text(json.dumps(changed))
    with pytest.raises(Damaged):
        read_index(path)
