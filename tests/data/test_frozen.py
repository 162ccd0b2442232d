import errno
import io
import json
import zipfile

import numpy as np
import pytest

from xlingjax.config.corpus import corpus
from xlingjax.data.features import FIELDS, batch_hash, batch_shapes
from xlingjax.data.frozen import frozen_source, read_header, write_frozen
from xlingjax.data.loader import array_source
from xlingjax.errors import UserError


def batches(count=3):
    rng = np.random.default_rng(0)
    shapes = batch_shapes(
        ("input_ids", "pack_ids", "masked_weights", "labels"), batch=8, length=6, slots=2
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
        array_source(data, languages=("de", "en")), tmp_path / "deep" / "run.frozen", 5
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


def changed(path, **members):
    """The file with other members: {name without its ending: bytes, or a change of the header}."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    for name, member in members.items():
        if isinstance(member, dict):
            content[f"{name}.json"] = json.dumps(json.loads(content[f"{name}.json"]) | member)
        else:
            content[f"00000000/{name}.npy"] = member
    with zipfile.ZipFile(path, "w") as archive:
        for name, member in content.items():
            archive.writestr(name, member)
    return path


def test_headers_and_shapes_that_no_file_has(tmp_path):
    path = write_frozen(array_source(batches()), tmp_path / "run.frozen", 3)
    for identity, why in (
        ({"options": [1]}, "identity.options is no table"),
        ({"sampling_table": "x"}, "identity.sampling_table is no list"),
        ({"sampling_table": [{"name": 3}]}, r"sampling_table\[0\].name is 3"),
    ):
        with pytest.raises(UserError, match=f"not a complete file .*{why}"):
            read_header(changed(path, header={"identity": identity}))
    write_frozen(array_source(batches()), path, 3)
    # NumPy's own header, of a shape whose product is 0.
    member = io.BytesIO()
    table = {"descr": "<i4", "fortran_order": False, "shape": (0, 2**70)}
    np.lib.format.write_array_header_1_0(member, table)
    with pytest.raises(UserError, match="not a complete file .*batch 0: "):
        frozen_source(changed(path, labels=member.getvalue())).next()


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    source = array_source(batches())
    source.identity = {"options": ["a user's own"]}
    with pytest.raises(UserError, match="cannot be frozen: identity.options is no table; leave"):
        write_frozen(source, tmp_path / "run.frozen", 3)
    assert not any(tmp_path.iterdir())


def test_a_file_that_the_system_does_not_let_one_read_is_not_damaged(tmp_path, monkeypatch):
    path = write_frozen(array_source(batches()), tmp_path / "run.frozen", 3)

    def refuse(path):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(zipfile, "ZipFile", refuse)
    with pytest.raises(UserError, match="run.frozen: Too many open files; raise the limit"):
        read_header(path)


def test_a_folder_without_frozen_batches_is_named(tmp_path):
    with pytest.raises(UserError, match=rf"no frozen batches at {tmp_path}/\*.frozen; write"):
        corpus(frozen=str(tmp_path)).languages  # noqa: B018 - reads the header
