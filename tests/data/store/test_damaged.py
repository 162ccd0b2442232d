"""Caches that are damaged in any way are told in a line, and made again by the next start."""

import contextlib

import numpy as np
import pytest

from tests.data.store.test_blocks import sentences, text_file
from tests.helpers.damage import damage, files_below, seeded, until
from tests.helpers.records import whole as records_of
from xlingjax.data.rows import plan as planned
from xlingjax.data.rows.plan import RowPlan
from xlingjax.data.store import tokenise
from xlingjax.data.store.tokenise import text_blocks
from xlingjax.data.text.sources import find_text
from xlingjax.errors import UserError
from xlingjax.preprocessors.xlm import MlmFeatures
from xlingjax.runtime import checked_file


@pytest.fixture
def text(tmp_path, monkeypatch, vocabulary, own_cache):
    """(opens text of several shards and blocks, reads all of it)."""
    monkeypatch.setattr(tokenise, "SHARD_LINES", 40)
    monkeypatch.setattr(planned, "FEW_LINES", 1)
    for name, count in (("long", 130), ("s1", 9)):
        text_file(tmp_path / f"{name}.de.txt", sentences(count))
    files = find_text(str(tmp_path / "*.txt"))

    def opened():
        # As a process of its own.
        monkeypatch.setattr(checked_file, "_checked", set())
        planned.opened_block.cache_clear()
        planned.opened_ids.cache_clear()
        text = text_blocks(files, vocabulary)
        return text, RowPlan(MlmFeatures(), 16, vocabulary).open(text)

    def read(text_and_rows):
        text, rows = text_and_rows
        whole = records_of(text)
        parts = [whole.sides[0].ids, whole.sides[0].lengths, text.counts(), rows.counts]
        for number in range(len(text.blocks)):
            block = rows.block(number)
            parts += [block.splits, block.slices.view(np.uint8), rows.ids(number, 0)]
        return [np.array(part) for part in parts]

    return opened, read


def test_a_token_cache_damaged_anywhere_is_told_and_the_next_start_gives_the_same_rows(
    text, tmp_path, capsys
):
    opened, read = text
    expected = read(opened())
    folder = tmp_path / "cache"
    told = 0
    for number in until(2):
        draw = seeded(number)
        files = files_below(folder)
        # Before it is opened, and while a run reads it.
        rows = opened() if draw.integers(2) else None
        try:
            done = damage(files[draw.integers(len(files))], draw)
        # JSON that was cut short before: of a shard that nobody reads it stays so.
        except ValueError:
            continue
        for _ in range(3):
            try:
                found = read(rows or opened())
                break
            except UserError as error:
                assert str(error).startswith(str(folder)) and "start again" in str(error)
                rows = None
                told += 1
        for got, right in zip(found, expected, strict=True):
            np.testing.assert_array_equal(got, right, err_msg=f"{number}: {done}")
        # It may be of what was read before it: the next starts find it.
        for _ in range(3):
            with contextlib.suppress(UserError):
                read(opened())
    capsys.readouterr()
    # Whole again, and nothing is said.
    read(opened())
    assert not capsys.readouterr().out
    print(f"{number + 1} damages of the token cache, {told} told")
