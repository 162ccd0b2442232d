import zipfile

import numpy as np
import pytest

from xlingjax.data.features import FIELDS, batch_hash, batch_shapes
from xlingjax.data.frozen import frozen_source, read_header, write_frozen
from xlingjax.data.loader import array_source
from xlingjax.errors import UserError


def batches(count=3):
    rng = np.random.default_rng(0)
    shapes = batch_shapes(
        ("input_ids", "pack_ids", "masked_weights", "labels"),
        batch=8,
        length=6,
        slots=2,
    )
    return [
        {n: rng.integers(0, 9, s).astype(FIELDS[n].dtype) for n, s in shapes.items()}
        for _ in range(count)
    ]


def test_frozen_batches_are_bitwise_the_originals(tmp_path):
    data = batches(5)
    data[1]["input_ids"][0, 0] = 250_001
    data[2]["masked_weights"][0, 0] = 0.5
    path = write_frozen(
        array_source(data, languages=("de", "en")),
        tmp_path / "deep" / "run.frozen",
        5,
    )
    source = frozen_source(path)
    assert source.languages == ("de", "en") and source.shapes["input_ids"] == (8, 6)
    for expected in [*data, data[0]]:
        batch = source.next()
        assert batch_hash(batch) == batch_hash(expected)
        assert all(array.dtype == FIELDS[name].dtype for name, array in batch.items())
    assert read_header(path)["hashes"] == [batch_hash(batch) for batch in data]


def test_position_is_exact_and_a_finite_source_ends(tmp_path):
    data = batches(4)
    path = write_frozen(array_source(data), tmp_path / "run.frozen", 4)
    first = frozen_source(path, epochs=1)
    first.next(), first.next(), first.next()
    second = frozen_source(path, epochs=1)
    second.restore(first.state())
    assert batch_hash(second.next()) == batch_hash(data[3])
    assert first.identity == second.identity
    with pytest.raises(StopIteration):
        second.next()
    second.close()


def test_clear_errors(tmp_path):
    with pytest.raises(UserError, match="no frozen batches at .*missing"):
        frozen_source(tmp_path / "missing")
    (tmp_path / "torn").write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(UserError, match="torn is not a complete file"):
        frozen_source(tmp_path / "torn")
    with pytest.raises(UserError, match="ended after 3 batches"):
        write_frozen(array_source(batches(3), epochs=1), tmp_path / "short", 5)
    assert not list(tmp_path.glob("short*"))
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(UserError, match="cannot write frozen batches"):
        write_frozen(array_source(batches()), blocker / "x", 1)
    with zipfile.ZipFile(tmp_path / "old", "w") as archive:
        archive.writestr("header.json", '{"version": 0}')
    with pytest.raises(UserError, match="version 0"):
        frozen_source(tmp_path / "old")


def test_small_integers_are_stored_small(tmp_path):
    batch = {"pack_ids": np.ones((64, 256), np.int32), "labels": np.arange(64, dtype=np.int32)}
    path = write_frozen(array_source([batch]), tmp_path / "small", 1)
    assert path.stat().st_size < 4096
    assert frozen_source(path).next()["labels"].tolist() == list(range(64))
