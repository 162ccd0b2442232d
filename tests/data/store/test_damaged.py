"""Caches that are damaged in any way are made again, with a line."""

import numpy as np
import pytest

from tests.data.store.test_blocks import sentences, text_file
from tests.helpers.damage import damage, files_below, seeded, until
from xlingjax.data.rows import reader as planned
from xlingjax.data.rows.reader import RowPlan
from xlingjax.data.store import blocks, tokenise
from xlingjax.data.store.blocks import text_blocks
from xlingjax.data.text.sources import find_text
from xlingjax.preprocessors.xlm import MlmFeatures
from xlingjax.runtime import checked_file


@pytest.fixture
def text(tmp_path, monkeypatch, vocabulary, own_cache):
    """(opens text of several shards and blocks, reads all of it)."""
    for module in (tokenise, blocks):
        monkeypatch.setattr(module, "SHARD_LINES", 40)
    monkeypatch.setattr(planned, "FEW_LINES", 1)
    for name, lines in {
        "long": sentences(130),
        "s1": sentences(9, 1),
        "s2": sentences(9, 2),
    }.items():
        text_file(tmp_path / f"{name}.de.txt", lines)
    files = find_text(str(tmp_path / "*.txt"))

    def opened():
        # As a process of its own.
        monkeypatch.setattr(checked_file, "_checked", set())
        monkeypatch.setattr(planned, "OPENED", planned.Opened())
        return RowPlan(MlmFeatures(), 16, vocabulary).open(text_blocks(files, vocabulary))

    def read(rows):
        whole = rows.text.records()
        parts = [whole.sides[0].ids, whole.sides[0].lengths, rows.text.counts(), rows.counts]
        for number in range(len(rows.text.blocks)):
            block = rows.block(number)
            parts += [block.splits, block.slices.view(np.uint8), rows.ids(number, 0)]
        return [np.array(part) for part in parts]

    return opened, read


def test_a_token_cache_damaged_anywhere_gives_the_same_rows(text, tmp_path, capsys):
    opened, read = text
    expected = read(opened())
    folder = tmp_path / "cache"
    kinds = set()
    for number in until(2):
        draw = seeded(number)
        files = files_below(folder)
        # Before it is opened, and while a run reads it.
        rows = None
        if draw.integers(2):
            rows = opened()
        done = damage(files[draw.integers(len(files))], draw)
        kinds.add(done.partition(": ")[2])
        for got, right in zip(read(rows or opened()), expected, strict=True):
            np.testing.assert_array_equal(got, right, err_msg=f"{number}: {done}")
        said = capsys.readouterr().out.splitlines()
        assert all(line.endswith("; it is made again") for line in said), said
    # The last damage may be of what was read before it: the next start finds it.
    read(opened())
    capsys.readouterr()
    # Whole again, and nothing is said.
    read(opened())
    assert not capsys.readouterr().out
    print(f"{number + 1} damages of the token cache")
