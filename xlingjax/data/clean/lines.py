"""The steps that look at one line or pair alone: a part in, its lines that stay out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from xlingjax.data.clean import filters
from xlingjax.data.clean.characters import normal_characters
from xlingjax.data.clean.identification import identifier
from xlingjax.data.clean.parts import Part
from xlingjax.data.clean.punctuation import normalizer
from xlingjax.data.clean.sentences import split_sentences
from xlingjax.data.clean.settings import CleanSettings
from xlingjax.data.clean.wikipedia import articles
from xlingjax.data.texts import Pair

Line = tuple[str, ...]
"""Its sides: one of text, two of a pair. All empty: a document ends."""


def clean_lines(part: Part, settings: CleanSettings, counts: Counter[str]) -> Iterator[Line]:
    """The lines of a part that stay, an empty one between documents. `counts` gets the number of
    lines read (`in`), of sentences they are (`sentences`), and of those that each step leaves
    out."""
    pending_end = False
    written = False
    for document in _documents(part, settings, counts):
        stay = [line for line in document if _stays(line, part, settings, counts)]
        stay = _identified(stay, part, settings, counts)
        for line in stay:
            if pending_end and written:
                yield ("",) * len(part.languages)
            pending_end = False
            written = True
            yield line
        # A document that has lost all its lines leaves no end behind.
        pending_end = True


def _documents(part: Part, settings: CleanSettings, counts: Counter[str]) -> Iterator[list[Line]]:
    """The lines of each document, normalised and split."""
    document: list[Line] = []
    for raw in _raw_lines(part):
        if not any(raw):
            if document:
                yield document
            document = []
            continue
        counts["in"] += 1
        line = tuple(
            _normal(side, code, settings) for side, code in zip(raw, part.languages, strict=True)
        )
        if part.is_pair or not settings.sentences:
            document.append(line)
            continue
        for sentence in split_sentences(line[0], part.languages[0]):
            document.append((sentence,))
    if document:
        yield document


def _raw_lines(part: Part) -> Iterator[Line]:
    if isinstance(part.source, Path):
        for paragraphs in articles(part.source):
            for paragraph in paragraphs:
                yield (paragraph,)
            yield ("",)
    elif isinstance(part.source, Pair):
        yield from part.source.lines()
    else:
        for line in part.source.lines():
            yield (line,)


def _normal(text: str, language: str, settings: CleanSettings) -> str:
    if settings.characters:
        text = normal_characters(text)
    if settings.punctuation:
        text = normalizer(language)(text).strip()
    return text


def _stays(line: Line, part: Part, settings: CleanSettings, counts: Counter[str]) -> bool:
    counts["sentences"] += 1
    reason = _reason(line, part, settings)
    if reason is None:
        return True
    counts[reason] += 1
    return False


def _reason(line: Line, part: Part, settings: CleanSettings) -> str | None:
    """The first step that leaves a line out."""
    if not all(line):
        return "empty"
    if settings.characters and not all(map(filters.readable, line)):
        return "characters"
    for side in line:
        if not filters.within(len(side), settings.length):
            return "length"
        if not filters.within(filters.words_in(side), settings.tokens):
            return "tokens"
    if settings.script_share:
        for side, code in zip(line, part.languages, strict=True):
            if not filters.in_script(side, code, settings.script_share):
                return "script"
    if not part.is_pair:
        return None
    if settings.copies and filters.copied(*line):
        return "copies"
    if settings.ratio and not filters.balanced(*line, settings.ratio):
        return "ratio"
    return None


def _identified(
    document: list[Line], part: Part, settings: CleanSettings, counts: Counter[str]
) -> list[Line]:
    """The lines whose language is the one they are said to be in."""
    if settings.identify is None or not document:
        return document
    units = [[line] for line in document]
    if settings.unit == "documents" and not part.is_pair:
        units = [document]
    stay = []
    for unit in units:
        if _in_language(unit, part, settings):
            stay += unit
        else:
            counts["identify"] += len(unit)
    return stay


def _in_language(unit: list[Line], part: Part, settings: CleanSettings) -> bool:
    model = identifier(settings.identify)
    for side, code in enumerate(part.languages):
        text = "\n".join(line[side] for line in unit)
        if model.probability(text, code) < settings.identify_threshold:
            return False
    return True
