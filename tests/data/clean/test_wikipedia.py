import bz2

import pytest

from tests.helpers.mediawiki import PAGES, dump, write_dump
from xlingjax.data.clean.wikipedia import articles, plain_text
from xlingjax.errors import UserError

pytest.importorskip("mwxml")
pytest.importorskip("mwparserfromhell")


def test_a_dump_is_the_text_of_its_articles(tmp_path):
    """No template, table, file, reference, comment, heading, category or link to another language;
    no redirect, talk page, template or category."""
    koeln, bonn = articles(write_dump(tmp_path))
    assert koeln == [
        "Köln ist mit über einer Million Einwohnern die größte Stadt in Nordrhein-Westfalen. Sie"
        " liegt am Niederrhein.",
        "Die Stadt wurde um 50 n. Chr. gegründet. Seit dem Mittelalter ist sie Bischofssitz.",
        "Der Kölner Dom ist 157 Meter hoch.",
    ]
    assert bonn == ["Bonn ist eine Stadt am Rhein. Die Universität hat viele Studenten."]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("Die [[Stadt]]bahn fährt.", ["Die Stadtbahn fährt."]),
        ("Siehe [[:Kategorie:Köln|dort]] nach.", ["Siehe dort nach."]),
        ("Zeile eins<br />Zeile zwei", ["Zeile eins", "Zeile zwei"]),
        ("Formel <math>x^2</math> steht<nowiki>[[hier]]</nowiki>.", ["Formel steht[[hier]]."]),
        ("1 &lt; 2 &amp; 3 &mdash; so.", ["1 < 2 & 3 — so."]),
        ("Das sind die folgenden:\n# eins\n#* zwei", ["Das sind die folgenden:", "eins", "zwei"]),
        ("Ein {{Zitat|Text mit [[Link]]}} fehlt.", ["Ein fehlt."]),
        ("<gallery>\nDatei:A.jpg|Bild\n</gallery>\nText.", ["Text."]),
        ("{{Vorlage|offen\nText.", ["{{Vorlage|offen", "Text."]),
    ],
)
def test_markup(markup, text):
    assert plain_text(markup, frozenset({"datei", "kategorie"})) == text


@pytest.mark.parametrize(
    "damaged",
    [
        bz2.compress(dump())[:-30],
        bz2.compress(dump()[:3000]),
        bz2.compress(b"<html><body>404 Not Found</body></html>"),
        b"<mediawiki>not compressed",
        bz2.compress(b""),
    ],
)
def test_a_damaged_dump_is_one_line(tmp_path, damaged):
    path = tmp_path / "dewiki-1-pages-articles.xml.bz2"
    path.write_bytes(damaged)
    with pytest.raises(
        UserError, match="no readable dump of MediaWiki|no compressed file's"
    ) as error:
        list(articles(path))
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_the_newest_of_several_revisions(tmp_path):
    title, namespace, redirect, text = PAGES[-1]
    page = dump([(title, namespace, redirect, text)]).decode()
    head, revision, tail = page.partition("    <revision>")
    body, end, rest = tail.partition("</revision>\n")
    older = body.replace("viele Studenten", "wenige Studenten")
    path = tmp_path / "dewiki-1-pages-meta-history.xml"
    path.write_text(head + revision + older + end + revision + body + end + rest)
    ((paragraph,),) = articles(path)
    assert paragraph.endswith("hat viele Studenten.")
