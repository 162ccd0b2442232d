"""IWSLT14's archive (de-en.tgz, unpacked) as line-aligned files, split as fairseq's
prepare-iwslt14.sh splits it, which the papers' figures are of.

Training: `train.tags.de-en.XX`, a talk's URL, keywords and id left out, title and description kept;
pairs of 1 to 175 Moses tokens a side, neither more than 1.5 times the other; every 23rd of what is
left is validation. Test: the five sets of `TEST`, one after the other.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from xlingjax.data.text.files import read_lines
from xlingjax.errors import UserError

TEST = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
RATIO = 1.5
LONGEST = 175
EVERY = 23
# Lines about a talk. The script leaves out no others, and its split counts what is left.
_ABOUT = re.compile(r"<(url|talkid|keywords)>")
_MARKS = re.compile(r"</?(title|description)>")
_SEGMENT = re.compile(r'<seg id="[0-9]*">\s*(.*?)\s*</seg>')

Pair = tuple[str, str]


def read_iwslt(
    folder: str | Path, languages: Sequence[str], tokenisers: Sequence[Callable[[str], str]]
) -> dict[str, list[Pair]]:
    """{"train", "valid", "test": pairs of lines}, as they stand in the files.

    languages: those of the archive in its order, de and en. tokenisers: of each, whose words are
    counted. Raises UserError for a file that is missing, and for sides of unequal length.
    """
    folder = Path(folder)
    direction = "-".join(languages)
    sides = []
    for language in languages:
        path = folder / f"train.tags.{direction}.{language}"
        sides.append([*_training_lines(path)])
    kept = []
    for pair in _aligned(sides, folder / f"train.tags.{direction}"):
        counts = [
            len(tokenise(line).split()) for line, tokenise in zip(pair, tokenisers, strict=True)
        ]
        if _is_clean(*counts):
            kept.append(pair)
    train, valid = [], []
    for number, pair in enumerate(kept, start=1):
        if number % EVERY == 0:
            valid.append(pair)
        else:
            train.append(pair)
    test = []
    for name in TEST:
        stem = folder / f"IWSLT14.{name}.{direction}"
        sides = []
        for language in languages:
            path = stem.with_name(f"{stem.name}.{language}.xml")
            sides.append([*_segments(path)])
        test += _aligned(sides, stem)
    return {"train": train, "valid": valid, "test": test}


def _is_clean(first: int, second: int) -> bool:
    """As clean-corpus-n.perl -ratio 1.5 CORPUS 1 175."""
    shorter, longer = sorted((first, second))
    return shorter >= 1 and longer <= LONGEST and longer <= RATIO * shorter


def _aligned(sides: Sequence[Sequence[str]], stem: Path) -> list[Pair]:
    first, second = sides
    if len(first) != len(second):
        raise UserError(
            f"{stem}: {len(first)} and {len(second)} lines in its two languages: unpack the archive"
            " anew"
        )
    return [*zip(first, second, strict=True)]


def _lines(path: Path) -> Iterator[str]:
    if not path.is_file():
        raise UserError(f"missing file: {path}; give the folder de-en of IWSLT14's de-en.tgz")
    for _, line in read_lines(path):
        yield line


def _training_lines(path: Path) -> Iterator[str]:
    for line in _lines(path):
        if not _ABOUT.search(line):
            # An empty line is a line: the other language has one beside it.
            yield " ".join(_MARKS.sub("", line).split())


def _segments(path: Path) -> Iterator[str]:
    found = False
    for line in _lines(path):
        segment = _SEGMENT.search(line)
        if segment:
            found = True
            # As the script writes apostrophes.
            yield " ".join(segment[1].replace("’", "'").split())
    if not found:
        raise UserError(f'{path}: no <seg id="...">: it is no test set of IWSLT')
