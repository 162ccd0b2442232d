import gzip
import json
import os

import pytest

from tests.helpers.files import write
from xlingjax.config.labelled_files import labelled_files, languages_of_files
from xlingjax.data.text.files import content_hash, read_lines
from xlingjax.data.text.names import is_language_code, language_from_path
from xlingjax.data.text.sources import find_pairs, find_text, stem_pairs
from xlingjax.errors import UserError


def lines(texts):
    return [(text.language, list(text.lines())) for text in texts]


def test_only_line_feeds_end_lines_and_a_bom_is_dropped(tmp_path):
    path = write(tmp_path / "de.txt", b"\xef\xbb\xbfeins\r\n\r\nzw\xe2\x80\xa8ei\x0b\xc2\x85\ndrei")
    assert [line for _, line in read_lines(path)] == ["eins", "", "zw\u2028ei\x0b\x85", "drei"]
    assert lines(find_text(str(path)))[0][1][:2] == ["eins", ""]


def test_language_from_explicit_code_folder_and_name(tmp_path):
    assert language_from_path(tmp_path / "mono/de/voa.txt") == "de"
    assert language_from_path(tmp_path / "mono/zh-TW/a.txt") == "zh-TW"
    assert language_from_path(tmp_path / "news.2020.ru.txt.gz") == "ru"
    assert language_from_path(tmp_path / "sw/tico.en-sw.en") == "en"
    assert language_from_path(tmp_path / "train/en-kab.kab") == "kab"
    with pytest.raises(UserError, match="the folder says en, the file name to"):
        language_from_path(tmp_path / "en/how-to.to")
    assert language_from_path(tmp_path / "swh_Latn/x.txt") == "swh_Latn"
    with pytest.raises(UserError, match="folder says no, the file name de"):
        language_from_path(tmp_path / "no/news.de.txt.gz")
    assert language_from_path(tmp_path / "to.do/news.de.txt") == "de"
    assert not is_language_code("voa") and not is_language_code("raw") and is_language_code("ur")
    with pytest.raises(UserError, match="cannot tell the language of .*raw/voa.txt"):
        find_text(str(write(tmp_path / "raw/voa.txt", "x\n")))
    assert [t.language for t in find_text(f"lin={tmp_path}/raw/*.txt")] == ["lin"]


def test_patterns_folders_and_repeats(tmp_path):
    for code in ("de", "en"):
        write(tmp_path / "mono" / code / "b.txt", f"{code}\n")
        write(tmp_path / "mono" / code / "a.txt", f"{code}\n")
    found = find_text([str(tmp_path / "mono/*/a.txt"), str(tmp_path / "mono")])
    assert [str(t.path.relative_to(tmp_path)) for t in found] == [
        "mono/de/a.txt", "mono/de/b.txt", "mono/en/a.txt", "mono/en/b.txt",
    ]  # fmt: skip
    assert (
        find_text(str(tmp_path / "*/*")) == find_text(str(tmp_path / "mo*/*/*")) == found
    )  # matched folders, files
    with pytest.raises(UserError, match="missing file: no monolingual file matches '.*fr/\\*.txt'"):
        find_text([str(tmp_path / "mono"), str(tmp_path / "mono/fr/*.txt")])


def test_tables_with_a_language_column(tmp_path):
    write(tmp_path / "all.tsv", "id\tlanguage\ttext\n1\tde\tHallo\n2\ten\tHello\n3\tde\tTschüss\n")
    assert lines(find_text(str(tmp_path / "all.tsv"))) == [
        ("de", ["Hallo", "Tschüss"]),
        ("en", ["Hello"]),
    ]
    write(tmp_path / "fr.tsv", "text\nSalut\n")
    assert lines(find_text(str(tmp_path / "fr.tsv"))) == [("fr", ["Salut"])]
    write(tmp_path / "bad.de.tsv", "Hallo\tWelt\n")
    with pytest.raises(UserError, match="bad.de.tsv: the first line must name the columns"):
        find_text(str(tmp_path / "bad.de.tsv"))
    told = (("A.\nB.", "en"), ("C.", "ru"), ("D.", "en"))
    rows = [{"text": text, "lang": code} for text, code in told]
    write(tmp_path / "docs.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert lines(find_text(str(tmp_path / "docs.jsonl"))) == [
        ("en", ["A.", "B.", "", "D."]),
        ("ru", ["C."]),
    ]
    write(tmp_path / "de.jsonl", '{"text": "x"}\n{"txt": "y"}\n')
    with pytest.raises(UserError, match="de.jsonl, line 2: no column 'text'"):
        list(find_text(str(tmp_path / "de.jsonl"))[0].lines())


