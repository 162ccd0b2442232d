"""Line-aligned sentence pairs with English, as retrieval and translation perplexity read them.

Two layouts, both those of LASER and Moses: a folder of `XX-en.XX` + `XX-en.en` (Tatoeba; `en-XX`
and a leading `name.` are read too), and a stem with one file per language, `test_2016_flickr.de`,
`test_2016_flickr.en`. Each file may end in `.gz` or `.zst`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xlingjax.data.overlap import HeldOut
from xlingjax.data.text.files import find_file, plain_name, read_lines
from xlingjax.data.text.sources import find_pairs, find_text
from xlingjax.errors import UserError

PIVOT = "en"
_PAIR = re.compile(r"(?:.*\.)?([a-z]{2,3}(?:_[A-Za-z]+)?)-([a-z]{2,3}(?:_[A-Za-z]+)?)$")


@dataclass(frozen=True)
class Pairs:
    """Sentence i of `foreign` means what sentence i of `english` means."""

    language: str
    foreign: tuple[str, ...]
    english: tuple[str, ...]
    file: str = field(default="", compare=False)
    """That the foreign side is from."""

    def __len__(self) -> int:
        return len(self.foreign)

    def shuffled(self, seed: int) -> "Pairs":
        """The same pairs in an order drawn from the seed."""
        order = np.random.default_rng(seed).permutation(len(self))
        foreign = tuple(self.foreign[i] for i in order)
        english = tuple(self.english[i] for i in order)
        return Pairs(self.language, foreign, english)


def lines_of(path: str | Path) -> list[str]:
    """The lines of a UTF-8 text file (`.gz`, `.zst` too), stripped. Raises UserError naming file
    and line."""
    return [line.strip() for _, line in read_lines(path)]


def aligned_lines(first: str | Path, second: str | Path) -> list[tuple[str, str]]:
    """`lines_of` two files. Raises UserError where one has more."""
    first_lines = lines_of(first)
    second_lines = lines_of(second)
    if len(first_lines) != len(second_lines):
        raise UserError(
            f"{first} has {len(first_lines)} lines and {second} has {len(second_lines)}: the two"
            " must be aligned line by line"
        )
    return list(zip(first_lines, second_lines, strict=True))


def read_pair_files(foreign: Path, english: Path, language: str, limit: int = 0) -> Pairs:
    """Two files of the same number of lines. Pairs with an empty side are left out; `limit` > 0
    keeps the first that many of the others.
    """
    lines = aligned_lines(foreign, english)
    if not lines:
        raise UserError(f"{foreign} and {english} are empty: no pairs to evaluate on")
    # Before the limit, so that it counts pairs that are evaluated.
    kept = [pair for pair in lines if all(pair)]
    if limit:
        kept = kept[:limit]
    if not kept:
        raise UserError(
            f"{foreign} and {english} have no line with text on both sides: no pairs to evaluate on"
        )
    foreign_lines, english_lines = zip(*kept, strict=True)
    return Pairs(language, foreign_lines, english_lines, str(foreign))


def pairs_with_english(patterns: Sequence[str]) -> dict[str, Pairs]:
    """{language: all pairs of English and it without an empty side} in training text, files of one
    language one after the other."""
    foreign_lines: dict[str, list[str]] = {}
    english_lines: dict[str, list[str]] = {}
    for pair in find_pairs(patterns):
        if PIVOT not in pair.languages or pair.languages[0] == pair.languages[1]:
            continue
        # English may be either side: which one follows from the names of the files.
        english = pair.languages.index(PIVOT)
        foreign = 1 - english
        language = pair.languages[foreign]
        foreign_lines.setdefault(language, [])
        english_lines.setdefault(language, [])
        for lines in pair.lines():
            if all(map(str.strip, lines)):
                foreign_lines[language].append(lines[foreign])
                english_lines[language].append(lines[english])
    pairs = {}
    for language, lines in foreign_lines.items():
        pairs[language] = Pairs(language, tuple(lines), tuple(english_lines[language]))
    return pairs


def read_pairs(
    path: str | Path, languages: Sequence[str] | None = None, limit: int = 0
) -> dict[str, Pairs]:
    """{language: Pairs} of a folder, a stem (see the module's first lines) or a pattern as PARALLEL
    has, languages sorted.

    languages: keep these only; None keeps every language found. Raises UserError when nothing is
    left.
    """
    path = Path(path)
    if _is_pattern(path):
        return _of_pattern(str(path), languages, limit)
    if path.is_dir():
        files = _in_folder(path)
    else:
        files = _of_stem(path)
    if not files:
        raise UserError(
            f"{path}: no pairs with English here: expected XX-{PIVOT}.XX beside XX-{PIVOT}.{PIVOT},"
            f" or NAME.XX beside NAME.{PIVOT}"
        )
    pairs = {}
    for language in _kept(path, files, languages):
        foreign, english = files[language]
        pairs[language] = read_pair_files(foreign, english, language, limit)
    return pairs


def _is_pattern(path: Path) -> bool:
    if path.is_dir() or find_file(path.with_name(f"{path.name}.{PIVOT}")):
        return False
    return any(sign in str(path) for sign in "*?[")


def _of_pattern(pattern: str, languages: Sequence[str] | None, limit: int) -> dict[str, Pairs]:
    found = {}
    for language, one in pairs_with_english([pattern]).items():
        if not len(one):
            raise UserError(
                f"{pattern}: no line of {language} has text on both sides: no pairs to evaluate on"
            )
        count = limit or len(one)
        found[language] = Pairs(language, one.foreign[:count], one.english[:count], pattern)
    if not found:
        raise UserError(f"{pattern}: no pairs with English here")
    return {language: found[language] for language in _kept(Path(pattern), found, languages)}


def _kept(path: Path, files: Mapping[str, Any], languages: Sequence[str] | None) -> list[str]:
    kept = sorted(files)
    if languages is not None:
        kept = [language for language in kept if language in languages]
    if not kept:
        raise UserError(
            f"{path}: has pairs for {', '.join(sorted(files))} but none for the run's languages,"
            f" {', '.join(languages or ())}"
        )
    return kept


def given_pairs(path: str) -> list[HeldOut]:
    """As HELDOUT_PAIRS may name them: a folder, a stem, or a pattern as PARALLEL has. Raises
    UserError."""
    if Path(path).is_dir() or find_file(Path(f"{path}.{PIVOT}")):
        return held_out(read_pairs(path))
    found = []
    for pair in find_pairs([path]):
        file = str(pair.first.path)
        sides = [*zip(*pair.lines(), strict=True)] or [(), ()]
        found.append(HeldOut.of(file, pair.languages, sides))
    return found


def given_text(pattern: str) -> list[HeldOut]:
    """As HELDOUT_TEXT may name it. Raises UserError."""
    found = []
    for text in find_text([pattern]):
        lines = tuple(text.lines())
        found.append(HeldOut(str(text.path), (text.language,), (lines,)))
    return found


def held_out(pairs: Mapping[str, Pairs]) -> list[HeldOut]:
    """Pairs as what no training text should have."""
    found = []
    for language, one in pairs.items():
        sides = (one.foreign, one.english)
        found.append(HeldOut.of(one.file, (language, PIVOT), sides))
    return found


def _in_folder(folder: Path) -> dict[str, tuple[Path, Path]]:
    """{language: (its file, the English one)} of the pairs `XX-en.XX` + `XX-en.en`."""
    files = {}
    # Sorted, since a folder lists its files in no order of its own.
    for file in sorted(folder.iterdir()):
        stem, _, language = plain_name(file).rpartition(".")
        match = _PAIR.match(stem)
        if not match or language == PIVOT or set(match.groups()) != {language, PIVOT}:
            continue
        english = find_file(file.with_name(f"{stem}.{PIVOT}"))
        if english is None:
            raise UserError(f"{file}: its English side {stem}.{PIVOT} is missing")
        # de-en.de beside en-de.de, or beside a compressed copy: either may be meant.
        if language in files:
            other, _ = files[language]
            raise UserError(
                f"{folder}: both {other.name} and {file.name} hold {language}: name one by its stem"
            )
        files[language] = (file, english)
    return files


def _of_stem(stem: Path) -> dict[str, tuple[Path, Path]]:
    """{language: (its file, the English one)} of the files `STEM.XX`."""
    english = find_file(stem.with_name(f"{stem.name}.{PIVOT}"))
    if english is None:
        raise UserError(
            f"{stem}: neither a folder nor the beginning of a file name that ends in .{PIVOT}"
        )
    files = {}
    for file in sorted(stem.parent.glob(f"{stem.name}.*")):
        name, _, language = plain_name(file).rpartition(".")
        if name == stem.name and language != PIVOT:
            # NAME.de comes before NAME.de.gz, and is the one to read.
            files.setdefault(language, (file, english))
    return files
