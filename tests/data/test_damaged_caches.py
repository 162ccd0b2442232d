"""Caches that are damaged in any way are made again, with a line; frozen batches are refused."""

import shutil

import numpy as np
import pytest

from tests.data.test_blocks import sentences, text_file
from tests.data.test_frozen import batches
from tests.helpers.damage import damage, files_below, seeded, until
from xlingjax.data import blocks, row_plans, sealed, token_cache, tokenise
from xlingjax.data.blocks import text_blocks
from xlingjax.data.features import batch_hash
from xlingjax.data.frozen import frozen_source, read_header, write_frozen
from xlingjax.data.loader import array_source
from xlingjax.data.row_plans import RowPlan
from xlingjax.data.text.sources import find_text
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


def test_frozen_batches_damaged_anywhere_are_refused_or_the_same(tmp_path):
    data = batches(3)
    hashes = [batch_hash(batch) for batch in data]
    whole = write_frozen(array_source(data, languages=("de", "en")), tmp_path / "whole", 3)
    path = tmp_path / "run.frozen"
    refused = 0
    for number in until(1):
        draw = seeded(number)
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True) if not path.is_dir() else None
        shutil.copy(whole, path)
        done = damage(path, draw)
        try:
            source = frozen_source(path)
            read = [batch_hash(source.next()) for _ in range(3)]
            assert read == hashes and source.languages == ("de", "en"), done
        except UserError as error:
            refused += 1
            assert str(path) in str(error) and "\n" not in str(error), done
    assert refused > number / 2
    print(f"{number + 1} damages of frozen batches")


def test_an_absurd_shape_in_frozen_batches_takes_no_memory(tmp_path):
    import io
    import zipfile

    path = write_frozen(array_source(batches(1)), tmp_path / "run.frozen", 1)
    header = read_header(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    head = io.BytesIO()
    description = {"descr": "<i4", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_1_0(head, description)
    members["00000000/labels.npy"] = head.getvalue() + bytes(64)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert header["batches"] == 1
    with pytest.raises(UserError, match="batch 0: an array of shape .1000000000000000,. in"):
        frozen_source(path)
