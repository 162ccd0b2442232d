"""Batches of stored rows: in any order as they always were, and by length."""

import collections
import hashlib
import types

import numpy as np
import pytest

from tests.preprocessors import test_task
from tests.preprocessors.test_task import LANGUAGES, Hashed
from xlingjax.data.features import batch_hash
from xlingjax.data.row_lengths import row_lengths
from xlingjax.preprocessors import row_batches
from xlingjax.preprocessors.task import task_source
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import Training
from xlingjax.tasks import task_named

folder = test_task.folder
TRANSLATED = Training(("en",), ("all",))
# What the code made that kept all rows padded in memory: identity's sha256, 40 batches' (the first
# 16 digits).
BEFORE = {
    "xnli": (Reading(24), TRANSLATED, "7a38df9660f91755", "f07ac655fdef3bfc"),
    "plug_in": (
        Reading(24, reset_positions=True),
        Training((), ("all",)),
        "43af65fd7e578a40",
        "5f8c041257113470",
    ),
    "udpos": (Reading(7), Training(("all",)), "a4a47c47a1f1e1a3", "bddc3ecf30d84d53"),
    "xquad": (
        Reading(20, stride=6, max_question=8),
        TRANSLATED,
        "7aba5c9e330e8dbe",
        "d18608e366094db0",
    ),
}


