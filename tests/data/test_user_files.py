"""Files as users really have them: compressed, cut off, in other encodings, of other formats."""

import bz2
import gzip
import json
import lzma
import random
import string

import pytest
import zstandard

from xlingjax.data.check import check
from xlingjax.data.labelled.questions import read_squad
from xlingjax.data.labelled.words import Columns
from xlingjax.data.languages import check_spellings, known_as
from xlingjax.data.text import files
from xlingjax.data.text.files import find_file, read_lines
from xlingjax.data.text.given import parse_json
from xlingjax.data.text.sources import find_pairs, find_text, split_patterns
from xlingjax.data.text.texts import repeated
from xlingjax.errors import UserError
from xlingjax.evaluation.alignment import read_gold

LINES = ["Der Bus hält.", "", "Äpfel 苹果 \U0001f600", "Ende"]
BYTES = ("\n".join(LINES) + "\n").encode()
COMPRESS = {
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}


def written(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def lines_of(path):
    return [line for _, line in read_lines(path)]


@pytest.mark.parametrize("ending", COMPRESS)
def test_compressed_files(tmp_path, ending):
    compress = COMPRESS[ending]
    path = tmp_path / f"a.de.txt{ending}"
    written(path, compress(BYTES))
    assert lines_of(path) == LINES
    assert find_file(tmp_path / "a.de.txt") == path
    (text,) = find_text(str(path))
    assert (text.language, [*text.lines()]) == ("de", LINES)
    # Written one behind the other, as `cat a.gz b.gz` does.
    written(path, compress(BYTES) * 3)
    assert lines_of(path) == LINES * 3
    words = random.Random(0).choices(string.ascii_letters, k=9999)
    whole = compress("".join(words).encode())
    for cut in (len(whole) - 1, len(whole) // 2, 12):
        with pytest.raises(UserError, match="damaged after line"):
            lines_of(written(path, whole[:cut]))
    for content in (b"", b"plain text\n"):
        with pytest.raises(UserError, match="first bytes are no compressed file's"):
            lines_of(written(path, content))
    other = written(tmp_path / "b.de.txt", compress(BYTES))
    with pytest.raises(UserError, match=f"b.de.txt: its first bytes are those of a {ending} file"):
        lines_of(other)
    # Three letters that begin an archive, and a text.
    other = written(tmp_path / "b.de.txt", "BZh1 ist ein Haus\n")
    assert lines_of(other) == ["BZh1 ist ein Haus"]
    # Nothing in it, and whole.
    assert lines_of(written(path, compress(b""))) == []


def test_a_nul_is_no_text(tmp_path):
    for content in ("The bus stops.\n".encode("UTF-16"), b"gut\nschl\0echt\n"):
        path = written(tmp_path / "a.de.txt", content)
        with pytest.raises(UserError, match="line [12]: a NUL byte"):
            lines_of(path)
        assert check(str(path)).errors == 1


def test_half_surrogates_and_nuls_in_json(tmp_path):
    path = tmp_path / "x.de.jsonl"
    whole = '{"text": "Sch\\u00f6n \\ud83d\\ude00"}\n'
    assert [*find_text(str(written(path, whole)))[0].lines()] == ["Schön \U0001f600"]
    for bad in ("\\ud83d", "\\ude00 x", "\\ud83d\\ud83d"):
        written(path, whole + f'{{"text": "Schön {bad} hier."}}\n')
        with pytest.raises(UserError, match="x.de.jsonl, line 2: .u.* is half of a surrogate pair"):
            [*find_text(str(path))[0].lines()]
    # Also in a name, where another reader takes it for text.
    with pytest.raises(UserError, match="half of a surrogate"):
        parse_json('{"a": [{"\\udc00": 1}]}', "x")


def test_tables_with_other_columns(tmp_path):
    path = written(tmp_path / "W.de-en.tsv", "so\tso\n1.9\tgut\tgood\n")
    with pytest.raises(UserError, match="line 2: 3 columns, expected 2"):
        [*find_pairs(str(path))[0].lines()]
    # A header in other spellings is no pair of sentences.
    for header in ("en\tde", "EN\tDE", "eng\tdeu", "\ufeffen\tde"):
        path = written(tmp_path / "x.de-en.tsv", f"{header}\ngood\tgut\n")
        assert [*find_pairs(str(path))[0].lines()] == [("gut", "good")]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.de.json", '[\n{"text": "gut"}\n]\n'), ("a.de.csv", "text,source\ngut,x\n"),
     ("de-en.de", '{"text": "gut"}\n')],
)  # fmt: skip
def test_other_formats_are_refused(tmp_path, name, content):
    path = written(tmp_path / name, content)
    written(tmp_path / "de-en.en", "good\n")
    with pytest.raises(UserError, match=f"{name} is not read as text: write a sentence per line"):
        (find_pairs if "-" in name else find_text)(str(path))
    found = check(*(((), str(path)) if "-" in name else (str(path),)))
    assert found.errors == 1


@pytest.mark.parametrize("codes", ["zh-TW zh_TW", "de deu", "he iw", "sr-Latn sh", "en eng_Latn"])
def test_one_language_in_two_spellings(codes):
    first, second = codes.split()
    with pytest.raises(UserError, match="are one language") as error:
        check_spellings(["fr", second, first, "xx"])
    assert first in str(error.value) and second in str(error.value)
    assert known_as(second, ["fr", first]) == first


