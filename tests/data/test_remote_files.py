"""Text in a store that fsspec opens: its memory:// stands for gs:// and s3://."""

import fsspec
import pytest

from tests.helpers.records import pair_records
from xlingjax.data.text.sources import _copy, find_pairs, find_text
from xlingjax.errors import UserError

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def store():
    store = fsspec.filesystem("memory")
    for name, text in {
        "corpus/de/a.txt": "Der Hund.\n",
        "corpus/en/b.txt": "The dog.\n",
        "pairs/de-en.de": "Ja.\nNein.\n",
        "pairs/de-en.en": "Yes.\nNo.\n",
    }.items():
        store.pipe_file(f"/{name}", text.encode())
    yield store
    store.rm("/corpus", recursive=True)
    store.rm("/pairs", recursive=True)


def lines(pattern):
    return {text.language: list(text.lines()) for text in find_text(pattern)}


def test_patterns_and_folders_of_a_store_are_text(store, vocabulary):
    wanted = {"de": ["Der Hund."], "en": ["The dog."]}
    assert lines("memory://corpus/*/*.txt") == wanted
    assert lines("memory://corpus") == wanted
    assert lines("memory://corpus/de/a.txt") == {"de": ["Der Hund."]}
    assert lines("fr=memory://corpus/de/a.txt") == {"fr": ["Der Hund."]}
    records = pair_records(find_pairs("memory://pairs/*"), vocabulary)
    yes = vocabulary.encode("Ja.")
    assert records.languages == ("de", "en")
    assert records.sides[0].ids.tolist()[: len(yes)] == yes


def test_a_file_is_fetched_again_where_it_changed_and_only_then(store, monkeypatch):
    (text,) = find_text("memory://corpus/de/a.txt")
    fetched = []
    whole = type(store).get_file
    monkeypatch.setattr(
        type(store), "get_file", lambda *args, **more: fetched.append(1) or whole(*args, **more)
    )
    assert find_text("memory://corpus/de/a.txt") == [text] and not fetched
    store.pipe_file("/corpus/de/a.txt", b"Die Katze.\n")
    assert list(find_text("memory://corpus/de/a.txt")[0].lines()) == ["Die Katze."]
    assert len(fetched) == 1


@pytest.mark.parametrize(
    "address",
    [
        "reference://x",
        "filecache::memory://corpus",
        "zip://*.txt::memory://corpus.zip",
        "local://x",
    ],
)
def test_stores_that_may_do_more_than_read_are_refused(address):
    with pytest.raises(UserError, match="no store that is read"):
        find_text(address)


def test_a_name_leads_nowhere_else():
    with pytest.raises(UserError, match="leads out of the folder"):
        _copy(None, "http", "//host/../../../x.de.txt")
