import gzip

import pytest

from tests.helpers.files import write
from tests.helpers.text import file_source
from xlingjax.data.check import check
from xlingjax.data.clean import garbled
from xlingjax.data.scripts import main_script, script_of_language
from xlingjax.data.text.texts import Text, repeated
from xlingjax.errors import UserError
from xlingjax.preprocessors.xlm import MlmFeatures, TlmFeatures

pytestmark = pytest.mark.usefixtures("own_cache")
READERS = (MlmFeatures(), TlmFeatures())


def told(found, severity):
    return [item.text() for item in found.items if item.severity == severity]


def test_a_clean_corpus_has_a_table_and_no_errors(corpus, vocabulary):
    files = (str(corpus / "mono"), str(corpus / "parallel"))
    found = check(*files, vocabulary, readers=READERS, batch=4, length=128, steps=50)
    source = file_source(TlmFeatures(), vocabulary, 4, 128, parallel=files[1])
    assert found.tables["pairs"] == source.identity["sampling_table"]
    assert found.errors == 0 and not told(found, "warning")
    assert [row["name"] for row in found.tables["text"]] == ["de", "en", "ru", "zh"]
    assert set(found.unknown_rate) == {"de", "en", "ru", "zh"} and found.unknown_rate["en"] == 0.0
    assert "0 errors, 0 warnings" in found.text()


def test_files_that_stop_a_run(tmp_path):
    write(tmp_path / "p/de-en.de", "ja\nnein\nso\n")
    write(tmp_path / "p/de-en.en", "yes\nno\n")
    write(tmp_path / "m/de.txt", b"gut\nsch\xf6n\nspaet\nm\xfcde\n")
    write(tmp_path / "m/fr.txt", "\n\n")
    write(tmp_path / "m/sw.txt.gz", gzip.compress(b"habari\n" * 50)[:-9])
    write(tmp_path / "m/voa.txt", "x\n")
    found = check(
        [str(tmp_path / "m/??.txt*"), str(tmp_path / "m/voa.txt"), str(tmp_path / "m/*.xx")],
        str(tmp_path / "p"),
    )
    errors = "\n".join(told(found, "error"))
    assert found.errors == 6
    assert "de-en.de has 3 lines" in errors and "de-en.en has 2" in errors
    assert "m/de.txt, line 2: invalid UTF-8" in errors
    assert "m/fr.txt: no fr text in it" in errors
    assert "sw.txt.gz: damaged after line" in errors
    assert "cannot tell the language of" in errors and "no monolingual file matches" in errors
    assert found.text().splitlines()[-1].startswith("6 errors")
    with pytest.raises(UserError, match="nothing to check"):
        check()


def test_lines_that_cost_quality(tmp_path, vocabulary):
    write(tmp_path / "en.txt", "A cat.\n" + "dog " * 2000 + "\nA cat.\nThe sun.\n")
    write(tmp_path / "ru.txt", "The house.\nThe river.\n")
    text = "\n".join(told(check([str(tmp_path / "*.txt")]), "warning"))
    assert "en.txt, line 2: 1 line of over 5,000 characters" in text
    assert "en.txt, line 3: repeated from an earlier line: 1 line (25.0%)" in text
    assert "ru.txt: most letters are Latin, but ru is written in Cyrillic" in text
    found = check(
        "el=" + str(write(tmp_path / "x.txt", "Η γάτα πίνει γάλα.\n")), vocabulary=vocabulary
    )
    assert "of the pieces are unknown to the vocabulary" in "\n".join(told(found, "warning"))
    assert found.unknown_rate["el"] > 0.3


def pair(folder, rows, codes=("en", "ru")):
    for side, code in enumerate(codes):
        write(folder / f"{codes[0]}-{codes[1]}.{code}", "".join(f"{row[side]}\n" for row in rows))
    return str(folder)


