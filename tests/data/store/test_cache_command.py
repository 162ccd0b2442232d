"""`xlingjax cache`: one process, several, and Beam's workers write the same shards."""

import shutil

import pytest

from tests.helpers.files import write
from xlingjax.cli.main import run
from xlingjax.data.store.entries import cache_root
from xlingjax.data.store.tokenise import SHARD_LINES
from xlingjax.errors import UserError

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def files(tmp_path):
    lines = "".join(f"{i} Hund\n" for i in range(SHARD_LINES + 5))
    write(tmp_path / "text/de/a.txt", lines)
    write(tmp_path / "pairs/de-en.de", "Ja.\nNein.\n")
    write(tmp_path / "pairs/de-en.en", "Yes.\nNo.\n")
    return tmp_path


def command(files, vocabulary_folder, *more):
    text = ["--mono", f"{files}/text", "--parallel", f"{files}/pairs"]
    return run(["cache", *text, "--vocabulary", str(vocabulary_folder), *more])


def shards():
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for path in (cache_root() / "tokens").rglob("*.*")
    }


def test_processes_and_what_is_said(files, vocabulary_folder, capsys):
    assert command(files, vocabulary_folder, "--processes", "1") == 0
    assert "3 files: " in capsys.readouterr().out
    one = shards()
    assert sum(name.endswith("/ids.npy") for name in one) == 4
    with pytest.raises(UserError, match="nothing to tokenise: give --mono or --parallel"):
        run(["cache", "--vocabulary", str(vocabulary_folder)])


@pytest.mark.long
def test_beams_workers_write_the_bytes_of_one_process(files, vocabulary_folder):
    pytest.importorskip("apache_beam")
    command(files, vocabulary_folder, "--processes", "1")
    one = shards()
    shutil.rmtree(cache_root())
    command(files, vocabulary_folder, "--runner", "Direct", "--workers", "2")
    assert shards() == one
    # A file at fault is named, though a worker met it.
    write(files / "text/de/b.txt", b"schl\xe4ft\n")
    with pytest.raises(UserError, match="b.txt, line 1: invalid UTF-8"):
        command(files, vocabulary_folder, "--runner", "Direct")
