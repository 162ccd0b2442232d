"""The steps that look at one line or pair alone: a part in, the lines of it that stay out.

Sentences are split by Wikimedia's sentencex. Tried beside pysbd and BlingFire on 22 languages of 14
scripts: it alone knows the full stops of Ethiopic, Armenian, Myanmar and Devanagari and refuses no
language. Thai marks no sentences and is split at line ends alone.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from xlingjax.data.clean.garbled import repaired
from xlingjax.data.clean.models import identifier
from xlingjax.data.clean.parts import Part
from xlingjax.data.clean.settings import CleanSettings
from xlingjax.data.clean.wikipedia import articles
from xlingjax.data.languages import base_language
from xlingjax.data.scripts import letters_in, ranges, script_of_language
from xlingjax.runtime.packages import package

Line = tuple[str, ...]  # its sides: one of text, two of a pair. All empty: a document ends.

# Control characters, soft hyphens, marks of direction and of byte order. Joiners stay (U+200C,
# U+200D): Persian, Hindi and emoji are written with them.
_UNSEEN = re.compile(
    "[\u0000-\u0008\u000e-\u001f\u007f-\u009f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064"
    "\u2066-\u206f\ufeff\ufff9-\ufffb]"
)
# What replaces bytes that a program could not decode.
_REPLACEMENT = "\ufffd"
# Written without spaces between words.
_SINGLE = re.compile(f"[{ranges('Han')}]")
_UNSPACED = re.compile(f"[{ranges('Thai', 'Lao', 'Myanmar', 'Khmer')}]+")
_LETTERS_A_WORD = 5


def clean_lines(part: Part, settings: CleanSettings, counts: Counter[str]) -> Iterator[Line]:
    """The lines of a part that stay, an empty one between documents. `counts` gets the lines read
    (`in`), their `sentences`, and those that each step leaves out."""
    pending_end = False
    written = False
    for document in _documents(part, settings, counts):
        counts["sentences"] += len(document)
        kept = []
        for line in document:
            reason = _reason(line, part, settings)
            if reason:
                counts[reason] += 1
            else:
                kept.append(line)
        for line in _identified(kept, part, settings, counts):
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
            yield document
            document = []
            continue
        counts["in"] += 1
        sides = zip(raw, part.languages, strict=True)
        line = tuple(_normal(side, code, settings) for side, code in sides)
        if part.is_pair or not settings.sentences:
            document.append(line)
        else:
            document += [(sentence,) for sentence in split_sentences(line[0], part.languages[0])]
    yield document


def _raw_lines(part: Part) -> Iterator[Line]:
    if isinstance(part.source, Path):
        for paragraphs in articles(part.source):
            yield from ((paragraph,) for paragraph in paragraphs)
            yield ("",)
    elif part.is_pair:
        yield from part.source.lines()
    else:
        yield from ((line,) for line in part.source.lines())


def _normal(text: str, language: str, settings: CleanSettings) -> str:
    if settings.characters:
        text = normal_characters(text)
    if settings.punctuation:
        text = normalizer(language)(text).strip()
    return text


def normal_characters(text: str) -> str:
    """What was decoded wrongly and HTML's entities repaired; NFC (as CCNet's and XLM-R's text is,
    and not NFKC, which changes what is written), control characters and invisible marks removed,
    every run of white space one space."""
    text = unicodedata.normalize("NFC", repaired(text))
    return " ".join(_UNSEEN.sub("", text).split())


@functools.cache
def normalizer(language: str) -> Callable[[str], str]:
    """Moses' normalize-punctuation.perl. Quotes and numbers are those of the language (`de`, `fr`,
    `cs` ...); others have Moses' common rules."""
    import sacremoses

    return sacremoses.MosesPunctNormalizer(lang=base_language(language)).normalize


def split_sentences(text: str, language: str) -> list[str]:
    """The sentences of a paragraph, stripped. Raises UserError without sentencex."""
    splitter = package("sentencex", "splitting sentences")
    pieces = [piece.strip() for piece in splitter.segment(base_language(language), text)]
    return [piece for piece in pieces if piece]


def _reason(line: Line, part: Part, settings: CleanSettings) -> str:
    """The first step that leaves a line out; "": it stays."""
    if not all(line):
        return "empty"
    if settings.characters and any(_REPLACEMENT in side for side in line):
        return "characters"
    for side in line:
        if not _within(len(side), settings.length):
            return "length"
        if not _within(words_in(side), settings.tokens):
            return "tokens"
    if settings.script_share:
        for side, code in zip(line, part.languages, strict=True):
            if not in_script(side, code, settings.script_share):
                return "script"
    if part.is_pair and settings.copies and copied(*line):
        return "copies"
    if part.is_pair and settings.ratio and not balanced(*line, settings.ratio):
        return "ratio"
    return ""


def _within(value: int, limits: tuple[int, int] | None) -> bool:
    return limits is None or limits[0] <= value <= limits[1]


def words_in(text: str) -> int:
    """Words between spaces. Each character of Chinese and Japanese is a word, as multilingual BERT
    cuts them; in Thai, Lao, Khmer and Burmese every five characters are."""
    words = len(_SINGLE.findall(text))
    for word in _SINGLE.sub(" ", text).split():
        unspaced = sum(map(len, _UNSPACED.findall(word)))
        words += max(1, -(-unspaced // _LETTERS_A_WORD))
    return words


def in_script(text: str, language: str, share: float) -> bool:
    """Whether at least `share` of the letters are in the script of the language. True of languages
    whose script is not known; False of lines without letters, which say nothing in any language."""
    letters = sum(map(str.isalpha, text))
    script = script_of_language(language)
    if not letters or script is None:
        return letters > 0
    # Vowel signs are in the ranges of a script and are no letters: a share can be above 1.
    return letters_in(script, text) >= share * letters


def copied(first: str, second: str) -> bool:
    """Whether a side was copied and not translated."""
    return first.casefold() == second.casefold()


def balanced(first: str, second: str, ratio: float) -> bool:
    """Whether the longer side has at most `ratio` times the words of the shorter."""
    shorter, longer = sorted((words_in(first), words_in(second)))
    return longer <= ratio * shorter


def _identified(
    document: list[Line], part: Part, settings: CleanSettings, counts: Counter[str]
) -> list[Line]:
    """The lines whose language is the one they are said to be in."""
    if settings.identify is None or not document:
        return document
    model = identifier(settings.identify)
    units = [[line] for line in document]
    if settings.unit == "documents" and not part.is_pair:
        units = [document]
    kept = []
    for unit in units:
        sides = zip(*unit, strict=True)
        texts = zip(map("\n".join, sides), part.languages, strict=True)
        if all(model.probability(*text) >= settings.identify_threshold for text in texts):
            kept += unit
        else:
            counts["identify"] += len(unit)
    return kept
