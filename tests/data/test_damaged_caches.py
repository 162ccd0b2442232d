"""Caches that are damaged in any way are made again, with a line."""

import shutil

import numpy as np
import pytest

from tests.data.test_blocks import sentences, text_file
from tests.helpers.damage import damage, files_below, seeded, until
from xlingjax.data import blocks, row_plans, sealed, token_cache, tokenise
from xlingjax.data.blocks import text_blocks
from xlingjax.data.row_plans import RowPlan
from xlingjax.data.sources import find_text
from xlingjax.errors import UserError
from xlingjax.preprocessors.xlm import MlmFeatures


@pytest.fixture
def text(tmp_path, monkeypatch, vocabulary, own_cache):
    """(opens text of several shards and blocks, reads all of it)."""
    for module in (token_cache, tokenise, blocks):
        monkeypatch.setattr(module, "SHARD_LINES", 40)
    monkeypatch.setattr(row_plans, "FEW_LINES", 1)
    for name, lines in {
        "long": sentences(130),
        "s1": sentences(9, 1),
        "s2": sentences(9, 2),
    }.items():
        text_file(tmp_path / f"{name}.de.txt", lines)
    files = find_text(str(tmp_path / "*.txt"))

    def opened():
        # As a process of its own.
        monkeypatch.setattr(sealed, "_known", set())
        monkeypatch.setattr(row_plans, "OPENED", row_plans.Opened())
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
        for stray in folder.rglob("*.folder"):
            shutil.rmtree(stray)
    # The last damage may be of what was read before it: the next start finds it.
    read(opened())
    capsys.readouterr()
    # Whole again, and nothing is said.
    read(opened())
    assert not capsys.readouterr().out
    print(f"{number + 1} damages of the token cache")


def test_a_flipped_id_is_said_by_its_file(text, tmp_path, capsys):
    opened, read = text
    expected = read(opened())
    path = sorted((tmp_path / "cache" / "tokens").glob("*.00001.ids.npy"))[0]
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)
    rows = opened()
    got = read(rows)
    np.testing.assert_array_equal(got[0], expected[0])
    said = capsys.readouterr().out
    assert said == f"{path} is damaged (its content is not what was written); it is made again\n"


def test_what_only_a_new_start_makes_again_is_removed_and_said(text, tmp_path):
    """As the tokens of a SeqIO task are."""
    import dataclasses

    opened, read = text
    rows = opened()
    alone = dataclasses.replace(rows.text, remake=None)
    path = sorted((tmp_path / "cache" / "tokens").glob("*.00001.ids.npy"))[0]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match=f"{path} is damaged .*and was removed: start again"):
        alone.records()
    assert not path.exists()