def test_pairs_that_are_empty_copied_repeated_or_swapped(tmp_path):
    rows = [
        ("The cat sleeps.", "Кошка спит."),
        ("", "Собака спит."),
        ("London 2012", "London 2012"),
        ("7", "7"),
    ]
    rows += [("Дети играют.", "The children play."), ("The cat sleeps.", "Кошка спит."), ("", "")]
    warnings = "\n".join(told(check((), pair(tmp_path / "some", rows)), "warning"))
    assert "en-ru.en, line 2: text on one side only, left out: 1 line (14.3%)" in warnings
    assert "en-ru.en, line 3: the same on both sides: 1 line (20.0%)" in warnings
    notes = "\n".join(told(check((), pair(tmp_path / "some", rows)), "note"))
    assert "en-ru.en, line 6: repeated from an earlier line: 1 line (20.0%)" in notes
    found = check((), pair(tmp_path / "swapped", [(b, a) for a, b in rows[:1]]))
    english, russian = told(found, "warning")
    assert "en-ru.en: most letters are Cyrillic, but en is written in Latin" in english
    assert "en-ru.ru: most letters are Latin, but ru is written in Cyrillic" in russian


def test_pairs_too_long_for_a_row_are_counted(tmp_path, vocabulary):
    rows = [("a cat", "кот"), ("the cat " * 60, "кот")]
    given = {"readers": [TlmFeatures(max_pieces=40)], "length": 64}
    found = check((), pair(tmp_path, rows), vocabulary, **given)
    (note,) = told(found, "note")
    assert "1 of 2 en-ru lines fit no row of 64 tokens and are left out" in note
    found = check((), pair(tmp_path, rows[1:]), vocabulary, **given)
    assert found.errors == 1 and "pairs" not in found.tables
    assert found.text().splitlines()[-1].startswith("1 error, 0 warnings")


def test_scripts():
    assert script_of_language("ru") == "Cyrillic" and script_of_language("sr") is None
    assert script_of_language("sr_Latn") == "Latin" and script_of_language("zh-Hant") == "Han"
    assert main_script("Привет world!") == "Cyrillic" and main_script("12 %") is None


@pytest.mark.parametrize("with_ftfy", [True, False])
def test_text_that_was_decoded_wrongly_or_has_entities(tmp_path, with_ftfy, monkeypatch):
    if not with_ftfy:
        monkeypatch.setattr(garbled.importlib.util, "find_spec", lambda name: None)
    twice = "Der Bus hält für alle.".encode().decode("cp1252")
    write(tmp_path / "de.txt", f"Für Ärzte & Übel; ÃO.\n{twice}\nf&uuml;r &#252;ber &x;\n")
    first, second = told(check([str(tmp_path / "de.txt")]), "warning")
    assert "de.txt, line 2: UTF-8 that was once read as another encoding" in first
    assert "de.txt, line 3: entities of HTML (`xlingjax data clean` repairs it): 1 line" in second


def test_the_same_text_several_times(tmp_path, monkeypatch, vocabulary, capsys):
    monkeypatch.chdir(tmp_path)
    text = "The cat sleeps.\nThe sun.\n"
    for name in ("m/en/a.txt", "m/en/copy.txt", "m/de/a.txt"):
        write(tmp_path / name, text)
    write(tmp_path / "m/en/a.txt.gz", gzip.compress(text.encode()))
    for stem in ("en-ru", "ru-en"):
        write(tmp_path / f"p/{stem}.en", text), write(tmp_path / f"p/{stem}.ru", "Кошка.\nСон.\n")
    # Of two paths of one file the first is read.
    mono, pairs = ["m", str(tmp_path / "m")], "p"
    found = told(check(mono, pairs), "warning")
    wanted = [("m/en/a.txt.gz", "m/en/a.txt"), ("m/en/copy.txt", "m/en/a.txt")]
    wanted.append(("p/ru-en.en", "p/en-ru.en"))
    assert [line for line in found if "the same text" in line] == [
        f"warning  {path}: the same text as {first}: a run counts and draws both; name one"
        for path, first in wanted
    ]
    source = file_source(MlmFeatures(), vocabulary, 2, 16, mono=mono)
    assert capsys.readouterr().err.count("the same text as") == 2
    assert source.identity["sampling_table"][1]["sentences"] == 6


def test_a_damaged_archive_beside_its_file_has_the_text_of_none(tmp_path):
    write(tmp_path / "de.txt", "gut\n")
    write(tmp_path / "de.txt.gz", gzip.compress(b"gut\n")[:-3])
    assert [*repeated([Text(tmp_path / name, "de") for name in ("de.txt", "de.txt.gz")])] == []
