"""Batches of labelled rows: in any order, and by length."""

import collections

import numpy as np
import pytest

from tests.preprocessors import test_task
from tests.preprocessors.test_task import LANGUAGES, Hashed
from xlingjax.data.batches import labelled
from xlingjax.data.features import batch_hash
from xlingjax.data.row_lengths import row_lengths
from xlingjax.preprocessors.parts import task_source
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import Training
from xlingjax.tasks import task_named

folder = test_task.folder
TRANSLATED = Training(("en",), ("all",))
SETS = {
    "xnli": (Reading(24), TRANSLATED),
    "plug_in": (Reading(24, reset_positions=True), Training((), ("all",))),
    "udpos": (Reading(7), Training(("all",))),
    "xquad": (Reading(20, stride=6, max_question=8), TRANSLATED),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path / "cache"))


def source(folder, name, reading, training, batch_size=8, seed=3, **options):
    paired = name == "plug_in"
    task = task_named(f"xtreme/{'xnli' if paired else name}")
    options |= dict(batch_size=batch_size, seed=seed, paired=paired)
    return task_source(task, folder, training, Hashed(), LANGUAGES, reading, **options)


@pytest.mark.parametrize("name", SETS)
def test_an_epoch_is_every_row_once_and_goes_on_exactly(folder, name):
    made = source(folder, name, *SETS[name])
    rows = made.identity["examples"]
    texts = 1 + (name == "plug_in")
    batches = [made.next() for _ in range(2 * rows)]  # of eight rows: sixteen epochs
    counts = cells(batches, texts)
    assert sum(counts.values()) == 16 * rows and {count % 16 for count in counts.values()} == {0}
    again = source(folder, name, *SETS[name])
    assert again.identity == made.identity
    again.restore(5)
    assert batch_hash(again.next()) == batch_hash(batches[5])
    other = source(folder, name, *SETS[name], seed=4)
    assert batch_hash(other.next()) != batch_hash(batches[0])


def cells(batches, texts=1):
    """{what a row holds without its padding: how often}."""
    found = collections.Counter()
    for batch in batches:
        columns = batch["pack_ids"].reshape(len(batch["pack_ids"]), texts, -1)
        for i, valid in enumerate(columns > 0):
            row = []
            for _, values in sorted(batch.items()):
                if values.ndim == 1:
                    row.append(values[i].tobytes())
                else:
                    row.append(values[i].reshape(texts, -1)[valid].tobytes())
            found[b"".join(row)] += 1
    return found


@pytest.mark.parametrize("name", SETS)
def test_by_length_an_epoch_is_every_row_once_and_shorter(folder, name):
    reading, training = SETS[name]
    texts = 1 + (name == "plug_in")
    plain = source(folder, name, reading, training)
    made = source(folder, name, reading, training, by_length=True)
    assert made.shapes == plain.shapes and made.identity["order"] == "by length"
    assert {key for key in made.identity if made.identity[key] != plain.identity[key]} == {"order"}
    rows = made.identity["examples"]
    # Whole windows, of a quarter of an epoch at most.
    count = made.batches._window * rows
    before = [plain.next() for _ in range(count)]
    batches = [made.next() for _ in range(count)]
    widths = [batch["input_ids"].shape[1] // texts for batch in batches]
    assert {*widths} <= {*row_lengths(reading.length)}
    for batch, width in zip(batches, widths, strict=True):
        used = (batch["pack_ids"].reshape(8 * texts, width) > 0).sum(axis=1).max()
        shorter = [one for one in row_lengths(reading.length) if one < width]
        assert max(shorter, default=0) < used <= width
        for values in batch.values():
            assert values.shape == (8, *[texts * width] * (values.ndim - 1))
    assert cells(batches, texts) == cells(before, texts)
    # A window is a quarter of a small set: neither sorted throughout nor alike in each epoch.
    if len({*widths}) > 1:
        assert (np.diff(widths) < 0).any() and (np.diff(widths) > 0).any()
    hashes = [batch_hash(batch) for batch in batches[:40]]
    assert len({*hashes}) == len(hashes)
    again = source(folder, name, reading, training, by_length=True)
    again.restore(17)
    assert [batch_hash(again.next()) for _ in range(4)] == hashes[17:21]


def test_a_column_of_the_second_text_moves_with_it():
    rows = {
        "pack_ids": np.array([[1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0]]),
        "start_positions": np.array([1]),
        "beside_end_positions": np.array([8]),
    }
    batches = object.__new__(labelled._Batches)
    batches._length = 6
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labelled, "padded_length", lambda tokens, length: tokens)
        cut = batches._cut(rows)
    assert cut["pack_ids"].tolist() == [[1, 1, 0, 0, 1, 1, 1, 1]]
    assert cut["start_positions"].tolist() == [1]
    assert cut["beside_end_positions"].tolist() == [4 + 2]
