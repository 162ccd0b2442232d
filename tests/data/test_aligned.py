"""Pairs as people have them, read as pairs of lines."""

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


@pytest.mark.parametrize("header", ["english\tyoruba", "fra\tfon\ten", "fra", "fra\tfr"])
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
