"""Where the verbs write: asked before the work, compressed as named; texts that are given in
Python and languages that a run does not know."""

import dataclasses
import os
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import toy
from xlingjax.cli import main
from xlingjax.data.text.files import ENDINGS, read_lines, write_as_named
from xlingjax.data.text.given import require_texts
from xlingjax.data.text.other_formats import refuse_no_lines
from xlingjax.errors import UserError
from xlingjax.inference.encode import embed_texts, token_ids
from xlingjax.inference.run import TrainedRun
from xlingjax.inference.sentences import Sentences
from xlingjax.runtime.files import require_file, require_folder
from xlingjax.workflows.files import encode as encoding
from xlingjax.workflows.files import mine as mining
from xlingjax.workflows.files.encode import language_of
from xlingjax.workflows.files.mine import mine
from xlingjax.workflows.files.translate import Partial

LINES = ["Äpfel ||| 1", "", "苹果"]


@pytest.mark.parametrize("ending", ["", *ENDINGS])
def test_what_is_translated_is_compressed_as_named(tmp_path, ending):
    path = tmp_path / f"o{ending}"
    with Partial(str(path), {"to": "en"}) as output:
        output.write(LINES)
        assert output.keep(1) == 3
        output.finish()
    assert [line for _, line in read_lines(path)] == LINES
    assert sorted(os.listdir(tmp_path)) == [path.name]
    write_as_named(path, [b"a\n", b"b\n"])
    assert [line for _, line in read_lines(path)] == ["a", "b"]


def test_an_output_is_asked_for_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    require_file(tmp_path / "new" / "folder" / "a.txt")
    require_folder(tmp_path)
    require_folder(tmp_path / "new" / "folder")
    for require, path, message in (
        (require_file, tmp_path, "is a folder; name a file in it"),
        (require_file, f"{tmp_path}/new/", "is a folder; name a file in it"),
        (require_file, tmp_path / "file" / "a" / "b.txt", "file is a file; choose"),
        (require_folder, tmp_path / "file", "is a file; give a folder"),
        (require_folder, tmp_path / "file" / "a", "file is a file; choose"),
    ):
        with pytest.raises(UserError, match=message):
            require(path)
    # As of a mount that is read-only: the super-user may write to any other.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    for require in (require_file, require_folder):
        with pytest.raises(UserError, match="may not be written to"):
            require(tmp_path / "a")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["encode", "no-run", "--input", "x", "--language", "de", "--to", "v.npy"],
        ["align", "no-run", "--stem", "x", "--languages", "de", "en", "--to", "d"],
        ["mine", "no-run", "--languages", "de", "en", "--files", "x", "x", "--to", "m"],
        ["words", "no-run", "--dictionary", "de-en=x", "--to", "d"],
        ["score", "--metric", "chrf", "--language", "de", "--to", "d"]
        + ["--predictions", "x", "--gold", "x"],
        ["translate", "no-run", "--target", "de", "--input", "x", "--to", "d"],
    ],
)
def test_a_folder_in_the_way_is_told_first(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_text("a\tb\n")
    for name in ("d", "v.npy", "m.de-en.tsv"):
        (tmp_path / name).mkdir()
    assert main.main(words) == 2
    assert "is a folder; name a file in it" in capsys.readouterr().err


def trained(languages=("de", "en"), has_languages=False):
    config = SimpleNamespace(has_languages=has_languages)
    return SimpleNamespace(languages=languages, model=SimpleNamespace(config=config))


def test_a_language_that_the_run_does_not_know():
    assert language_of(trained(), "de") == ("de", "")
    assert language_of(trained(), "DE") == ("de", "") == language_of(trained(), "deu")
    code, note = language_of(trained(), "sw")
    assert code == "sw" and "none of the run's languages (de, en)" in note
    assert language_of(trained(()), "sw") == ("sw", "")
    # Which says it itself.
    assert language_of(trained(has_languages=True), "sw") == ("sw", "")
    for word in ("german", "x1", ""):
        with pytest.raises(UserError, match="nor a code, like de"):
            language_of(trained(), word)


@pytest.mark.parametrize("texts", ["a string", b"bytes"])
def test_one_text_is_no_list(texts):
    vocabulary = toy.ToyVocabulary()
    run = TrainedRun(None, None, vocabulary, ("de",))
    for call in (
        lambda: run.embed(texts, "de"),
        lambda: token_ids(texts, vocabulary, 9),
        lambda: embed_texts(run, texts, "de"),
        lambda: require_texts(texts, "lines"),
    ):
        with pytest.raises(UserError, match="is one text, .*give a list"):
            call()


def test_given_texts_are_unicode_text():
    require_texts(["a", np.str_("b"), ""], "x")
    for bad, message in ((["a", None], r"x\[1\] is NoneType"), (["\ud83d"], "half of a surrogate")):
        with pytest.raises(UserError, match=message):
            require_texts(bad, "x")


def test_vectors_are_written_as_they_are_made(tmp_path, monkeypatch):
    """Of many lines some at a time are in memory, and the file is NumPy's own."""
    asked = []

    class Trained:
        width = 2

        def embed(self, lines, language, pooling, prefix, layers, cut, done):
            asked.append(lines)
            return np.array([[[len(line), layers[0]] for line in lines]], np.float32)

    monkeypatch.setattr(encoding, "LINES", 3)
    lines = ["a", "", "bbb", "", "", "", "cc", "dddd"]
    way = Sentences(layer=7, pooling="mean")
    vectors = np.concatenate([*encoding.vectors_in_parts(Trained(), lines, "de", way)])
    expected = [[1, 7], [0, 0], [3, 7], [0, 0], [0, 0], [0, 0], [2, 7], [4, 7]]
    assert vectors.tolist() == expected and vectors.dtype == np.float32
    assert asked == [["a", "bbb"], ["cc", "dddd"]]


def test_a_file_without_a_sentence_is_named_before_a_model_is_opened(tmp_path):
    empty, text = tmp_path / "empty", tmp_path / "text"
    empty.write_text("\n\n")
    text.write_text("Was ist das?\n")
    with pytest.raises(UserError, match="/empty: no sentence in it; give a text"):
        encoding.encode("no run", str(empty), "de", str(tmp_path / "v"), layer=None)
    with pytest.raises(UserError, match="/empty: no sentence in it; give a text"):
        mine(
            "no run",
            (str(text), str(empty)),
            ("de", "en"),
            str(tmp_path / "m"),
            layer=None,
            k=4,
            margin="ratio",
            threshold=None,
        )
    assert sorted(os.listdir(tmp_path)) == ["empty", "text"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"text": "ja"}\n'),
        ("a.txt.gz", '{"text": "ja"}\n'),
        ("b c.tsv", "1\tja\n2\tnein\n"),
        ("a.csv", "id,text\n"),
    ],
)
def test_records_are_no_lines(tmp_path, capsys, name, content):
    message = "is not read as text: write its texts to a file, one per line"
    path = tmp_path / name
    write_as_named(path, [content.encode()])
    text = tmp_path / "text.de"
    text.write_text("ja\n")
    with pytest.raises(UserError, match=message):
        refuse_no_lines(path)
    to = ["--to", str(tmp_path / "out")]
    run = str(tmp_path / "none")
    # The run is not there, and it is not asked for.
    for words in (
        ["encode", run, "--language", "de", "--input", str(path), *to],
        ["mine", run, "--languages", "de", "en", "--files", str(text), str(path), *to],
        ["translate", run, "--target", "en", "--input", str(path), *to],
        ["generate", run, "--target", "en", "--input", str(text), "--references", str(path)],
        ["score", "--metric", "chrf", "--language", "de", "--predictions", str(text)]
        + ["--gold", str(path)],
    ):
        assert main.main(words) == 2
        error = capsys.readouterr().err
        assert re.search(message, error) and len(error.splitlines()) == 1


