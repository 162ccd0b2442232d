"""A dump of a small Wikipedia, in the schema of MediaWiki's Special:Export (version 0.11)."""

import bz2

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://www.mediawiki.org/xml/export-0.11/ \
http://www.mediawiki.org/xml/export-0.11.xsd" version="0.11" xml:lang="de">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <dbname>dewiki</dbname>
    <namespaces>
      <namespace key="-2" case="first-letter">Medium</namespace>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Diskussion</namespace>
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="10" case="first-letter">Vorlage</namespace>
      <namespace key="14" case="first-letter">Kategorie</namespace>
    </namespaces>
  </siteinfo>
"""
PAGE = """  <page>
    <title>{title}</title>
    <ns>{namespace}</ns>
    <id>{number}</id>
{redirect}    <revision>
      <id>{number}00</id>
      <parentid>{number}</parentid>
      <timestamp>2026-01-0{number}T10:00:00Z</timestamp>
      <contributor>
        <username>Jemand</username>
        <id>7</id>
      </contributor>
      <model>wikitext</model>
      <format>text/x-wiki</format>
      <text bytes="{size}" sha1="phoiac9h4m842xq45sp7s6u21eteeq1" xml:space="preserve">{text}</text>
      <sha1>phoiac9h4m842xq45sp7s6u21eteeq1</sha1>
    </revision>
  </page>
"""

KOELN = """{{Begriffsklärungshinweis}}
{{Infobox Gemeinde in Deutschland
|Art = Stadt
|Bild = [[Datei:Wappen.svg|mini|Das Wappen]]
|Einwohner = {{EWZ|DE-NW|05315000}}
}}
[[Datei:Köln Dom.jpg|mini|hochkant=1.2|Der [[Kölner Dom|Dom]] am [[Rhein]]]]
'''Köln''' ({{lang|la|Colonia}}) ist mit über einer Million Einwohnern<ref name="EW">\
{{Internetquelle |url=https://example.org |titel=Zahlen}}</ref> die größte Stadt in \
[[Nordrhein-Westfalen]]. Sie liegt am [[Rhein#Niederrhein|Niederrhein]].<ref name="EW" />

== Geschichte ==
<!-- Hier bitte kürzen -->
Die Stadt wurde um 50&nbsp;n.&nbsp;Chr. gegründet. Seit dem ''Mittelalter'' ist sie Bischofssitz.
{| class="wikitable"
! Jahr !! Einwohner
|-
| 1900 || 372.529
|}
* Der [https://example.org Kölner Dom] ist 157 Meter hoch.

== Einzelnachweise ==
<references />
{{SORTIERUNG:Koln}}
__KEIN_INHALTSVERZEICHNIS__
[[Kategorie:Köln| ]]
[[Kategorie:Gemeinde in Nordrhein-Westfalen]]
[[en:Cologne]]"""
BONN = "'''Bonn''' ist eine Stadt am Rhein. Die [[Universität]] hat viele Studenten.\n"
PAGES = [
    ("Köln", 0, None, KOELN),
    ("Cöln", 0, "Köln", "#WEITERLEITUNG [[Köln]]"),
    ("Diskussion:Köln", 1, None, "Warum steht das hier nicht? Das frage ich mich."),
    ("Vorlage:Infobox", 10, None, "Das ist eine Vorlage, und kein Artikel."),
    ("Kategorie:Köln", 14, None, "Alles über die Stadt Köln."),
    ("Bonn", 0, None, BONN),
]


def dump(pages=PAGES):
    """The bytes of pages-articles.xml."""
    parts = [HEAD]
    for number, (title, namespace, redirect, text) in enumerate(pages, 1):
        target = f'    <redirect title="{redirect}" />\n' if redirect else ""
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        given = {"title": title, "namespace": namespace, "number": number, "redirect": target}
        parts.append(PAGE.format(text=escaped, size=len(text.encode()), **given))
    return "".join([*parts, "</mediawiki>\n"]).encode()


def write_dump(folder, name="dewiki-20260101-pages-articles.xml.bz2", pages=PAGES):
    path = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bz2.compress(dump(pages)))
    return path
