"""Every table of the papers, planned on small files in the official layouts."""

import re

import pytest

from tests.helpers import table_data
from xlingjax.cli import main
from xlingjax.config import gin_files
from xlingjax.workflows import launch
from xlingjax.workflows.tasks import sweep

TABLES = sorted((gin_files.gin_folder() / "recipes/tables").glob("*.gin"))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return table_data.write(tmp_path_factory.mktemp("tables"))


@pytest.mark.long
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_nothing_of_it_is_refused(path, found, tmp_path, capsys, monkeypatch):
    # Settings of a grid differ in numbers: one of each row is enough, and VECO's has 45.
    every = sweep._grid
    monkeypatch.setattr(sweep, "_grid", lambda request: every(request)[:1])
    # The small vocabulary has 300 pieces of the models' 250,002.
    monkeypatch.setattr(launch, "check_vocabulary", lambda *_: None)
    words = ["table", path.stem, "--data", found["data"], "--to", str(tmp_path / "out")]
    status = main.main([*words, "--dry-run", *table_data.macros(path.stem, found)])
    printed = capsys.readouterr().out
    assert status == 0, printed
    *_, last = printed.strip().splitlines()
    trained, measured, refused = re.match(
        r"([\d,]+) trainings, (\d+) measured rows and commands, (\d+) refused; ", last
    ).groups()
    assert refused == "0" and (trained, measured) != ("0", "0")
    assert "trainings not counted" not in last
    assert not (tmp_path / "out").exists()
