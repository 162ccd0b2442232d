"""Line-aligned sentence pairs with a pivot, as retrieval and translation perplexity read them. The
pivot is English, or where no pair has it the language of most pairs.

Named as PARALLEL names files, like a folder of `XX-en.XX` + `XX-en.en` (Tatoeba), or by a stem with
one file per language, `test_2016_flickr.de`, `test_2016_flickr.en` (LASER, Moses).
"""

import glob
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xlingjax.data.overlap import HeldOut
from xlingjax.data.text.files import find_file, plain_name, read_lines
from xlingjax.data.text.sources import find_pairs
from xlingjax.data.text.texts import Pair, Text
from xlingjax.errors import UserError

PIVOT = "en"


@dataclass(frozen=True)
class Pairs:
    """Sentence i of `foreign`, in `language`, means what sentence i of `english` does, which is in
    `pivot`."""

    language: str
    foreign: tuple[str, ...]
    english: tuple[str, ...]
    file: str = field(default="", compare=False)  # that the foreign side is from
    pivot: str = PIVOT

    def __len__(self) -> int:
        return len(self.foreign)


def lines_of(path: str | Path) -> list[str]:
    """The lines of a UTF-8 file, compressed or not, stripped. Raises UserError: file and line."""
    return [line.strip() for _, line in read_lines(path)]


def aligned_lines(first: str | Path, second: str | Path) -> list[tuple[str, str]]:
    """`lines_of` two files. Raises UserError where one has more."""
    return [*Pair(Text(Path(first), ""), Text(Path(second), "")).lines()]


def pairs_with_pivot(patterns: Sequence[str]) -> dict[str, Pairs]:
    """{language: pairs of the pivot and it in training text, without empty sides, file by file}."""
    return _with_pivot(find_pairs(patterns))


def pivot_of(files: Sequence[Pair]) -> str:
    """The language of most pairs of languages; of equals English, or else the last."""
    pairs = {pair.languages for pair in files if pair.translates}
    count = Counter(code for languages in pairs for code in languages)
    return max(count, key=lambda code: (count[code], code == PIVOT, code), default="")


def _with_pivot(files: Sequence[Pair]) -> dict[str, Pairs]:
    lines: dict[str, list[tuple[str, str]]] = {}
    names: dict[str, str] = {}
    pivot = pivot_of(files)
    for pair in files:
        if pivot not in pair.languages or not pair.translates:
            continue
        # The pivot may be either side: which one follows from the names of the files.
        english = pair.languages.index(pivot)
        foreign = 1 - english
        language = pair.languages[foreign]
        names.setdefault(language, str(pair.sides[foreign].path))
        of_language = lines.setdefault(language, [])
        of_language += [(line[foreign], line[english]) for line in pair.lines() if all(line)]
    pairs = {}
    for language, both in lines.items():
        sides = [*zip(*both, strict=True)] or [(), ()]
        pairs[language] = Pairs(language, *sides, names[language], pivot)
    return pairs


def read_pairs(
    path: str | Path, languages: Sequence[str] | None = None, limit: int = 0
) -> dict[str, Pairs]:
    """{language: Pairs} of a pattern, a folder or a stem (see the module's first lines), languages
    sorted. Pairs with an empty side are left out; `limit` > 0 keeps the first of the others.

    languages: keep these only; None keeps all. Raises UserError when nothing is left.
    """
    found = _with_pivot(_files(str(path)))
    kept = sorted(code for code in found if languages is None or code in languages)
    if not kept:
        raise UserError(
            f"{path}: no pairs of translations"
            + (f" of the run's languages, {', '.join(languages)}" if languages else " here")
        )
    pairs = {}
    for language in kept:
        one = found[language]
        if not len(one):
            raise UserError(f"{one.file}: no line has text on both sides: no pairs to evaluate on")
        count = limit or len(one)
        sides = one.foreign[:count], one.english[:count]
        pairs[language] = Pairs(language, *sides, one.file, one.pivot)
    return pairs


def _files(path: str) -> list[Pair]:
    stem = Path(path)
    english = find_file(Path(f"{path}.{PIVOT}"))
    if stem.is_dir():
        # Other files may lie beside the pairs.
        return find_pairs(f"{glob.escape(path)}/*-*")
    if english is None:
        return find_pairs(path)
    pairs = {}
    for file in sorted(stem.parent.glob(f"{stem.name}.*")):
        name, _, language = plain_name(file).rpartition(".")
        if name == stem.name and language != PIVOT:
            sides = sorted([Text(file, language), Text(english, PIVOT)], key=lambda t: t.language)
            # NAME.de comes before NAME.de.gz, and is the one to read.
            pairs.setdefault(language, Pair(*sides))
    return [*pairs.values()]


def held_out(pairs: Mapping[str, Pairs]) -> list[HeldOut]:
    """Pairs as what no training text should have."""
    found = []
    for language, one in pairs.items():
        sides = (one.foreign, one.english)
        found.append(HeldOut.of(one.file, (language, one.pivot), sides))
    return found
