"""Every sentence of SECURITY.md: the docstring of a test."""

import io
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import fake_run
from xlingjax.config import recipe as recipes
from xlingjax.convert.formats import checkpoints, tensors
from xlingjax.data.text import files, sources
from xlingjax.errors import UserError
from xlingjax.report.build import build_report
from xlingjax.runtime.quiet import Printed
from xlingjax.runtime.records import read_npy, read_record

HEAD = 'include "recipes/xlm_tiny.gin"\nLANGUAGES = "de en"\nVOCABULARY_SIZE = 80\n'


@pytest.fixture
def here(tmp_path, monkeypatch):
    """With a module that tells that it was imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "of_a_stranger", raising=False)
    (tmp_path / "of_a_stranger.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    yield tmp_path


class Running:
    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_config(here):
    """A run's `config.gin` binds names of xlingjax to values; a module in it is imported, and an
    address in it read, with `--trust` alone."""
    (here / "run").mkdir()
    config = here / "run" / "config.gin"
    for line in ("corpus.tasks = 'of_a_stranger'", "import of_a_stranger", "MONO = 's3://x/y'"):
        config.write_text(f"{HEAD}{line}\n")
        with pytest.raises(UserError, match="this file came with a run, and has"):
            recipes.read_recipe([str(config)], ())
        recipes.read_recipe([str(config)], (), trust=True)
    config.write_text(f"{HEAD}corpus.tasks = @seqio.get_mixture_or_task()\n")
    with pytest.raises(UserError, match="is no name of xlingjax's recipes"):
        recipes.read_recipe([str(config)], ())


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "x.pth", "model_state.pdparams"])
def test_pickles(here, name):
    """A pickle (`.bin`, `.pt`, `.pth`, `.pdparams`) is read for tensors and plain values, and
    refused if it holds more."""
    pytest.importorskip("torch")
    path = here / name
    path.write_bytes(pickle.dumps({"model": Running(), "params": {}}, protocol=2))
    read = checkpoints.open_arrays if name.endswith("pdparams") else tensors.unpickled
    with pytest.raises(UserError, match="refused"):
        read(path)
    assert not Path("ran").exists()


def test_arrays(here):
    """Arrays (`.npy`) are read without pickles."""
    np.save(here / "x.npy", np.array([Running()], object))
    with pytest.raises(UserError, match="missing or damaged"):
        read_npy(here / "x.npy", "mend it")
    assert not Path("ran").exists()


def test_code_of_models(here):
    """Python files and `auto_map` in a model's folder are never imported."""
    transformers = pytest.importorskip("transformers")
    from xlingjax.convert.formats import hugging_face, parity

    auto = {"auto_map": {"AutoModel": "of_a_stranger.X", "AutoConfig": "of_a_stranger.X"}}
    (here / "config.json").write_text(json.dumps({"model_type": "theirs", **auto}))
    with pytest.raises(UserError):
        hugging_face.read(here)
    with pytest.raises(UserError, match="transformers cannot open"):
        parity.opened(here, transformers, "states")
    assert not Path("ran").exists()


def test_reports(here):
    """A report is made of a run's data, escaped, without scripts, and fetches nothing."""
    evil = '<script src="http://x"></script><!--><meta http-equiv="refresh" content="0;url=//x">'
    run = fake_run.write_run(here / "run")
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"languages": [evil], "labels": [evil]}))
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(result | {"exit_reason": evil}))
    (run / "config.gin").write_text(evil)
    (run / "rows.html").write_text(evil)
    page = build_report(run).read_text()
    assert "&lt;script" in page and "default-src 'none'" in page
    assert not re.search(r"<script|<!-->|refresh\"|<link|<iframe|<object", page)
    shown = re.sub(r"&lt;.*?&gt;", "", page)
    assert not re.search(r"(src|href|url\()\s*=?\s*[\"']?(https?:)?//", shown)


def test_names(here, monkeypatch):
    """The index of a model's shards, and a store's names, lead to no file outside their folder."""
    index = here / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"x": "../secret"}}')
    with pytest.raises(UserError, match="which is no file of its folder"):
        tensors.open_tensors(here)
    monkeypatch.setenv("XLINGJAX_CACHE", str(here / "cache"))
    with pytest.raises(UserError, match="leads out of the folder"):
        sources._copy(None, "http", "x/../../../y")


def test_stores():
    """Of stores (`s3://`, `https://`) those are read that are on a list, without fsspec's chains
    and templates."""
    for address in ("reference://x", "zip://a::https://b/c.zip", "ftps://x/y"):
        with pytest.raises(UserError, match="no store that is read"):
            sources.fetched(address)


def test_terminals():
    """Control characters in what is printed are shown, not obeyed."""
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    printed = Printed(stream)
    print("\x1b[2J\x9bA\r", end="", file=printed, flush=True)
    assert stream.buffer.getvalue() == rb"\x1b[2J\x9bA\x0d"


def test_lines(here, monkeypatch):
    """A line of text has at most 64 MiB, whatever an archive unpacks to."""
    assert files.LONGEST_LINE == 64 << 20
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 20)
    files.write_as_named(here / "x.zst", [b"x" * (2 << 20)])
    with pytest.raises(UserError, match="line 1: over 1 MiB without an end of a line"):
        list(files.read_lines(here / "x.zst"))


def test_damage(here):
    """A damaged file is refused in one line."""
    # Of every reader: the tests named fuzz, and test_damaged_runs.
    (here / "run.json").write_text('{"a')
    with pytest.raises(UserError) as refused:
        read_record(here / "run.json", {}, "mend it")
    assert len(str(refused.value).splitlines()) == 1


def test_recipes(here):
    """A gin file that you name has imported what it says."""
    (here / "mine.gin").write_text(f"{HEAD}import of_a_stranger\n")
    recipes.read_recipe(["mine.gin"], ())
    assert Path("ran").exists()


def test_modules(here):
    """`python -m xlingjax` has Python import from the folder you are in, so start it as `xlingjax`
    in a stranger's."""
    subprocess.run([sys.executable, "-m", "of_a_stranger"], check=True)
    assert Path("ran").exists()


def test_every_sentence_has_a_test():
    text = (Path(__file__).parents[1] / "SECURITY.md").read_text()
    sentences = {" ".join(one.split()) for one in re.findall(r"^- (.+)$", text, re.M)}
    tests = [one for name, one in globals().items() if name.startswith("test_")]
    docstrings = {" ".join(one.__doc__.split()) for one in tests if one.__doc__}
    assert sentences == docstrings
