"""The embedded corpus: what is promised of it, and how it is cut."""

import json
import tarfile
from pathlib import Path

import pytest

from xlingjax import demo
from xlingjax.errors import UserError

OTHERS = [code for code in demo.LANGUAGES if code != "en"]
PARTS = ("train", "dev", "test")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("demo")
    demo.write(root)
    return root


def lines(path):
    return path.read_text("utf-8").removesuffix("\n").split("\n")


def rows(path):
    return [line.split("\t") for line in lines(path)]


def test_there_is_what_the_demonstration_reads(corpus):
    """And the archives stay below 4 MB."""
    files = json.loads((corpus / "manifest.json").read_text())["files"]
    on_disk = {p.relative_to(corpus).as_posix() for p in corpus.rglob("*.*") if p.is_file()}
    assert on_disk == files.keys() | {"manifest.json"} and min(files.values()) > 0
    for code in ("de", "en", "ru", "zh"):
        assert files[f"mono/{code}.txt"] == 20_000
        assert files[f"parallel/{code}-{code}.tsv"] == 12_000
    pairs = {p: n for p, n in files.items() if p.startswith("parallel/") and not p.endswith("tsv")}
    wide = {"de", "en", "ru", "zh"}
    full = {p: n for p, n in pairs.items() if {p[9:11], p[12:14]} <= wide}
    assert len(full) == 12 and {*full.values()} == {24_000}
    assert {*pairs.values()} == {24_000, 4_000}
    counts = {f"{task}_{part}": set() for task in demo.TASKS for part in PARTS}
    for path, count in files.items():
        if path.split("/")[0] in demo.TASKS:
            counts[demo.size_of(path)].add(count)
    assert counts["nli_train"] == {24_000, 4_000, 300} and counts["nli_test"] == {1_200, 450}
    archives = [*(Path(demo.__file__).parent / "corpus").iterdir()]
    assert len(archives) == 8 and sum(path.stat().st_size for path in archives) < 4_000_000


def test_line_n_is_beside_line_n(corpus):
    """Pairs, aligned documents with their blank lines, retrieval over all languages, links."""
    for path in [*corpus.glob("parallel/*-*.??"), *corpus.glob("documents/*")]:
        first, second = path.stem.split("-")
        sides = [lines(path.with_suffix(f".{code}")) for code in (first, second)]
        assert [bool(line) for line in sides[0]] == [bool(line) for line in sides[1]], path
    english = {(corpus / f"heldout/parallel/{code}-en.en").read_bytes() for code in OTHERS}
    assert len(english) == 1
    for code in OTHERS:
        texts = lines(corpus / f"heldout/parallel/{code}-en.{code}")
        source, target, links = (
            lines(corpus / f"alignments/{code}-en.{end}") for end in (code, "en", "txt")
        )
        for text, tokens, others, linked in zip(texts, source, target, links, strict=True):
            assert tokens.replace(" ", "") == text.replace(" ", "")
            found = [tuple(map(int, link.split("-"))) for link in linked.split()]
            counts = len(tokens.split()), len(others.split())
            assert found and all(i < counts[0] and j < counts[1] for i, j in found)
    german = rows(corpus / "dictionary/de-en.tsv")
    assert ["Hund", "dog"] in german and ["Schwan", "swan"] not in german
    assert ["Schwan", "swan"] in rows(corpus / "heldout/dictionary/de-en.tsv")
    for code in ("de", "en", "ru", "zh"):
        reworded = rows(corpus / f"parallel/{code}-{code}.tsv")
        assert all(len(row) == 2 and row[0] != row[1] for row in reworded)


def sentences(paths):
    """All cells but labels."""
    known = {"", "0", "1", "entailment", "neutral", "contradiction"}
    return {cell for path in paths for row in rows(path) for cell in row} - known


@pytest.mark.parametrize("code", demo.LANGUAGES)
def test_nothing_held_out_is_in_training_text(corpus, code):
    training = sentences(
        [
            corpus / f"mono/{code}.txt",
            *corpus.glob(f"parallel/*.{code}"),
            *corpus.glob(f"parallel/{code}-{code}.tsv"),
            *corpus.glob(f"documents/*.{code}"),
            corpus / f"nli/train-{code}.tsv",
            corpus / f"paraphrase/train-{code}.tsv",
        ]
    )
    tested = sentences(
        [
            *corpus.glob(f"nli/[dt]e*-{code}.tsv"),
            *corpus.glob(f"paraphrase/[dt]e*-{code}.tsv"),
            *corpus.glob(f"heldout/parallel/*.{code}"),
            *corpus.glob(f"heldout/novel/*.{code}"),
        ]
    )
    assert len(tested) > 1000 and len(training) > 8000
    assert not tested & training
    if code in ("en", "zh"):
        return
    words = {row[0] for row in rows(corpus / f"heldout/dictionary/{code}-en.tsv")}
    words -= {row[0] for row in rows(corpus / f"dictionary/{code}-en.tsv")}
    tokens = {token.strip(".,?!¿।") for text in training for token in text.split()}
    assert len(words) > 10 and not words & tokens


def test_a_cut_is_the_beginning_of_every_file(corpus, tmp_path):
    sizes = dict.fromkeys(demo.SIZES, 7)
    files = demo.write(tmp_path, ("zh", "en", "de"), sizes)["files"]
    assert {n for path, n in files.items() if demo.size_of(path)} == {7}
    for path in files:
        cut, whole = (tmp_path / path).read_text("utf-8"), (corpus / path).read_text("utf-8")
        if path.endswith(".json"):
            assert json.loads(cut)["data"] == json.loads(whole)["data"][:7]
        else:
            assert whole.startswith(cut), path
    names = {p.name for p in tmp_path.rglob("*-*")}
    assert "de-zh.zh" in names and not any("ru" in name.split(".")[0] for name in names)


def test_another_choice_leaves_nothing_behind(tmp_path):
    none = dict.fromkeys(demo.SIZES, 0)
    demo.write(tmp_path, ("de", "en"), none)
    (tmp_path / "mine.txt").write_text("kept")
    demo.write(tmp_path, ("en", "fr"), none)
    left = [p for name in ("*-de.*", "de-*", "de.*") for p in tmp_path.rglob(name)]
    assert left == [] and (tmp_path / "mine.txt").exists()
    for given, message in (
        ({"languages": ("en", "xx")}, "no language 'xx'; there are de, en"),
        ({"sizes": {"monos": 3}}, "no size 'monos'; did you mean 'mono'"),
    ):
        with pytest.raises(UserError, match=message):
            demo.write(tmp_path / "x", **given)
    assert not (tmp_path / "x").exists()


def test_archives_have_no_names_that_lead_elsewhere():
    for code in demo.LANGUAGES:
        with tarfile.open(Path(demo.__file__).parent / f"corpus/{code}.tar.bz2") as archive:
            assert all(m.isfile() and not m.name.startswith(("/", ".")) for m in archive)
