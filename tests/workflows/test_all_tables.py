"""Every table of the papers on small files in the official layouts, of the first rows and of a few
steps each: planned, and run to its end.

All of them, each in minutes: pytest tests/workflows/test_all_tables.py -m soak
"""

import os
import re
import subprocess
import sys

import pytest

from tests.helpers import table_data
from xlingjax.cli import main
from xlingjax.config import gin_files

pytestmark = pytest.mark.long
TABLES = sorted(path.stem for path in (gin_files.gin_folder() / "recipes/tables").glob("*.gin"))
QUICK = ("unicoder_3", "xlm_4", "xlm_5")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return table_data.write(tmp_path_factory.mktemp("tables"))


def line(name, found, output):
    words = ["table", name, "--data", found["data"], "--to", str(output), "--smoke"]
    # Of which a CPU makes quicker programs.
    words += ["--platform", "cpu", "--gin.DTYPE=float32"]
    return [*words, *table_data.macros(name, found)]


@pytest.mark.parametrize("name", TABLES)
def test_nothing_of_it_is_refused(name, found, tmp_path, capsys):
    status = main.main([*line(name, found, tmp_path / "out"), "--dry-run"])
    printed = capsys.readouterr().out
    assert status == 0, printed
    *_, last = printed.strip().splitlines()
    trained, measured, refused = re.match(
        r"([\d,]+) trainings, (\d+) measured rows and commands, (\d+) refused; ", last
    ).groups()
    assert refused == "0" and (trained, measured) != ("0", "0")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.soak) for name in TABLES],
)
def test_it_runs_to_its_end(name, found, tmp_path):
    # Without the eight devices of the tests.
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    done = subprocess.run(
        [sys.executable, "-m", "xlingjax", *line(name, found, tmp_path / "out")],
        env=os.environ | {"XLA_FLAGS": flags},
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    pages = [(tmp_path / "out/smoke" / page).is_file() for page in ("card.md", "table.md")]
    assert any(pages)
