"""Pairs that are shifted, exchanged, or no translations of each other, and files named wrongly."""

import random

import pytest

from tests.helpers.files import write
from xlingjax.data.check import check, language
from xlingjax.data.check.alignment import OFFSETS, _links, _occurrences, misaligned, stems_of
from xlingjax.data.store.tokenise import text_blocks
from xlingjax.data.text.sources import find_pairs

WORDS = [[f"{a}{b}{end}" for a in "bdfghklmnp" for b in "aeiou"] for end in ("sters", "mba")]


def sentences(count, seed=0):
    """Aligned lines of an invented lexicon: word i of one is word i of the other."""
    rng = random.Random(seed)
    chosen = [[rng.randrange(len(WORDS[1])) for _ in range(4)] for _ in range(count)]
    english = [" ".join(["The", *(WORDS[0][i] for i in line), "town"]) for line in chosen]
    swahili = [" ".join(["Huyu", *(WORDS[1][i] for i in line), "mji"]) for line in chosen]
    return english, swahili


@pytest.fixture(autouse=True)
def without_identification(monkeypatch, own_cache):
    """As where the extra `clean` is not installed."""
    monkeypatch.setattr(language, "identified", lambda lines, code: None)


def told(folder, english, swahili, mono=()):
    write(folder / "p/en-sw.en", "".join(f"{line}\n" for line in english))
    write(folder / "p/en-sw.sw", "".join(f"{line}\n" for line in swahili))
    found = check([str(path) for path in mono], str(folder / "p"))
    return [one for one in found.items if "repeated" not in one.message]


@pytest.mark.parametrize("lines", [60, 700])
def test_aligned_lines_have_no_finding(tmp_path, lines):
    assert told(tmp_path, *sentences(lines)) == []


def test_a_shift_is_an_error_with_its_offset(tmp_path):
    english, swahili = sentences(700)
    (found,) = told(tmp_path, english[1:], swahili[:-1])
    assert (found.severity, found.line) == ("error", 1)
    assert (
        "line i is translated by line i+1 of the other file: one of them lacks 1 line"
        in found.message
    )
    (found,) = told(tmp_path, english[:-2], swahili[2:])
    assert "by line i-2 of" in found.message and "lacks 2 lines" in found.message


def test_a_line_that_is_missing_in_the_middle_shifts_what_comes_behind(tmp_path):
    english, swahili = sentences(1000)
    (found,) = told(tmp_path, english[:-1], [*swahili[:480], *swahili[481:]])
    # Windows of 250 lines: the second is half right, the third wholly wrong.
    assert found.severity == "error" and found.line in (251, 501) and "i-1" in found.message


def test_lines_in_another_order_are_no_translations(tmp_path):
    english, swahili = sentences(500)
    random.Random(1).shuffle(swahili)
    (found,) = told(tmp_path, english, swahili)
    assert found.severity == "error" and "do not go together" in found.message


def test_exchanged_files_are_told_by_the_other_files_of_their_languages(tmp_path):
    english, swahili = sentences(300)
    mono = write(tmp_path / "m/en.txt", "".join(f"{line}\n" for line in sentences(200, 1)[0]))
    assert told(tmp_path, english, swahili, [mono]) == []
    (found,) = told(tmp_path, swahili, english, [mono])
    assert found.severity == "warning" and "are the two exchanged?" in found.message
    assert found.file.endswith("en-sw.en")


def test_exchanged_files_are_told_by_english_words_where_there_is_no_other_file(tmp_path):
    english, swahili = sentences(300)
    english = [f"the {line} of that" for line in english]
    assert told(tmp_path, english, swahili) == []
    (found,) = told(tmp_path, swahili, english)
    assert found.severity == "warning" and "the English words are in" in found.message
    assert found.file.endswith("en-sw.en")


def test_a_file_of_another_language_is_told_by_the_stems_of_the_others(tmp_path):
    english, swahili = sentences(300)
    more, other = sentences(200, 1)
    mono = [
        write(tmp_path / "m/a.en.txt", "".join(f"{line}\n" for line in more)),
        write(tmp_path / "m/b.sw.txt", "".join(f"{line}\n" for line in other)),
        write(tmp_path / "m/c.sw.txt", "".join(f"{line}\n" for line in sentences(90, 2)[0])),
    ]
    (found,) = told(tmp_path, english, swahili, mono)
    assert found.file.endswith("c.sw.txt") and "more like the en files'" in found.message


def test_a_code_of_no_language_is_told(tmp_path):
    path = write(tmp_path / "a.txt", "".join(f"{line}\n" for line in sentences(90)[0]))
    (found,) = [one for one in check(f"zz={path}").items if "repeated" not in one.message]
    assert found.message == "'zz' is no code of a language (ISO 639)"


def test_a_run_is_told_by_its_tokens(vocabulary, tmp_path):
    english, swahili = sentences(300)
    texts = []
    for number, sides in enumerate(((english, swahili), (english[1:], swahili[:-1]))):
        for code, lines in zip(("en", "sw"), sides, strict=True):
            write(tmp_path / f"{number}/en-sw.{code}", "".join(f"{line}\n" for line in lines))
        texts.append(text_blocks(find_pairs(str(tmp_path / f"{number}")), vocabulary))
    assert [*misaligned([texts[0], texts[0]])] == []
    (message,) = misaligned(texts)
    assert message.startswith("en-sw, line 1 of its text: line i is translated by line i+1")


def test_links_by_hand():
    # Each of x, y, z stands three times; at offset 1 "x" and "a" meet always, "y" and "b" too.
    first = ["x", "y", "x", "y", "x", "y", *"qqqqqqqqqqqqqqqqqq"]
    second = ["n", "a", "b", "a", "b", "a", "b", *"rrrrrrrrrrrrrrrrr"]
    links = _links(*(_occurrences([*map(stems_of, side)]) for side in (first, second)))
    assert links[OFFSETS.index(1)] == 1.0 and links.argmax() == OFFSETS.index(1)
    # At offset 0 "y" meets "a" three times of three, "x" meets "b" twice: too seldom to count.
    assert links[OFFSETS.index(0)] == pytest.approx(2 / 4)


def test_stems_of_scripts_without_spaces_are_pairs_of_characters():
    assert stems_of("Die Untersuchungen, 42") == ["die", "unters", "42"]
    assert stems_of("他在看书 ok") == ["他在", "在看", "看书", "ok"]
