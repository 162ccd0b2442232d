"""`xlingjax mine` of large files: over disk, killed and begun again, and what it says of itself."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.helpers.small_corpus import ENGLISH, GERMAN, write
from xlingjax.cli import main
from xlingjax.data.text.sources import find_pairs
from xlingjax.data.vocabulary.training import train_vocabulary
from xlingjax.inference import vector_files
from xlingjax.model.build import build_model
from xlingjax.model.config import preset
from xlingjax.training.checkpoint_params import HashedPath
from xlingjax.workflows.files import mine as workflow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run with random weights, and two files with blank and equal lines, and one too long."""
    root = tmp_path_factory.mktemp("mine")
    for code, lines in (("en", ENGLISH), ("de", GERMAN)):
        some = [f"{line} {i}" for i in range(40) for line in lines]
        # Longer than the model's rows, and in the last shard.
        some[-1] += " long" * 200
        write(root / f"text.{code}", [some[0], "", *some, some[3]])
    vocabulary = train_vocabulary(root / "run", mono=str(root / "text.*"), size=80)
    model = build_model(
        preset(
            "tiny",
            layers=1,
            dim=16,
            heads=2,
            ffn=32,
            max_positions=64,
            num_languages=2,
            init_std=1.0,
            vocab_size=vocabulary.size,
            vocab_multiple=16,
        )
    )
    params = jax.jit(model.init)(jax.random.key(3))
    record = {"model": dataclasses.asdict(model.config), "languages": ["de", "en"]}
    (root / "run" / "run.json").write_text(json.dumps(record))
    with ocp.Checkpointer(
        ocp.StandardCheckpointHandler(), temporary_path_class=HashedPath
    ) as writer:
        target = root / "run" / "checkpoints" / "7" / "params"
        writer.save(target, args=ocp.args.StandardSave(params))
    return root


def words(folder, output, *more):
    files = [str(folder / "text.de"), str(folder / "text.en")]
    of_both = ["mine", str(folder / "run"), "--languages", "de", "en", "--files", *files]
    return [*of_both, "--to", str(output), *more]


@pytest.mark.long
def test_all_lists_write_the_table_of_exact_search(folder, tmp_path, capsys, monkeypatch):
    place = len((folder / "text.de").read_text().splitlines()) - 1
    long = f"lines were cut to 64 tokens, the first of them line {place}"
    assert main.main(words(folder, tmp_path / "exact")) == 0
    told = capsys.readouterr().out
    assert ", exact search; vectors kept in " in told and long in told
    monkeypatch.setattr(vector_files, "ROWS", 64)
    # Vectors that memory is not to hold are searched on disk.
    with monkeypatch.context() as patched:
        patched.setattr(workflow, "IN_MEMORY", 1000)
        assert main.main(words(folder, tmp_path / "disk")) == 0
    told = capsys.readouterr().out
    assert ", exact search; vectors kept in " in told and long in told
    on_disk = (tmp_path / "disk.de-en.tsv").read_bytes()
    (tmp_path / "disk.de-en.tsv").unlink()
    lists = ("--search", "ivf", "--lists", "20", "--probes", "20")
    assert main.main(words(folder, tmp_path / "ivf", *lists)) == 0
    told = capsys.readouterr().out
    assert "approximate search (ivf, 20 of 20 lists); vectors kept in " in told
    expected = (tmp_path / "exact.de-en.tsv").read_bytes()
    assert on_disk == expected
    assert (tmp_path / "ivf.de-en.tsv").read_bytes() == expected
    assert len(expected.splitlines()) > 20
    exact, ivf = (
        json.loads((tmp_path / f".{name}.de-en" / "made.json").read_text())
        for name in ("exact", "ivf")
    )
    assert exact["search"] == {"forward": {"kind": "exact"}, "backward": {"kind": "exact"}}
    assert ivf["search"]["forward"]["kind"] == "ivf"
    assert ivf["search"]["forward"]["probes"] == ivf["search"]["backward"]["lists"] == 20
    count = len({*(folder / "text.de").read_text().split("\n")} - {""})
    assert exact["lines"] == ivf["lines"] == [count, count]
    # A pattern for the tables means nothing else.
    assert len(find_pairs(str(tmp_path / "*"))) == len(find_pairs(str(tmp_path))) == 2
    # Other settings of the search read the vectors that are there.
    assert main.main(words(folder, tmp_path / "ivf", *lists, "--margin", "distance")) == 0
    told = capsys.readouterr().out
    assert "lines encoded" not in told
    assert main.main(words(folder, tmp_path / "ivf", *lists, "--layer", "0")) == 0
    assert "lines encoded" in capsys.readouterr().out


@pytest.mark.long
def test_killed_while_it_encodes_it_keeps_whole_shards(folder, tmp_path):
    """A process of its own, killed as the system kills."""
    argv = words(folder, tmp_path / "out", "--search", "ivf", "--lists", "5", "--probes", "5")
    code = """
import os, signal, sys
from xlingjax.cli import main
from xlingjax.inference import vector_files
write, vector_files.ROWS, left = vector_files.write_rows, 32, int(sys.argv[1])
def counted(path, vectors):
    global left
    left -= 1
    if not left:
        path.with_suffix(".partial").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, vectors)
vector_files.write_rows = counted
sys.exit(main.main(sys.argv[2:]))
"""

    def start(stop):
        done = subprocess.run(
            [sys.executable, "-c", code, str(stop), *argv],
            cwd=ROOT,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    beside = tmp_path / ".out.de-en"
    # Of five shards of the first side the fourth.
    assert start(4)[0] == -signal.SIGKILL
    whole = sorted(beside.glob("de-*/de-0*.npy"))
    assert len(whole) == 3
    when = [path.stat().st_mtime_ns for path in whole]
    # Two are left of that side, and five of the other.
    status, told = start(15)
    assert status == 0, told
    assert [path.stat().st_mtime_ns for path in whole] == when
    assert main.main(words(folder, tmp_path / "exact")) == 0
    found = (tmp_path / "out.de-en.tsv").read_bytes()
    assert found == (tmp_path / "exact.de-en.tsv").read_bytes()


def test_options_of_other_uses_are_refused_in_one_line(folder, tmp_path, capsys, monkeypatch):
    def refused(part, *more):
        assert main.main(words(folder, tmp_path / "out", *more)) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert part in line

    refused("--lists, --probes: only --search ivf reads this", "--lists", "3", "--probes", "4")
    refused("'0' is not a whole number above 0", "--search", "ivf", "--probes", "0")
    refused("--search 'scann': choose from exact, ivf", "--search", "scann")
    monkeypatch.setattr("xlingjax.inference.nearest.LARGEST_EXACT", 100)
    refused("sentences: say --search ivf (approximate")
    monkeypatch.setitem(sys.modules, "faiss", None)
    refused("`pip install 'xlingjax[search]'`", "--search", "ivf")
    assert not [*tmp_path.iterdir()]


def test_equal_lines_are_searched_once():
    lines = ["a", "", "b", "a", "", "A"]
    np.testing.assert_array_equal(workflow.distinct(lines), [True, False, True, False, False, True])
