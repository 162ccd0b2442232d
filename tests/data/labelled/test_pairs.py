import pytest

from xlingjax.data.labelled import pairs as lp
from xlingjax.data.labelled.records import Bitext, SourceTarget
from xlingjax.errors import UserError

ENGLISH = [
    "delta", "golf", "alpha", "india", "bravo", "hotel", "charlie", "foxtrot", "echo", "juliett",
]  # fmt: skip


@pytest.fixture
def files(tmp_path):
    def files(**sides):
        paths = [tmp_path / f"x.{name}" for name in sides]
        for path, lines in zip(paths, sides.values(), strict=True):
            path.write_text("".join(f"{line}\n" for line in lines))
        return paths

    return files


def test_sources_and_targets(files):
    found = lp.read_source_target(files(src=["a b", " c"], tgt=["x", "y"]), None, "de")
    assert found == [SourceTarget("a b", "x"), SourceTarget("c", "y")] and found[1].line == 2
    assert lp.read_source_target(files(src=["a"]), None, "de") == [SourceTarget("a", None)]
    with pytest.raises(UserError, match=r"x.src has 2 lines, .*x.tgt 1: line n of one belongs"):
        lp.read_source_target(files(src=["a", "b"], tgt=["x"]), None, "de")
    with pytest.raises(UserError, match=r"x.tgt, line 2: the line is empty"):
        lp.read_source_target(files(src=["a", "b"], tgt=["x", ""]), None, "de")


def test_tatoeba_that_is_aligned(files):
    (found,) = lp.read_tatoeba(files(de=["eins", "zwei"], en=["one", "two"]), None, "de")
    assert found == Bitext(
        (("0", "eins"), ("1", "zwei")),
        (("0", "one"), ("1", "two")),
        frozenset({("0", "0"), ("1", "1")}),
    )


def test_tatoeba_whose_english_is_sorted(files):
    order = sorted(range(10), key=ENGLISH.__getitem__)
    foreign = [word.upper() for word in ENGLISH]
    sides = {"de": foreign, "en": [ENGLISH[row] for row in order]}
    assert lp.read_tatoeba(files(**sides), None, "de")[0].gold is None
    (found,) = lp.read_tatoeba(files(**sides, labels=order), None, "de")
    texts = dict(found.source), dict(found.target)
    assert len(found.gold) == 10 and all(texts[0][a] == texts[1][b].upper() for a, b in found.gold)
    with pytest.raises(UserError, match=r"x.labels, line 2: '10' is not a row, 0 to 9"):
        lp.read_tatoeba(files(**sides, labels=[0, 10]), None, "de")
    with pytest.raises(UserError, match=r"x.labels: 9 rows for 10 English lines"):
        lp.read_tatoeba(files(**sides, labels=order[1:]), None, "de")


def test_bucc(files):
    sides = {"de": ["de-1\teins\tzwei", "de-2\tdrei"], "en": ["en-1\tthree"]}
    (found,) = lp.read_bucc(files(**sides, gold=["de-2\ten-1"]), None, "de")
    assert found.source == (("de-1", "eins\tzwei"), ("de-2", "drei")) and found.gold == {
        ("de-2", "en-1")
    }
    assert lp.read_bucc(files(**sides), None, "de")[0].gold is None
    for changed, message in (
        ({"de": ["de-1 eins"]}, r"x.de, line 1: 'de-1 eins' is not two columns"),
        ({"de": ["de-1\teins", "de-1\tzwei"]}, r"x.de, line 2: the id 'de-1' comes twice"),
        ({"gold": ["de-2\ten-1", "de-3\ten-1"]}, r"x.gold, line 2: no sentence 'de-3' in .*x.de"),
    ):
        with pytest.raises(UserError, match=message):
            lp.read_bucc(files(**(sides | {"gold": ["de-2\ten-1"]} | changed)), None, "de")
