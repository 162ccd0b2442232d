"""Names, outputs and disks that are refused; JSON of any depth."""

import errno
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.data.conftest import write_lines
from tests.helpers.processes import started
from xlingjax.cli import main
from xlingjax.convert.formats.tensors import open_tensors, unpickled
from xlingjax.data.text.sources import expand
from xlingjax.errors import UserError
from xlingjax.runtime import files


def test_an_output_is_no_input(tmp_path):
    source = write_lines(tmp_path / "a.txt", ["x"])
    (tmp_path / "link").symlink_to(source)
    files.require_apart(tmp_path / "b.txt", {"--input": source, "--gold": None})
    for output in (source, tmp_path / "link", tmp_path / "." / "a.txt"):
        with pytest.raises(UserError, match="is the file of --input: name another one"):
            files.require_apart(output, {"--input": source})


@pytest.mark.parametrize(
    "words",
    [
        "encode {r} --language de --input {f}.npy --to {f}",
        "align {r} --stem {f} --languages de en --to {f}.de",
        "words {r} --dictionary de-en={f}.en --to {f}.en",
    ],
)
def test_no_verb_writes_over_what_it_reads(words, tmp_path, capsys):
    for ending in (".npy", ".de", ".en", ".de-en.tsv"):
        write_lines(tmp_path / f"f{ending}", ["x"])
    # The run is not there, and it is not asked for.
    assert main.main(words.format(r=tmp_path / "none", f=tmp_path / "f").split()) == 2
    assert " is the file of --" in capsys.readouterr().err
    assert {path.read_text() for path in tmp_path.iterdir()} == {"x\n"}


def test_names_that_no_message_could_have(tmp_path, capsys):
    bad = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
    with open(bad, "w") as file:
        file.write("x\n")
    with pytest.raises(UserError, match=r"caf\\udce9.txt: this name is not UTF-8; rename"):
        expand(str(tmp_path / "*.txt"))
    assert main.main(["data", "check", "--mono", f"de={bad}"]) == 2
    assert "caf\\udce9.txt: this name is not UTF-8" in capsys.readouterr().err


def test_what_a_killed_process_left_goes_with_the_next_file(tmp_path):
    path = tmp_path / "v[1].npy"
    script = (
        "import os, pathlib, sys; from xlingjax.runtime.files import replaced\n"
        "with replaced(pathlib.Path(sys.argv[1])) as file:\n"
        "    file.write(b'x'); file.flush(); print('begun', flush=True); input()\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    piped = {"stdin": subprocess.PIPE}
    with started(command, **piped) as one, started(command, **piped) as other:
        assert one.stdout.readline() == other.stdout.readline() == "begun\n"
        other.kill()
        other.wait()
        assert len([*tmp_path.iterdir()]) == 2
        files.write_bytes(path, b"y")
        assert {*tmp_path.iterdir()} == {path, tmp_path / f"v[1].npy.{one.pid}.partial"}
        one.communicate("\n")
    assert [*tmp_path.iterdir()] == [path] and path.read_bytes() == b"x"


# ---- disks and limits ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number, remedy",
    [
        (errno.ENOSPC, "No space left on device; make room"),
        (errno.EFBIG, "File too large; raise the limit on the size of files (ulimit -f)"),
        (errno.EMFILE, "Too many open files; raise the limit on open files (ulimit -n)"),
        (errno.ENAMETOOLONG, "File name too long; choose a shorter name"),
        (errno.EISDIR, "Is a directory; a file is needed there: move the folder away"),
    ],
)
def test_what_the_system_refuses_any_verb_is_a_line(number, remedy, monkeypatch, capsys):
    def refuse(argv):
        raise OSError(number, os.strerror(number), "/a/file")

    monkeypatch.setattr(main, "run", refuse)
    assert main.main(["doctor"]) == 2
    assert capsys.readouterr().err.startswith(f"error: /a/file: {remedy}")


def test_what_says_that_a_file_could_not_be_read_and_is_not_damaged():
    words = ValueError("Error opening local file: [OS error 24: EMFILE Too many open files]")
    assert files.is_of_system(words) and not files.is_of_system(ValueError("DATA_LOSS"))
    with pytest.raises(ValueError, match="too many"):
        files.parsed_json("[" * 100_000)


def test_a_line_is_appended_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "log"
    files.append_line(path, "eins")

    class Full(io.FileIO):
        """A disk that is full after some bytes."""

        def __init__(self, path, mode, buffering):
            super().__init__(path, mode)

        def write(self, content):
            return super().write(content[:3])

    monkeypatch.setattr(files, "open", Full, raising=False)
    with pytest.raises(OSError, match="No space left"):
        files.append_line(path, "zwei")
    assert path.read_bytes() == b"eins\n"


def test_what_cannot_be_written_is_named_and_no_file_beside_it(tmp_path):
    (tmp_path / "page").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        files.write_text(tmp_path / "page", "x")
    assert caught.value.filename == str(tmp_path / "page")
    assert [path.name for path in tmp_path.iterdir()] == ["page"]
    # Linux's own full disk, of which the error has no name.
    full = Path("/dev/full")
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        files.append_line(full, "x")


# ---- hostile files -------------------------------------------------------------------------------


class Program:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("form", ["bare", "zip", "behind numbers"])
def test_a_pickle_is_not_run_and_nobody_is_told_how_to(form, tmp_path):
    """In the same words with PyTorch and without."""
    path = tmp_path / "model.pt"
    hostile = pickle.dumps({"model": Program(tmp_path / "ran")}, 2)
    if form == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("model/data.pkl", hostile)
    elif form == "behind numbers":
        numbers = [pickle.dumps(number, 2) for number in (0x1950A86A20F9469CFC6C, 1001, {})]
        path.write_bytes(b"".join([*numbers, hostile]))
    else:
        path.write_bytes(hostile)
    with pytest.raises(UserError, match="what a pickle holds it can run: refused") as refused:
        unpickled(path)
    assert not (tmp_path / "ran").exists() and "weights_only" not in str(refused.value)


@pytest.mark.parametrize(
    "header",
    [
        {"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 8]}},
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [2**40, 2**40 + 8]}},
        {"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]}},
    ],
)
def test_shapes_that_no_file_has_are_refused_before_memory_is_taken(header, tmp_path):
    text = json.dumps(header).encode()
    content = struct.pack("<Q", len(text)) + text + bytes(8)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(UserError, match="is no whole safetensors file"):
        open_tensors(tmp_path)


@pytest.mark.parametrize("shard", ["../../x", "/etc/passwd", ""])
def test_an_index_leads_to_no_other_folder(shard, tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": shard}}))
    with pytest.raises(UserError, match="which is no file of its folder"):
        open_tensors(tmp_path)


def test_json_of_bytes_is_utf_8():
    assert files.parsed_json('\ufeff{"a": "ä"}'.encode()) == {"a": "ä"}
    for damaged in (b'"\xed\xa0\xbd"', b'"\xff"', '"ab"'.encode("utf-16-le")):
        with pytest.raises(ValueError, match="codec can't decode|Invalid control"):
            files.parsed_json(damaged)