def test_pairs_sort_their_languages_whatever_the_name(tmp_path):
    write(tmp_path / "news.ru-en.ru", "да\nнет\n")
    write(tmp_path / "news.ru-en.en.gz", gzip.compress(b"yes\nno\n"))
    write(tmp_path / "fr-de.tsv", "oui\tja\nnon\tnein\n")
    write(tmp_path / "x.en-sw.tsv", "sw\ten\nndiyo\tyes\n")
    write(
        tmp_path / "en-zh.jsonl",
        '{"zh": "是", "en": "yes"}\n{"translation": {"en": "no", "zh": "不"}}\n',
    )
    found = {
        pair.languages: (list(pair.first.lines()), list(pair.second.lines()))
        for pair in find_pairs(str(tmp_path))
    }
    assert found == {
        ("en", "ru"): (["yes", "no"], ["да", "нет"]),
        ("de", "fr"): (["ja", "nein"], ["oui", "non"]),
        ("en", "sw"): (["yes"], ["ndiyo"]),
        ("en", "zh"): (["yes", "no"], ["是", "不"]),
    }
    write(tmp_path / "same" / "de-de.tsv", "Er geht.\tEr läuft.\n")
    (same,) = find_pairs(str(tmp_path / "same"))
    assert same.languages == ("de", "de") and list(same.lines()) == [("Er geht.", "Er läuft.")]
    assert len(find_pairs([str(tmp_path / "*.ru"), str(tmp_path / "*.en.gz")])) == 1


def test_pair_errors(tmp_path):
    write(tmp_path / "de-en.de", "ja\n")
    with pytest.raises(UserError, match="missing file: .*de-en.de has no other side .*de-en.en"):
        find_pairs(str(tmp_path / "de-en.de"))
    write(tmp_path / "german.txt", "ja\n")
    with pytest.raises(UserError, match="german.txt: name pairs like de-en.de"):
        find_pairs(str(tmp_path / "german.txt"))
    path = write(tmp_path / "same" / "x.de-de.de", "{}\n")
    with pytest.raises(UserError, match="x.de-de.de: two sentences of one language"):
        find_pairs(str(path))


def test_pairs_within_one_language(tmp_path):
    write(tmp_path / "dev-en.tsv", "A long story.\tStory\nA cat sleeps.\tCat\n")
    write(tmp_path / "xglue.ntg.de.src.dev", "Eine Geschichte.\nEine Katze.\n")
    write(tmp_path / "xglue.ntg.de.tgt.dev.gz", gzip.compress(b"Geschichte\nKatze\n"))
    wanted = [("A long story.", "Story"), ("A cat sleeps.", "Cat")], [
        ("Eine Geschichte.", "Geschichte"), ("Eine Katze.", "Katze")
    ]  # fmt: skip
    for end in ("src", "tgt", "*"):  # one side, either, is enough, and both are one pair
        english, german = find_pairs(
            [f"en={tmp_path}/dev-en.tsv", f"de={tmp_path}/xglue.ntg.de.{end}.dev*"]
        )
        assert (german.languages, english.languages) == (("de", "de"), ("en", "en"))
        assert (list(english.lines()), list(german.lines())) == wanted
        assert not english.translates
    write(tmp_path / "one.tsv", "only a source\n")
    with pytest.raises(UserError, match="one.tsv, line 1: no column 1: put tabs between columns"):
        list(find_pairs(f"en={tmp_path}/one.tsv")[0].lines())


def test_keys_follow_content_not_place(tmp_path):
    first = write(tmp_path / "a/de.txt", "x\n")
    second = write(tmp_path / "b/de.txt", "x\n")
    assert find_text(str(first))[0].key == find_text(str(second))[0].key
    before = content_hash(first)
    write(first, "xy\n")
    assert content_hash(first) != before


@pytest.mark.skipif(
    not os.environ.get("XLINGJAX_DATA"), reason="XLINGJAX_DATA names no folder of real data"
)
def test_real_data_is_found_by_folder_and_name():
    root = os.path.join(os.environ["XLINGJAX_DATA"], "pretrain")
    texts = find_text(f"{root}/mono/*/*.txt")
    fifteen = [
        "ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh",
    ]  # fmt: skip
    assert sorted({text.language for text in texts}) == fifteen
    pairs = find_pairs(f"{root}/parallel/*/*")
    assert sorted({code for pair in pairs for code in pair.languages}) == fifteen
    assert all("en" in pair.languages for pair in pairs)
    (captions,) = find_pairs(f"{root}/parallel/multi30k/de-en.de")
    assert sum(1 for _ in captions.lines()) == 28_988  # of 29,000; the rest are in a test set


def test_links_that_lead_nowhere_are_not_left_out(tmp_path):
    for name in ("a.de-en.de", "a.de-en.en", "b.de-en.en", "test.de", "test.en"):
        write(tmp_path / name, "x\n")
    (tmp_path / "c.de-en.de").symlink_to(tmp_path / "a.de-en.de")
    (tmp_path / "c.de-en.en").symlink_to(tmp_path / "a.de-en.en")
    assert len(find_pairs(str(tmp_path / "[ac].*"))) == 2
    lost = "a symbolic link that leads nowhere, to /mnt/gone/.; mend or remove it"
    (tmp_path / "b.de-en.de").symlink_to("/mnt/gone/b")
    (tmp_path / "test.fr").symlink_to("/mnt/gone/f")
    labelled = str(tmp_path / "test.{language}")
    for read, name in (
        (lambda: find_pairs(str(tmp_path / "*.de-en.*")), "b.de-en.de"),
        (lambda: find_text(str(tmp_path / "*.de")), "b.de-en.de"),
        (lambda: stem_pairs(str(tmp_path / "test"), ["de", "en", "fr"]), "test.fr"),
        (lambda: languages_of_files([labelled]), "test.fr"),
        (lambda: labelled_files(labelled, ["de", "fr"]), "test.fr"),
    ):
        with pytest.raises(UserError, match=f"{name}: {lost}"):
            read()
