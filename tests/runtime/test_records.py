"""Shapes of JSON, and files and lines that have them or not."""

import io
import json

import numpy as np
import pytest

from xlingjax.errors import UserError
from xlingjax.runtime.records import ANY, NUMBER, misfit, read_lines, read_npy, read_record

LINE = {"step": int, "values": {str: NUMBER}, "note?": (None, str)}


@pytest.mark.parametrize(
    "value, wrong",
    [
        ({"step": 3, "values": {"a": 1.5, "b": None, "c": 2}}, ""),
        ({"step": 3, "values": {}, "note": None, "more": []}, ""),
        ({"step": 3, "values": {}, "note": "x"}, ""),
        ([], "it is no table"),
        ({"values": {}}, "step is missing"),
        ({"step": "3", "values": {}}, 'step is "3"'),
        ({"step": True, "values": {}}, "step is true"),
        ({"step": 3, "values": [1]}, "values is no table"),
        ({"step": 3, "values": {"a": "x"}}, 'values.a is "x"'),
        ({"step": 3, "values": {"a": float("nan")}}, "values.a is NaN"),
        ({"step": 3, "values": {"a": False}}, "values.a is false"),
        ({"step": 3, "values": {}, "note": 1}, "note is 1"),
    ],
)
def test_what_of_a_value_has_not_the_shape(value, wrong):
    assert misfit(value, LINE) == wrong


def test_lists_and_anything():
    assert misfit({"all": [float("inf"), True, {}]}, {"all": ANY}) == ""
    assert misfit(["a", 1], [str]) == "[1] is 1"
    assert misfit({"x": [{"y": 0}, {}]}, {"x": [{"y": int}]}) == "x[1].y is missing"
    assert misfit("a", [str]) == "it is no list"


def test_a_file_is_refused_by_its_name_and_place(tmp_path):
    path = tmp_path / "run.json"
    with pytest.raises(FileNotFoundError):
        read_record(path, {"step": int}, "mend it")
    for content, wrong in (
        (b'{"step": 1}', None),
        (b'{"step": ', "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{\n"step": "\xff"}', "line 2: not UTF-8"),
        (b"[]", "it is no table"),
        (b'{"step": NaN}', "step is null"),
        (b'{"step": 1, "a": "\\ud83d"}', "not valid JSON (half a surrogate pair)"),
    ):
        path.write_bytes(content)
        if wrong is None:
            assert read_record(path, {"step": int}, "mend it") == {"step": 1}
            continue
        with pytest.raises(UserError) as refused:
            read_record(path, {"step": int}, "mend it")
        line = str(refused.value)
        assert line.startswith(str(path)) and wrong in line and line.endswith("; mend it")
        assert "\n" not in line
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match="cannot be read .Is a directory.; mend it"):
        read_record(path, {"step": int}, "mend it")


def test_an_array_is_read_through_a_map_or_refused(tmp_path):
    path = tmp_path / "x.npy"
    for array in (np.arange(6).reshape(2, 3), np.zeros(0, np.int32), np.zeros((0, 4))):
        np.save(path, array)
        np.testing.assert_array_equal(read_npy(path, "mend it"), array)
    np.save(path, np.arange(6))
    content = path.read_bytes()
    absurd = content.replace(b"(6,), }          ", b"(600000000000,), }")
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], object))
    # Python that is parsed: a bracket that is not closed, and too many.
    broken = [content.replace(b"(6,), }", end) for end in (b"(6,), [", b"(6,)(} ")]
    archive = io.BytesIO()
    np.savez(archive, np.arange(6))
    for damaged in (
        *broken,
        archive.getvalue(),
        b"",
        content[:50],
        content[:-1],
        absurd[: len(content)],
        pickled.getvalue(),
    ):
        assert damaged != content
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=f"{path} is missing or damaged .*; mend it"):
            read_npy(path, "mend it")


def test_damaged_lines_are_refused_or_left_out_by_their_numbers(tmp_path):
    path = tmp_path / "lines.jsonl"
    assert read_lines(path, LINE) == []
    good = {"step": 1, "values": {"a": 0.5}}
    content = [json.dumps(good).encode(), b"\xff", b"[1]", b'{"step": 2, "values": {"a": NaN}}']
    path.write_bytes(b"\n".join(content) + b'\n{"step": 3, "val')
    said = []
    lines = read_lines(path, LINE, say=said.append)
    # The last line is that of a process that was killed: nothing is said of it.
    assert lines == [good, {"step": 2, "values": {"a": None}}]
    assert said == [
        f"{path} line 2: not UTF-8; left out",
        f"{path} line 3: it is no table; left out",
    ]
    with pytest.raises(UserError, match="line 2: not UTF-8; put the line back, or remove it"):
        read_lines(path, LINE)
