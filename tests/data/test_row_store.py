"""The row store: what is read is what was made; a part is there whole or not at all."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from xlingjax.data.features import FIELDS
from xlingjax.data.row_lengths import padded_length, row_lengths
from xlingjax.data.row_store import RaggedRows, part_folder, read_part, write_part
from xlingjax.errors import UserError

LENGTH = 6


@pytest.fixture
def folder(own_cache):
    return part_folder("a part")


def rows(lengths, texts=1, seed=0):
    """Rows [N, texts * LENGTH] as preprocessors make them, of texts of these lengths."""
    rng = np.random.default_rng(seed)
    used = np.array(lengths).reshape(-1, 1)
    columns = np.arange(LENGTH)
    valid = columns < used
    turn = rng.integers(0, LENGTH + 1, used.shape)
    again = np.where(columns >= np.maximum(turn, 1), np.maximum(turn, 1), 0)
    made = {
        "input_ids": np.where(valid, rng.integers(3, 250_000, valid.shape), 1),
        "position_ids": (columns - again) * valid,
        "pack_ids": valid,
        "sides": valid & (columns >= turn),
        "tag_labels": rng.integers(0, 300, valid.shape) * valid,
        "tag_weights": rng.integers(0, 2, valid.shape) * valid,
    }
    count = len(used) // texts
    found = {
        name: values.reshape(count, texts * LENGTH).astype(FIELDS[name].dtype)
        for name, values in made.items()
    }
    found["labels"] = rng.integers(0, 9, count).astype(np.int32)
    found["example_weights"] = rng.integers(0, 2, count).astype(np.float32)
    return found


def assert_equal(found, expected):
    assert {*found} == {*expected, "language_ids"}
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
        assert found[name].dtype == FIELDS[name].dtype


@pytest.mark.parametrize("texts", [1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_rows_come_back_as_they_were(seed, texts):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, rng.integers(2, LENGTH + 2), 2 * rng.integers(1, 9)).tolist()
    made = rows(lengths, texts, seed)
    ragged = RaggedRows.of(made, LENGTH, pad_id=1)
    everything = np.arange(len(ragged))
    found = ragged.take(everything, LENGTH, (7, 4)[:texts])
    assert_equal(found, made)
    by_text = found["language_ids"].reshape(-1, texts, LENGTH)
    for text in range(texts):
        assert {*by_text[:, text][by_text[:, text] > 0]} <= {(7, 4)[text]}
    assert (found["language_ids"] > 0).tolist() == (made["pack_ids"] > 0).tolist()
    # In another order, and no longer than they need.
    backwards = everything[::-1]
    short = max(lengths)
    found = ragged.take(backwards, short, (7, 4)[:texts])
    for name, values in made.items():
        if values.ndim > 1:
            values = values.reshape(-1, texts, LENGTH)[:, :, :short].reshape(len(values), -1)
        np.testing.assert_array_equal(found[name], values[backwards], err_msg=name)


def test_a_column_of_the_second_text_moves_with_it():
    made = rows([2, 3, 4, 1], texts=2)
    made["start_positions"] = np.array([1, LENGTH], np.int32)
    made["end_positions"] = np.array([LENGTH + 2, 3], np.int32)
    ragged = RaggedRows.of(made, LENGTH, pad_id=1)
    found = ragged.take(np.arange(2), 4, (0, 1))
    assert found["start_positions"].tolist() == [1, 4]
    assert found["end_positions"].tolist() == [4 + 2, 3]


@pytest.mark.parametrize("field", ["position_ids", "sides", "input_ids", "pack_ids"])
def test_rows_of_another_form_are_not_stored_as_if_they_had_it(field):
    made = rows([3, 5])
    # Behind the text, before it begins anew, or a hole within it.
    made[field][0, {"pack_ids": 1}.get(field, 4)] = {"pack_ids": 0}.get(field, 9)
    with pytest.raises(ValueError, match="cannot be stored"):
        RaggedRows.of(made, LENGTH, pad_id=1)


def store(folder, *chunks):
    write_part(folder, (RaggedRows.of(one, LENGTH, 1) for one in chunks), {"records": 9})


def test_a_part_is_written_in_chunks_and_mapped(folder):
    first, second = rows([2] * 20_000), rows([5, 1, 6], seed=1)
    assert read_part(folder) is None
    store(folder, first, second)
    part = read_part(folder)
    assert part.facts == {"records": 9} and len(part.rows) == 20_003
    ids = part.rows.arrays["input_ids"]
    assert ids.size == 40_012 and not ids.flags.writeable  # a map of the file
    assert_equal(part.rows.take(np.arange(20_000, 20_003), LENGTH, (0,)), second)
    one_chunk = {name: np.concatenate([first[name], second[name]]) for name in first}
    store(part_folder("the same in one"), one_chunk)
    assert read_part(part_folder("the same in one")).digest == part.digest
    store(part_folder("another"), first, rows([5, 1, 6], seed=2))
    assert read_part(part_folder("another")).digest != part.digest


def damage(path, how):
    if how == "cut":
        os.truncate(path, path.stat().st_size - 1)
    elif how == "gone":
        path.unlink()
    elif how == "flipped":
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    else:
        path.write_text("[1]")


@pytest.mark.parametrize(
    ("name", "how", "fault"),
    [
        ("input_ids.bin", "cut", r"input_ids.bin has 27 bytes of 28"),
        ("labels.bin", "gone", r"labels.bin: No such file"),
        ("part.json", "gone", r"part.json is missing"),
        ("part.json", "other", r"part.json is not what was written"),
        ("part.json", "cut", "part.json is not what was written"),
        ("input_ids.bin", "flipped", "input_ids.bin has other bytes than were written"),
        ("part.json", "flipped", "part.json is not what was written"),
    ],
)
def test_damage_is_seen(folder, name, how, fault):
    store(folder, rows([3, 4]))
    damage(folder / name, how)
    with pytest.raises(ValueError, match=fault):
        read_part(folder)


def test_what_is_cut_off_leaves_nothing_and_who_is_slower_takes_the_others(folder):
    def cut_off():
        yield RaggedRows.of(rows([3]), LENGTH, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_part(folder, cut_off(), {})
    assert not [*folder.parent.iterdir()]

    def slower():
        store(folder, rows([3, 4]))
        yield RaggedRows.of(rows([5]), LENGTH, 1)

    write_part(folder, slower(), {})
    assert len(read_part(folder).rows) == 2 and [*folder.parent.iterdir()] == [folder]


def test_what_a_killed_process_left_is_deleted(folder):
    folder.parent.mkdir(parents=True)
    code = (
        "import os, signal, sys; from pathlib import Path; import tests.data.test_row_store as t\n"
        "def chunks():\n"
        "    yield t.RaggedRows.of(t.rows([3]), t.LENGTH, 1)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "t.write_part(Path(sys.argv[1]), chunks(), {})\n"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=False)
    assert [path.name.endswith(".partial") for path in folder.parent.iterdir()] == [True]
    store(folder, rows([3, 4]))
    assert [*folder.parent.iterdir()] == [folder]


def test_no_room_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="cannot write the rows of tasks in .*Not a directory; set"):
        store(part_folder("a part"), rows([3]))


@pytest.mark.parametrize(
    ("length", "lengths"),
    [
        (128, (16, 32, 48, 64, 80, 96, 112, 128)),
        (384, (48, 96, 144, 192, 240, 288, 336, 384)),
        (100, (16, 32, 48, 64, 80, 96, 100)),
        (24, (16, 24)),
        (8, (8,)),
    ],
)
def test_a_few_lengths(length, lengths):
    assert row_lengths(length) == lengths
    for tokens in range(1, length + 1):
        assert padded_length(tokens, length) == min(one for one in lengths if one >= tokens)


def test_the_meta_is_json_that_tells_the_files(folder):
    store(folder, rows([3, 4]))
    meta = json.loads((folder / "part.json").read_text())
    for name, (dtype, size) in meta["arrays"].items():
        assert (folder / f"{name}.bin").stat().st_size == size * np.dtype(dtype).itemsize
