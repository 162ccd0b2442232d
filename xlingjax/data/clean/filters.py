"""What a line or a pair must be like to stay: its length, script, and sides."""

from __future__ import annotations

import re

from xlingjax.data.clean.characters import REPLACEMENT
from xlingjax.data.scripts import letters_in, script_of_language

# Written without spaces between words.
_SINGLE = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+")
_LETTERS_A_WORD = 5


def words_in(text: str) -> int:
    """Words between spaces. Each character of Chinese and Japanese is a word, as multilingual BERT
    cuts them; in Thai, Lao, Khmer and Burmese every five characters are."""
    singles = len(_SINGLE.findall(text))
    text = _SINGLE.sub(" ", text)
    words = singles
    for word in text.split():
        unspaced = sum(len(run) for run in _UNSPACED.findall(word))
        if unspaced:
            words += -(-unspaced // _LETTERS_A_WORD)
        else:
            words += 1
    return words


def within(value: int, limits: tuple[int, int] | None) -> bool:
    if limits is None:
        return True
    return limits[0] <= value <= limits[1]


def in_script(text: str, language: str, share: float) -> bool:
    """Whether at least `share` of the letters are in the script of the language. True of languages
    whose script is not known; False of lines without letters, which say nothing in any language."""
    letters = sum(character.isalpha() for character in text)
    if not letters:
        return False
    script = script_of_language(language)
    if script is None:
        return True
    # Vowel signs are in the ranges of a script and are no letters: a share can be above 1.
    return letters_in(script, text) >= share * letters


def readable(text: str) -> bool:
    """False of bytes that a program could not decode."""
    return REPLACEMENT not in text


def copied(first: str, second: str) -> bool:
    """Whether a side was copied and not translated."""
    return first.casefold() == second.casefold()


def balanced(first: str, second: str, ratio: float) -> bool:
    """Whether the longer side has at most `ratio` times the words of the shorter."""
    shorter, longer = sorted((words_in(first), words_in(second)))
    return longer <= ratio * shorter