def test_other_languages_stay_apart():
    codes = [
        "zh", "zh-TW", "zh-Hans", "sr", "sr-Latn", "no", "nb", "nn", "pt", "pt-BR", "ur_rom",
    ]  # fmt: skip
    check_spellings(codes)
    assert known_as("fr", codes) is None


@pytest.mark.parametrize(
    ("name", "languages"),
    [
        ("x.en-zh-TW.tsv", ("en", "zh-TW")),
        ("zh-TW-en.tsv", ("en", "zh-TW")),
        ("en-es-419.tsv", ("en", "es-419")),
        ("DE-EN.tsv", ("DE", "EN")),
        ("eng_Latn-zho_Hant.tsv", ("eng_Latn", "zho_Hant")),
    ],
)
def test_codes_of_pairs(tmp_path, name, languages):
    assert find_pairs(str(written(tmp_path / name, "a\tb\n")))[0].languages == languages


def test_patterns_with_spaces(tmp_path):
    written(tmp_path / "my data, new/a b.de.txt", "gut\n")
    written(tmp_path / "c.de.txt", "gut\n")
    named = f"{tmp_path}/my data, new/*.txt"
    assert split_patterns(named) == (named,)
    assert split_patterns(f"de={named}") == (f"de={named}",)
    assert split_patterns("a b, c") == ("a", "b", "c")
    assert split_patterns(None) == () and split_patterns(["a b"]) == ("a b",)


def squad(qas):
    return json.dumps({"data": [{"paragraphs": [{"context": "Lea fährt nach Ulm.", "qas": qas}]}]})


ANSWERED = {"id": "q1", "question": "Wohin?", "answers": [{"text": "Ulm", "answer_start": 15}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (squad([ANSWERED, {"id": "q2", "question": "?", "answers": []}]), "1 of 2 questions are"),
        (squad([ANSWERED | {"answers": {"text": ["Ulm"]}}]), "question q1: answers are no list"),
        ('{"id": "q1"}\n{"id": "q2"}\n', "not SQuAD's one JSON object"),
        ("[" * 100_000, "nested too deep"),
        (squad([ANSWERED]).replace("Wohin?", "\\ud800"), "half of a surrogate"),
    ],
)
def test_questions_that_are_not_squad_1(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        read_squad([written(tmp_path / "a.json", content)], None, "de")


def test_answers_as_datasets_writes_them(tmp_path):
    answers = {"text": ["Ulm"], "answer_start": [15]}
    path = written(
        tmp_path / "a.json.gz", gzip.compress(squad([ANSWERED | {"answers": answers}]).encode())
    )
    (question,) = read_squad([path], None, "de")
    assert (question.answers, question.starts) == (("Ulm",), (15,))


def test_a_language_column_holds_codes(tmp_path):
    path = written(tmp_path / "x.jsonl", '{"text": "a", "language": "../de"}\n')
    with pytest.raises(UserError, match="line 1: '../de' is no code of a language"):
        find_text(str(path))


def test_one_line_without_end_is_refused_before_it_fills_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 1000)
    path = tmp_path / "a.de.txt.gz"
    path.write_bytes(gzip.compress(b"kurz\n" + b"x" * 5000))
    with pytest.raises(UserError, match="a.de.txt.gz, line 2: over .* without an end of a line"):
        [*files.read_lines(path)]
    plain = tmp_path / "a.de.txt"
    plain.write_bytes(b"kurz\n" + b"x" * 5000)
    with pytest.raises(UserError, match="line 2: over .* without an end of a line"):
        [*files.read_lines(plain, files.Part(0, 5005, 1))]


def test_words_are_what_spaces_and_tabs_part(tmp_path):
    line = "Lea zahlt  10\u00a0000\tEuro\u3000x ."
    assert files.words_of(line) == ["Lea", "zahlt", "10\u00a0000", "Euro\u3000x", "."]
    for name, words in (("de", line), ("en", "Lea pays 10,000 euros .")):
        (tmp_path / f"de-en.{name}").write_text(f"{words}\n", encoding="utf-8")
    (tmp_path / "de-en.txt").write_text("0-0 1-1 2-2 4-4\n")
    (pair,) = read_gold(tmp_path, ["de", "en"])["de"].pairs
    assert pair[0][2] == "10\u00a0000"
    (tmp_path / "tags.txt").write_text("10\u00a0000 NUM\nEuro NOUN\n", encoding="utf-8")
    (sentence,) = Columns(None).sentences(tmp_path / "tags.txt", ["NUM", "NOUN"])
    assert sentence.words == ("10\u00a0000", "Euro")


def test_only_a_copy_beside_its_file_is_read_unpacked(tmp_path, monkeypatch):
    for code in ("de", "en"):
        (tmp_path / code).mkdir()
        (tmp_path / code / "news.txt").write_text(f"{code}\n")
    texts = find_text([str(tmp_path / code) for code in ("de", "en")])
    monkeypatch.setattr("xlingjax.data.text.texts.pieces_of", None)
    assert [*repeated(texts)] == []
    monkeypatch.undo()
    (tmp_path / "de/news.txt.gz").write_bytes(gzip.compress(b"de\n"))
    ((copy, first),) = repeated(find_text(str(tmp_path / "de")))
    assert {copy.name, first.name} == {"news.txt", "news.txt.gz"}
