"""IWSLT14's archive as its files are written: tags of talks, titles, segments, apostrophes."""

import re
import subprocess

from xlingjax.cli import main
from xlingjax.data.text.iwslt import TEST

TALK = """<url>http://www.ted.com/talks/a_talk.html</url>
<keywords>talks, science</keywords>
<talkid>{talk}</talkid>
<title>{title}</title>
<description>{description}</description>
"""
XML = """<?xml version="1.0" encoding="UTF-8"?>
<mteval>
<{kind} setid="iwslt2014-{name}" srclang="german">
<doc docid="535" genre="lectures">
<url>http://www.ted.com/talks/x.html</url>
<title>Not a segment</title>
{segments}
</doc>
</{kind}>
</mteval>
"""


def write_archive(folder):
    for language, title in (("de", "TED: Ein Titel"), ("en", "TED: A title")):
        lines = [TALK.format(talk=1, title=title, description="  One,  two. ")]
        for number in range(1, 60):
            text = f"Line {number} of the talk, it's {language}.\n"
            if number == 5:
                text = "\n"  # empty on both sides
            if number == 6:
                # 7 tokens against 9 and against 11: 11 is more than 1.5 times 7.
                text = "a b c d e f g\n" if language == "de" else "a b c d e f g h i j k\n"
            if number == 7:
                # 8 words, and 12 tokens: just 1.5 times.
                text = "a b c d e f g h\n" if language == "de" else "a, b, c, d, e f g h\n"
            if number == 8:
                text = "word " * 176 + "\n"
            if number == 9:
                lines.append(TALK.format(talk=2, title=title + " 2", description="More."))
            lines.append(text)
        (folder / f"train.tags.de-en.{language}").write_text("".join(lines))
        for place, name in enumerate(TEST):
            segments = [
                f'<seg id="{i}"> {name} {i} {language}: it’s  it. </seg>'
                for i in range(1, place + 2)
            ]
            xml = XML.format(kind="srcset", name=name, segments="\n".join(segments))
            (folder / f"IWSLT14.{name}.de-en.{language}.xml").write_text(xml)
    # An archive holds more sets than are tested.
    (folder / "IWSLT14.TED.tst2013.de-en.de.xml").write_text("")


def by_the_script(folder, language):
    """The lines that prepare-iwslt14.sh gives to the tokeniser, by its own pipe."""
    pipe = (
        f"cat {folder}/train.tags.de-en.{language} | grep -v '<url>' | grep -v '<talkid>'"
        " | grep -v '<keywords>' | sed -e 's/<title>//g' | sed -e 's/<\\/title>//g'"
        " | sed -e 's/<description>//g' | sed -e 's/<\\/description>//g'"
    )
    return subprocess.run(
        pipe, shell=True, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def lines_of(folder, name, language):
    return (folder / f"{name}.de-en.{language}").read_text().splitlines()


def test_the_archive_is_split_as_fairseqs_script_splits_it(tmp_path, capsys):
    folder, output = tmp_path / "de-en", tmp_path / "out"
    folder.mkdir()
    write_archive(folder)
    assert main.main(["data", "iwslt14", str(folder), "--to", str(output)]) == 0
    assert "out/train.de-en: 58 pairs" in capsys.readouterr().out
    for language in ("de", "en"):
        before = [" ".join(line.split()) for line in by_the_script(folder, language)]
        assert len(before) == 63
        # Empty, of 1.57 times as many tokens, of 176.
        dropped = {6, 7, 9}
        kept = [line for at, line in enumerate(before) if at not in dropped]
        assert len(kept) == 60
        expected = kept[22::23]
        assert lines_of(output, "valid", language) == expected and len(expected) == 2
        train = [line for at, line in enumerate(kept, 1) if at % 23]
        assert lines_of(output, "train", language) == train
    assert lines_of(output, "train", "en")[:2] == ["TED: A title", "One, two."]
    test = lines_of(output, "test", "de")
    assert len(test) == 15 and test[0] == "TED.dev2010 1 de: it's it."
    assert [re.match(r"\S+", line)[0] for line in test][-1] == "TED.tst2012"

    done = tmp_path / "done"
    command = ["data", "iwslt14", str(folder), "--to", str(done)]
    assert main.main([*command, "--moses", "tokenise", "lowercase"]) == 0
    assert lines_of(done, "test", "en")[0] == "ted.dev2010 1 en : it &apos;s it ."
    assert len(lines_of(done, "train", "en")) == 58


def test_sides_of_other_lengths_are_refused(tmp_path, capsys):
    write_archive(tmp_path)
    with (tmp_path / "train.tags.de-en.en").open("a") as file:
        file.write("one more\n")
    assert main.main(["data", "iwslt14", str(tmp_path), "--to", str(tmp_path / "o")]) == 2
    assert "train.tags.de-en: 63 and 64 lines" in capsys.readouterr().err
