"""Pairs as people have them, read as pairs of lines."""

import gzip
from pathlib import Path

import pytest

from xlingjax.data.text.aligned import read_aligned
from xlingjax.errors import UserError

UNIT = (
    '<tu><tuv xml:lang="{a}"><seg>{x} <bpt>&lt;b&gt;</bpt><hi>and</hi>\n more</seg></tuv>'
    '<tuv xml:lang="{b}"><seg>{y} &amp; co</seg></tuv></tu>'
)


def memory(path, *units, name="tmx"):
    body = "".join(UNIT.format(a=a, b=b, x=x, y=y) for a, b, x, y in units)
    end = name.split()[0]
    path.write_text(f"<{name}><body>{body}<tu><tuv xml:lang='de'/></tu></body></{end}>", "utf-8")
    return [str(path)]


def test_a_translation_memory(tmp_path):
    path = tmp_path / "m.tmx"
    found = read_aligned(memory(path, ("en-US", "DE", "one", "eins")), ("de", "en"))
    assert found == {("de", "en"): [("eins & co", "one and more")]}
    named = memory(path, ("en", "zh-CN", "one", "yi"), name='tmx xmlns="http://www.lisa.org/tmx14"')
    assert read_aligned(named, ("en", "zh_CN")) == {("en", "zh_CN"): [("one and more", "yi & co")]}
    three = memory(path, ("en", "de", "one", "eins"), ("en", "fr", "one", "un"))
    with pytest.raises(UserError, match="its languages are en, de, fr; name two of them"):
        read_aligned(three, ())
    assert [*read_aligned(three, ("fr", "en"))] == [("en", "fr")]


def test_tables_are_read_by_their_header_or_by_place(tmp_path):
    path = tmp_path / "m.tsv"
    path.write_text("moja\tone\nmbili\ttwo\nmbili\ttwo\n", "utf-8")
    pairs = {("en", "sw"): [("one", "moja"), ("two", "mbili")]}
    assert read_aligned([str(path)], ("sw", "en")) == {
        ("en", "sw"): [*pairs["en", "sw"], ("two", "mbili")]
    }
    path.write_text("EN\tsw\none\tmoja\ntwo\tmbili\n", "utf-8")
    assert read_aligned([str(path)], ("sw", "en")) == pairs
    path = tmp_path / "m.jsonl"
    path.write_text('{"en": "one", "sw": "moja"}\n{"en": "two", "sw": "mbili"}\n', "utf-8")
    assert read_aligned([str(path)], ("sw", "en")) == pairs


@pytest.mark.parametrize(
    ("name", "text"),
    {
        "m.tsv": "fra\tfon\nun\tɖokpo\n",
        "m.json": '{"translation": {"fra": "un", "fon": "ɖokpo"}}\n',
        "m.jsonl": '{"id": "7a", "fra": "un", "fon": "ɖokpo"}\n',
    }.items(),
)
def test_a_table_tells_its_languages(tmp_path, name, text):
    (tmp_path / name).write_text(text, "utf-8")
    assert read_aligned([str(tmp_path / name)], ()) == {("fon", "fra"): [("ɖokpo", "un")]}


def test_other_columns_of_a_table_are_left_out(tmp_path):
    path = tmp_path / "m.tsv"
    path.write_text("id\ten\tscore\tsw\n7\tone  two\t0.9\tmoja mbili\n", "utf-8")
    assert read_aligned([str(path)], ()) == {("en", "sw"): [("one two", "moja mbili")]}
    path.write_text("id\ten\tscore\tsw\n7\tone\n", "utf-8")
    with pytest.raises(UserError, match="m.tsv, line 2: 2 columns, and the header names 4"):
        read_aligned([str(path)], ())


def test_the_names_of_two_files_say_which_language_is_which(tmp_path):
    for name, line in {"train.sw": "moja", "train.en": "one"}.items():
        (tmp_path / name).write_text(f"{line}\n", "utf-8")
    files = [str(tmp_path / "train.sw"), str(tmp_path / "train.en")]
    assert read_aligned(files, ("en", "sw")) == {("en", "sw"): [("one", "moja")]}
    # Another name for the languages is the user's to give, in the order of the files.
    assert read_aligned(files, ("kab", "fr")) == {("fr", "kab"): [("one", "moja")]}


def test_no_other_format_is_taken_for_lines(tmp_path):
    for name in ("a.en.csv", "a.sw.csv"):
        (tmp_path / name).write_text("1,one\n", "utf-8")
    with pytest.raises(UserError, match="a.en.csv is not read as text"):
        read_aligned([str(tmp_path / "a.en.csv"), str(tmp_path / "a.sw.csv")], ())


def test_a_translation_memory_that_was_cut_off(tmp_path):
    (name,) = memory(tmp_path / "m.tmx", ("en", "sw", "one", "moja"))
    packed = gzip.compress(Path(name).read_bytes())
    (tmp_path / "m.tmx.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(UserError, match="m.tmx.gz is no translation memory that can be read"):
        read_aligned([str(tmp_path / "m.tmx.gz")], ())


@pytest.mark.parametrize(
    "header", ["english\tyoruba", "fra\tfon\ten", "fra", "fra\tfr", "src\ttgt"]
)
def test_a_table_that_does_not_tell_its_languages_is_refused(tmp_path, header):
    path = tmp_path / "m.tsv"
    path.write_text(f"{header}\n", "utf-8")
    with pytest.raises(UserError, match="give (--languages A B|two languages)"):
        read_aligned([str(path)], ())


def test_pairs_that_share_no_language_are_refused(tmp_path):
    for name in ("en-sw", "de-fr"):
        for code in name.split("-"):
            (tmp_path / f"{name}.{code}").write_text(f"{code}\n", "utf-8")
    with pytest.raises(UserError, match="de-fr, en-sw: no language is in all of them"):
        read_aligned([str(tmp_path)], ())
