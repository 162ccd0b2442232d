"""The articles of a Wikipedia dump as plain text, by mwxml and mwparserfromhell.

What XLM and XGLUE take WikiExtractor for (whose licence, AGPL, would bind this program): text of
articles alone. Templates are not expanded but left out, with tables, references, files, categories
and headings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xlingjax.data.text.files import open_bytes
from xlingjax.errors import UserError
from xlingjax.runtime.machine import first_line
from xlingjax.runtime.packages import package

_STEM = re.compile(r"^(?P<code>simple|[a-z]{2,3}(?:_[a-z]+)*)wiki(?:-|\.)")
# Wikipedias that are not named by the code of their language.
_CODES = {"simple": "en", "no": "nb", "zh_classical": "lzh", "zh_yue": "yue"}
# Tags whose content is no running text.
_TAGS = re.compile(
    "ref|references|table|gallery|math|chem|timeline|code|syntaxhighlight|source|score|imagemap"
    "|graph|mapframe|hiero|pre"
)
# In any language: __NOTOC__, __KEIN_INHALTSVERZEICHNIS__.
_MAGIC = re.compile(r"__[^\W\da-z]+?__")
_SPACES = re.compile(r"[ \t\u00a0]+")
# What is left of parentheses when the templates in them are gone: "( , )".
_EMPTY = re.compile(r"\s*[(（][\s,;:،、，；]*[)）]")


def wikipedia_language(path: Path) -> str:
    """de of "dewiki-20260101-pages-articles.xml.bz2". Raises UserError for other names."""
    match = _STEM.match(path.name)
    if match is None:
        raise UserError(
            f"{path}: the name of a dump begins with the code of its language, like"
            f" dewiki-20260101-pages-articles.xml.bz2; or write the code before it, de={path}"
        )
    code = match["code"]
    return _CODES.get(code, code)


def articles(path: Path) -> Iterator[list[str]]:
    """The paragraphs of each article, in the order of the dump: namespace 0, no redirects.

    Raises UserError: the file cannot be read, is damaged, or is no dump of MediaWiki.
    """
    mwxml = package("mwxml", "--wikipedia")
    try:
        with open_bytes(path) as file:
            yield from _articles(mwxml.Dump.from_file(file))
    except UserError:
        raise
    # What libraries raise of a file has no common kind: EOFError, ParseError, OSError ...
    except Exception as error:
        raise UserError(
            f"{path}: no readable dump of MediaWiki ({first_line(error)}); fetch it again"
        ) from None


def _articles(dump: Any) -> Iterator[list[str]]:
    names = _other_namespaces(dump.site_info)
    for page in dump:
        if page.namespace != 0 or page.redirect is not None:
            continue
        text = None
        # Dumps of articles have one revision of a page; those with the history end with the newest.
        for revision in page:
            text = revision.text
        if text is None:
            continue
        paragraphs = plain_text(text, names)
        if paragraphs:
            yield paragraphs


def _other_namespaces(site: Any) -> frozenset[str]:
    """The names, in lower case, that links into other namespaces begin with."""
    names = {"file", "image", "category", "media"}
    for space in site.namespaces or ():
        if space.id != 0 and space.name:
            names.add(space.name.casefold())
    return frozenset(names)


def plain_text(markup: str, namespaces: frozenset[str]) -> list[str]:
    """The paragraphs of an article's markup. namespaces: lower case, of links that are no text."""
    parser = package("mwparserfromhell", "--wikipedia")
    code = parser.parse(_MAGIC.sub("", markup))
    text = "".join(_texts(code, namespaces))
    text = _EMPTY.sub("", text)
    paragraphs = []
    for line in text.split("\n"):
        # What is left of list items that the parser did not take for some.
        line = _SPACES.sub(" ", line).lstrip(" *#:;").rstrip()
        if line:
            paragraphs.append(line)
    return paragraphs


def _texts(code: Any, namespaces: frozenset[str]) -> Iterator[str]:
    for node in code.nodes:
        kind = type(node).__name__
        if kind == "Text":
            yield str(node)
        elif kind == "HTMLEntity":
            yield node.normalize() or ""
        elif kind == "Wikilink":
            yield from _link(node, namespaces)
        elif kind == "ExternalLink" and node.title is not None:
            yield from _texts(node.title, namespaces)
        elif kind == "Tag":
            yield from _tag(node, namespaces)
        elif kind == "Heading":
            # A paragraph ends there.
            yield "\n"


def _link(node: Any, namespaces: frozenset[str]) -> Iterator[str]:
    title = str(node.title).strip()
    # ":Category:X" and ":fr:X" are links in the text, and show what stands there.
    space = title.partition(":")[0].strip().casefold()
    is_other = ":" in title and not title.startswith(":")
    if is_other and (space in namespaces or _is_interwiki(space)):
        return
    if node.text is None:
        yield title.lstrip(":")
    else:
        yield from _texts(node.text, namespaces)


def _is_interwiki(space: str) -> bool:
    """Whether a link leads to the article in another language, as dumps before Wikidata have."""
    return re.fullmatch(r"[a-z]{2,3}(-[a-z]+)*", space) is not None


def _tag(node: Any, namespaces: frozenset[str]) -> Iterator[str]:
    name = str(node.tag).strip().casefold()
    if _TAGS.fullmatch(name):
        return
    if name in ("br", "li", "dd", "dt", "p", "hr"):
        yield "\n"
    if node.contents is not None:
        yield from _texts(node.contents, namespaces)
