"""Entries of the store: made once, whole or not at all; damaged ones made again; nothing good
deleted."""

import errno
import os
import shutil
import threading

import numpy as np
import pytest

from xlingjax.data.store import entries
from xlingjax.data.store.entries import cache_root, get, has, name_of
from xlingjax.errors import UserError
from xlingjax.runtime import checked_file

pytestmark = pytest.mark.usefixtures("own_cache")
MADE = []
SYSTEM = [errno.EMFILE, errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOMEM, errno.EINTR]


def make(writer):
    MADE.append(1)
    writer.array("numbers", np.arange(50_000, dtype=np.int32))
    writer.parts("parts", np.dtype(np.uint8), 3, [np.array([1]), np.array([2, 3])])
    writer.facts = {"lines": (1, 2)}


@pytest.fixture
def entry(monkeypatch):
    MADE.clear()
    monkeypatch.setattr(checked_file, "_checked", set())
    return get("kind", name_of("a"), make)


def test_an_entry_is_made_once_and_is_named_by_what_it_depends_on(entry):
    assert entry.folder == cache_root() / "kind" / name_of("a")
    assert entry.facts == {"lines": [1, 2]}
    again = get("kind", name_of("a"), make)
    assert len(MADE) == 1 and has("kind", name_of("a")) and not has("kind", name_of("b"))
    np.testing.assert_array_equal(again.array("numbers"), np.arange(50_000))
    assert again.array("parts").tolist() == [1, 2, 3]
    assert [path.name for path in (cache_root() / "kind").iterdir()] == [entry.folder.name]


def test_what_was_not_finished_is_no_entry(entry):
    def fails(writer):
        writer.array("numbers", np.arange(3))
        raise UserError("the text ends here")

    with pytest.raises(UserError, match="the text ends here"):
        get("kind", "b", fails)
    assert not has("kind", "b") and not list(cache_root().rglob("*.partial"))
    # A process that was killed while it made the entry.
    (cache_root() / "kind" / "b.partial").mkdir()
    (cache_root() / "kind" / "b").mkdir()
    get("kind", "b", make)
    assert has("kind", "b") and not list(cache_root().rglob("*.partial"))


@pytest.mark.parametrize("kind", ["flipped", "gone"])
def test_a_damaged_entry_is_removed_which_is_said_and_made_again(entry, kind):
    path = entry.folder / "numbers.npy"
    content = bytearray(path.read_bytes())
    path.unlink()
    if kind == "flipped":
        content[-100] ^= 1
        path.write_bytes(content)
    with pytest.raises(UserError, match=f"{path} is damaged .* and was removed: start again"):
        entry.array("numbers")
    assert not entry.folder.exists()
    again = get("kind", name_of("a"), make)
    np.testing.assert_array_equal(again.array("numbers"), np.arange(50_000))
    assert len(MADE) == 2


def test_a_damaged_index_is_made_again_at_once(entry, capsys):
    (entry.folder / "entry.json").write_text("{}")
    assert get("kind", name_of("a"), make).facts == {"lines": [1, 2]}
    assert capsys.readouterr().out.endswith("it is made again\n") and len(MADE) == 2


def test_an_entry_whose_parts_are_gone_is_none(entry):
    def whole(writer):
        part = get("kind", name_of("a"), make)
        writer.needs = [f"kind/{part.folder.name}"]
        writer.facts = {"lines": 2}

    assert get("whole", "w", whole).facts == {"lines": 2} and has("whole", "w")
    shutil.rmtree(entry.folder)
    assert not has("whole", "w")
    assert get("whole", "w", whole).facts == {"lines": 2} and len(MADE) == 2


@pytest.mark.parametrize("number", SYSTEM)
def test_what_the_system_refuses_is_an_error_and_removes_nothing(entry, number, monkeypatch):
    def refused(path, *_):
        raise OSError(number, os.strerror(number), str(path))

    for name in ("read_array", "read_index"):
        with monkeypatch.context() as patch:
            patch.setattr(entries, name, refused)
            with pytest.raises(OSError, match=os.strerror(number)):
                get("kind", name_of("a"), make).array("numbers")
    assert len(MADE) == 1 and entry.array("numbers").size == 50_000


def test_a_disk_that_is_full_or_in_the_way_is_one_line(tmp_path, monkeypatch):
    def full(writer):
        with entries.written(tmp_path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(
        UserError, match="No space left .* set XLINGJAX_CACHE to a folder with room"
    ):
        get("kind", "b", full)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="cannot write the cache in .*; remove what stands there"):
        get("kind", "b", make)


def test_one_process_makes_an_entry_while_others_wait_for_it(monkeypatch):
    MADE.clear()
    begun, waiting = threading.Event(), threading.Event()
    lines = []

    def said(line, **_):
        lines.append(line)
        waiting.set()

    monkeypatch.setattr(entries, "print", said, raising=False)

    def slow(writer):
        begun.set()
        make(writer)
        assert waiting.wait(timeout=60)

    first = threading.Thread(target=get, args=("kind", "slow", slow))
    first.start()
    begun.wait()
    assert get("kind", "slow", slow).array("parts").size == 3
    first.join()
    assert len(MADE) == 1
    [line] = lines
    assert "waiting for" in line and "which makes it" in line