def test_lines_of_any_other_name_are_read(tmp_path):
    for name, content in (
        ("news.de", "ja\n"),
        ("news", "1\tja\n"),
        ("news.txt", 'nein\n{"text": "ja"}\n'),
        ("one.tsv", "ja\nnein\n"),
        ("xglue.ntg.en.src.dev", "ja\n"),
        ("empty", ""),
    ):
        (tmp_path / name).write_text(content)
        refuse_no_lines(tmp_path / name)
    # What is read of a pipe to look at it would be missing.
    os.mkfifo(tmp_path / "pipe")
    refuse_no_lines(tmp_path / "pipe")


def test_a_folder_in_place_of_a_text(tmp_path, capsys):
    folder = str(tmp_path)
    words = ["encode", "none", "--language", "de", "--input", folder, "--to", f"{folder}/v"]
    assert main.main(words) == 2
    assert f"cannot read {folder}: Is a directory" in capsys.readouterr().err


@pytest.fixture
def toy_run(monkeypatch):
    """The run that every verb opens: a tiny one of 64 positions whose words are pieces."""
    encoder, params = toy.model()
    opened = TrainedRun(encoder, params, toy.ToyVocabulary(), toy.LANGUAGES)
    monkeypatch.setattr(encoding, "open_run", lambda run: opened)
    monkeypatch.setattr(mining, "open_run", lambda run: opened)
    monkeypatch.setattr(mining, "find_checkpoint", lambda run: run)
    return opened