# Of the batches of three epochs by length: a run that was begun in that order goes on in it.
BY_LENGTH = {
    "xnli": "725b2311201d82d6",
    "plug_in": "c0f32a5e8d84b5e1",
    "udpos": "6df9afb07819547c",
    "xquad": "ebab2cb4f29e0b32",
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XLINGJAX_CACHE", str(tmp_path / "cache"))
    # Rows are hashed a few at a time: what stands at their borders is seen.
    monkeypatch.setattr(row_batches, "_HASHED_ROWS", 7)


def source(folder, name, reading, training, batch_size=8, **options):
    task = {"plug_in": "xnli"}.get(name, name)
    return task_source(
        task_named(f"xtreme/{task}"),
        folder,
        training,
        Hashed(),
        LANGUAGES,
        reading,
        batch_size=batch_size,
        seed=3,
        paired=name == "plug_in",
        **options,
    )


@pytest.mark.parametrize("name", BEFORE)
def test_in_any_order_batches_are_those_of_before_bit_for_bit(folder, name):
    reading, training, rows, batches = BEFORE[name]
    # The second start remembers what it hashed.
    for _ in range(2):
        made = source(folder, name, reading, training)
        digest = hashlib.sha256()
        for _ in range(40):
            digest.update(batch_hash(made.next()).encode())
        assert made.identity["sha256"][:16] == rows and made.identity["order"] == "by part"
        assert digest.hexdigest()[:16] == batches


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


@pytest.mark.parametrize("name", BEFORE)
def test_by_length_an_epoch_is_every_row_once_and_shorter(folder, name):
    reading, training, _, _ = BEFORE[name]
    texts = 1 + (name == "plug_in")
    plain = source(folder, name, reading, training)
    made = source(folder, name, reading, training, by_length=True)
    assert made.shapes == plain.shapes and made.identity["order"] == "by length"
    assert {key for key in made.identity if made.identity[key] != plain.identity[key]} == {
        "order",
        "sha256",
    }
    rows = made.identity["examples"]
    epochs = 3
    count = epochs * rows // 8
    before = [plain.next() for _ in range(count)]
    batches = [made.next() for _ in range(count)]
    widths = [batch["input_ids"].shape[1] // texts for batch in batches]
    assert {*widths} <= {*row_lengths(reading.length)}
    for batch, width in zip(batches, widths, strict=True):
        used = (batch["pack_ids"].reshape(8 * texts, width) > 0).sum(axis=1).max()
        shorter = [one for one in row_lengths(reading.length) if one < width]
        assert max(shorter, default=0) < used <= width
        for field, values in batch.items():
            assert values.dtype == plain.next()[field].dtype
            assert values.shape == (8, *[texts * width] * (values.ndim - 1))
    # Where an epoch ends within a batch the two take the same rows from it.
    assert cells(batches, texts) == cells(before, texts)
    begin = 0
    for epoch in range(1, epochs + 1):
        end = epoch * rows // 8
        assert cells(batches[begin:end], texts) == cells(before[begin:end], texts)
        begin = end
    hashes = [batch_hash(batch) for batch in batches]
    assert len({*hashes}) == len(hashes)
    assert hashlib.sha256("".join(hashes).encode()).hexdigest()[:16] == BY_LENGTH[name]
    # Goes on exactly; another start reads the same.
    again = source(folder, name, reading, training, by_length=True)
    again.restore(17)
    assert [batch_hash(again.next()) for _ in range(4)] == hashes[17:21]


def test_batches_are_of_about_one_length_in_no_order_of_lengths(folder):
    reading, training, _, _ = BEFORE["xnli"]
    reading = Reading(64)

    def longest(**options):
        made = source(folder, "xnli", reading, training, batch_size=5, **options)
        batches = [made.next()["pack_ids"].sum(axis=1) for _ in range(54)]  # three epochs
        return np.array(batches)

    plain, grouped = longest(), longest(by_length=True)
    assert grouped.std(axis=1).mean() < 0.6 * plain.std(axis=1).mean()
    # A window is a quarter of a small set: neither sorted throughout nor alike in each epoch.
    tops = grouped.max(axis=1)
    assert (np.diff(tops[:18]) < 0).sum() > 3 and (np.diff(tops[:18]) > 0).sum() > 3
    assert (tops[:18] != tops[18:36]).any()


def order_of(counts, batch_size=2, by_length=False):
    """Of parts of so many rows, the longest of which come first."""
    parts = [
        types.SimpleNamespace(name=f"part {n}", part=types.SimpleNamespace(rows=range(count)))
        for n, count in enumerate(counts)
    ]
    if by_length:
        return row_batches._ByLength(parts, batch_size, 3, -np.arange(sum(counts)))
    return row_batches._Order(parts, batch_size, 3)


@pytest.mark.parametrize("by_length", [False, True])
def test_batches_run_on_over_the_end_of_an_epoch(by_length):
    """Of 7 rows, two by two: each epoch is all of them, whatever batch its end stands in."""
    order = order_of([4, 3], by_length=by_length)
    rows = np.concatenate([order.batch(index) for index in range(14)])
    for epoch in range(4):
        assert sorted(rows[7 * epoch : 7 * epoch + 7]) == [*range(7)]
    assert len({tuple(rows[begin : begin + 7]) for begin in range(0, 28, 7)}) == 4
    # Any batch without those before it.
    for index in (9, 2, 13, 3):
        other = order_of([4, 3], by_length=by_length)
        np.testing.assert_array_equal(other.batch(index), rows[2 * index : 2 * index + 2])


@pytest.mark.parametrize(
    ("rows", "batch_size", "window"),
    # A quarter of an epoch, a batch at least and fifty at most.
    [(7, 2, 1), (16, 2, 2), (15, 2, 1), (24, 2, 3), (400, 2, 50), (408, 2, 50), (392, 2, 49)],
)
def test_rows_are_sorted_by_length_in_windows_of_batches(rows, batch_size, window):
    order = order_of([rows], batch_size, by_length=True)
    assert order._window == window
    batches = [order.batch(index) for index in range(rows // batch_size)]
    for begin in range(0, len(batches), window):
        of_window = batches[begin : begin + window]
        plain = order._drawn_rows(begin * batch_size, (begin + len(of_window)) * batch_size)
        # The longest have the lowest numbers: each batch is one slice of the sorted window.
        slices = np.sort(plain)[::-1].reshape(len(of_window), batch_size)
        assert {*map(tuple, of_window)} == {*map(tuple, slices)}


def test_rows_that_were_hashed_are_not_hashed_again():
    hashed = []

    def asked(digest):
        """A hash of rows that are padded for it."""

        def padded_hash():
            hashed.append(digest)
            return f"hash of {digest}"

        part = types.SimpleNamespace(digest=digest)
        parts = [types.SimpleNamespace(part=part, language_ids=(0,))]
        rows = types.SimpleNamespace(padded_hash=padded_hash)
        assert row_batches._hash_of(parts, rows, by_length=False) == f"hash of {digest}"

    # No folder is there at first; then it has the hash of others.
    for digest in ("a", "a", "b", "b", "a"):
        asked(digest)
    assert hashed == ["a", "b"]
