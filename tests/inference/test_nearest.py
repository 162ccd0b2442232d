"""The nearest rows beside faiss's own exact index, and an inverted file beside both."""

import sys

import faiss
import numpy as np
import pytest

from xlingjax.errors import UserError
from xlingjax.inference import mine, nearest, vector_files
from xlingjax.inference.nearest import Search, chosen_search
from xlingjax.inference.search import neighbours, unit_rows


def clustered(rng, rows, dim=24, centres=40):
    """Unit rows around some centres, as vectors of sentences lie."""
    middle = rng.normal(size=(centres, dim))
    noise = 0.6 * rng.normal(size=(rows, dim))
    return unit_rows(middle[rng.integers(centres, size=rows)] + noise).astype(np.float32)


def on_disk(folder, rows, of_shard):
    """`ShardedRows` of an array."""
    lines = [(str(i), row) for i, row in enumerate(rows)]
    [(_, found)] = vector_files.write_shards(
        folder,
        ["x"],
        lines,
        lambda chunk, _: [np.stack([row for _, row in chunk])],
        lambda pair: [pair[0]],
        lambda _: None,
        rows=of_shard,
    )
    return found


def of_faiss(queries, index, k):
    flat = faiss.IndexFlatIP(index.shape[1])
    flat.add(index)
    return flat.search(queries, k)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return clustered(rng, 700), clustered(rng, 3000)


@pytest.fixture
def small_parts(monkeypatch):
    """Several blocks and parts, of which the last ones are not full."""
    monkeypatch.setattr(nearest, "BLOCK_BYTES", 4 * 24 * 1024)
    monkeypatch.setattr(nearest, "QUERIES", 256)


def test_exact_search_finds_what_faiss_finds(rows, tmp_path, small_parts):
    queries, index = rows
    products, expected = of_faiss(queries, index, 5)
    stored = [on_disk(tmp_path / name, x, 900) for name, x in zip("qi", rows, strict=True)]
    for some in ((queries, index), stored):
        found, numbers = nearest.nearest(*some, 5, folder=tmp_path / "found")
        np.testing.assert_array_equal(numbers[:], expected)
        np.testing.assert_allclose(found[:], products, atol=1e-6)
    # In blocks the same bits as at once.
    whole, _ = neighbours(queries, index, 5)
    np.testing.assert_array_equal(found[:], whole)


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_all_lists_give_what_exact_search_gives(rows, tmp_path, small_parts, place):
    some = rows
    if place == "disk":
        some = [on_disk(tmp_path / name, x, 900) for name, x in zip("qi", rows, strict=True)]
    _, expected = of_faiss(*rows, 5)
    search = Search("ivf", lists=50, probes=50)
    products, numbers = nearest.nearest(*some, 5, search, folder=tmp_path / "found")
    np.testing.assert_array_equal(numbers[:], expected)
    own = np.take_along_axis(rows[0] @ rows[1].T, expected, axis=1)
    np.testing.assert_allclose(products[:], own, atol=1e-6)


def test_of_equals_the_first_row_wins_here_too(small_parts):
    rng = np.random.default_rng(1)
    queries = rng.integers(-99, 100, (40, 24)).astype(np.float32)
    index = rng.integers(-99, 100, (300, 24)).astype(np.float32)
    index = np.concatenate([index] * 5)  # over two blocks
    expected = np.argsort(-(queries @ index.T), axis=1, kind="stable")[:, :5]
    _, numbers = nearest.nearest(queries, index, 5, Search("ivf", lists=20, probes=20))
    np.testing.assert_array_equal(numbers, expected)


def test_few_lists_find_most_and_more_lists_find_more(rows):
    _, expected = of_faiss(*rows, 5)

    def recall(probes):
        search = Search("ivf", lists=100, probes=probes)
        _, found = nearest.nearest(*rows, 5, search)
        pairs = zip(found, expected, strict=True)
        return np.mean([len({*a} & {*b}) / 5 for a, b in pairs])

    few, some, most = map(recall, (1, 8, 40))
    assert few < some < most
    assert some > 0.8 and most > 0.99


def test_lists_are_the_same_at_every_start(rows):
    search = Search("ivf", lists=100, probes=3)
    first, second = (nearest.nearest(*rows, 5, search) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    _, other = nearest.nearest(*rows, 5, Search("ivf", lists=100, probes=3, seed=1))
    assert (other != first[1]).any()


def test_a_query_whose_lists_hold_too_few_is_searched_exactly(rows):
    queries, index = rows
    _, expected = of_faiss(queries[:50], index[:60], 30)
    # One list of twenty has about three rows, and thirty are asked for.
    _, found = nearest.nearest(queries[:50], index[:60], 30, Search("ivf", lists=20, probes=1))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("margin", mine.MARGINS)
def test_mined_pairs_are_the_same_by_all_lists_from_disk(rows, tmp_path, small_parts, margin):
    source, target = rows[0], rows[1][:800]
    stored = [on_disk(tmp_path / n, x, 300) for n, x in zip("st", (source, target), strict=True)]
    expected = mine.mine(source, target, margin=margin)
    found = mine.mine(
        *stored, margin=margin, search=Search("ivf", lists=30, probes=30), folder=tmp_path / "found"
    )
    np.testing.assert_array_equal(found.source, expected.source)
    np.testing.assert_array_equal(found.target, expected.target)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5, atol=1e-6)


def test_large_texts_need_a_choice_and_the_library(monkeypatch):
    assert chosen_search(None, None, None, 0, (200_000, 200_000)).exact
    with pytest.raises(UserError, match="1,000,000 x 50,000 sentences: say --search ivf") as told:
        chosen_search(None, None, None, 0, (1_000_000, 50_000))
    assert "\n" not in str(told.value)
    assert chosen_search("exact", None, None, 0, (10**7, 10**7)).exact
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match=r"pip install 'xlingjax\[search\]'"):
        chosen_search("ivf", None, None, 0, (10, 10))


def test_rows_on_disk_read_like_an_array(tmp_path):
    rows = np.random.default_rng(0).normal(size=(25, 3)).astype(np.float32)
    stored = on_disk(tmp_path, rows, 10)
    assert stored.shape == (25, 3) and len(stored) == 25
    for chosen in (slice(0, 25), slice(8, 22), slice(24, 99), slice(5, 5)):
        np.testing.assert_array_equal(stored[chosen], rows[chosen])
    some = np.array([24, 3, 3, 19])
    np.testing.assert_array_equal(stored[some], rows[some])


def test_whole_shards_are_kept_and_a_begun_one_is_not(tmp_path):
    texts = [f"é {i}\u2028" for i in range(23)]
    made = []

    def encode(lines, number):
        assert lines[0] == texts[10 * number]
        if len(made) == stop:
            raise KeyboardInterrupt
        made.append(lines[0])
        return [np.array([[len(line)] for line in lines], np.float32)]

    def start():
        return vector_files.write_shards(
            tmp_path, ["de"], texts, encode, lambda line: [line], lambda _: None, rows=10
        )

    stop = 1
    with pytest.raises(KeyboardInterrupt):
        start()
    assert vector_files.read_shards(tmp_path, ["de"]) is None
    (tmp_path / "de-00001.partial").write_bytes(b"half")
    stop = 9
    [(lines, rows)] = start()
    assert made == [texts[0], texts[10], texts[20]]
    assert [*lines] == texts == [lines[i] for i in range(23)]
    assert len(lines) == len(rows) == 23
    [(again, _)] = vector_files.read_shards(tmp_path, ["de"])
    assert again[22] == texts[22]