def test_lines_that_are_cut_are_counted(tmp_path, toy_run):
    """Two that differ behind the cut have one vector, so it is told."""
    text = tmp_path / "text"
    text.write_text("a b\n\n" + "a " * 70 + "b\n" + "c " * 62 + "\n" + "a " * 70 + "c d\n")
    given = ("a run", str(text), "de", str(tmp_path / "v"))
    *_, last = encoding.encode(*given, layer=2).splitlines()
    assert last == f"{text}: 2 of 5 lines were cut to 64 tokens, the first of them line 3"
    vectors = np.load(tmp_path / "v.npy")
    np.testing.assert_array_equal(vectors[2], vectors[4])
    # A prefix takes room.
    *_, last = encoding.encode(*given, layer=2, prefix="x ").splitlines()
    assert last.endswith(": 3 of 5 lines were cut to 64 tokens, the first of them line 3")
    text.write_text("a b\n")
    assert len(encoding.encode(*given, layer=2).splitlines()) == 1
    cut = []
    toy_run.embed(["a", "a " * 63, "b"], "de", layers=[1], cut=cut)
    assert cut == [1]


def test_vectors_that_are_no_numbers_are_not_written(tmp_path, toy_run, monkeypatch):
    """Of weights that are damaged, or of a training that diverged."""
    text = tmp_path / "text"
    text.write_text("a b\n")
    broken = jax.tree.map(lambda values: values * jnp.nan, toy_run.params)
    opened = dataclasses.replace(toy_run, params=broken)
    monkeypatch.setattr(encoding, "open_run", lambda run: opened)
    with pytest.raises(UserError, match="vectors with NaN or infinities"):
        encoding.encode("a run", str(text), "de", str(tmp_path / "v"), layer=2)
    assert sorted(os.listdir(tmp_path)) == ["text"]


@pytest.mark.parametrize("in_memory", [1 << 20, 0])
def test_mined_lines_that_are_cut_are_counted(tmp_path, toy_run, monkeypatch, in_memory):
    monkeypatch.setattr(mining, "IN_MEMORY", in_memory)
    first, second = tmp_path / "first", tmp_path / "second"
    # Blank lines and repeated ones have numbers too.
    first.write_text("a b\n\na b\n" + "a " * 70 + "\n" + "c " * 63 + "\n")
    second.write_text("a b\nc d\n")
    settings = {"layer": 2, "k": 1, "margin": "absolute", "threshold": None}
    said = mine(
        "a run", (str(first), str(second)), ("de", "en"), str(tmp_path / "m"), **settings
    ).splitlines()
    assert said[1:] == [f"{first}: 2 of 3 lines were cut to 64 tokens, the first of them line 4"]


def test_a_prefix_leaves_room_for_the_sentence(tmp_path, toy_run):
    text = tmp_path / "text"
    text.write_text("a b\n")
    message = "--prefix has 62 tokens, and a sentence with its prefix at most 62"
    given = ("a run", str(text), "de", str(tmp_path / "v"))
    with pytest.raises(UserError, match=message):
        encoding.encode(*given, layer=1, prefix="a " * 62)
    with pytest.raises(UserError, match=message):
        toy_run.embed(["a"], "de", prefix="a " * 62)
    assert not (tmp_path / "v.npy").exists()
    encoding.encode(*given, layer=1, prefix="a " * 61)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["encode", "r", "--input", "x", "--language", "de"], "--to"),
        (["align", "r", "--stem", "x", "--languages", "de", "en"], "--to"),
        (["mine", "r", "--languages", "de", "en", "--files", "x", "x"], "--to"),
        (["translate", "r", "--target", "de", "--input", "x"], "--to"),
        (["evaluate", "r", "--suite", "xtreme", "--data", "x"], "--to"),
        (["export", "r"], "--to"),
        (["vocab", "--mono", "x"], "--to"),
        (["vocab", "trim", "r"], "--to"),
    ],
)
def test_an_empty_output_is_refused(capsys, words, option):
    assert main.main([*words, option, ""]) == 2
    said = f"error: argument {option}: '' names no file and no folder"
    assert capsys.readouterr().err.startswith(said)


def test_vectors_have_a_file_of_their_own(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for output, message in (
        ("/dev/null", "--to /dev/null is no ordinary file"),
        (str(tmp_path / "pipe"), "pipe is no ordinary file"),
    ):
        with pytest.raises(UserError, match=message):
            encoding.encode("no run", "x", "de", output, layer=None)


def test_pairs_without_words_are_not_aligned(tmp_path):
    stem = tmp_path / "text"
    given = ("no run", str(stem), ("de", "en"), str(tmp_path / "o"))
    how = {"layer": None, "method": "itermax"}
    for german, english in (("", ""), ("\n", "\n"), ("a\n\n", "\nb\n")):
        (tmp_path / "text.de").write_text(german)
        (tmp_path / "text.en").write_text(english)
        with pytest.raises(UserError, match="text.en have no line with words on both sides"):
            encoding.align(*given, **how)
    assert not (tmp_path / "o").exists()
