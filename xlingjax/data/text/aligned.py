"""Pairs as people have them: two line-aligned files of any names, folders and tables of pairs,
translation memories."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import langcodes

from xlingjax.data.languages import known_as, standard_code
from xlingjax.data.text.files import is_damage, open_bytes, plain_name, read_lines
from xlingjax.data.text.given import parse_object
from xlingjax.data.text.names import CODE, PAIR_STEM
from xlingjax.data.text.other_formats import refuse_other_formats
from xlingjax.data.text.sources import expand, find_pairs
from xlingjax.data.text.texts import Pair, Text
from xlingjax.errors import UserError

TABLES = (".tsv", ".jsonl", ".json", ".tmx")
MARKUP = ("bpt", "ept", "ph", "it", "ut")  # of a translation memory: what a tool wrote, no words
LANG = "{http://www.w3.org/XML/1998/namespace}lang"

Codes = tuple[str, str]
Lines = dict[Codes, list[tuple[str, str]]]
"""{two codes, sorted: the lines of both sides}."""
Source = tuple[Codes, Iterable[tuple[str, str]]]


def require_two(codes: Sequence[str]) -> None:
    """Raise UserError unless files of pairs can be named by the two codes."""
    where = f"--languages {' '.join(codes)}"
    for code in codes:
        if not re.fullmatch(CODE, code):
            raise UserError(f"{where}: {code!r} is no code like sw, kab or zh_Hans")
    a, b = codes
    if standard_code(a) == standard_code(b):
        raise UserError(f"{where}: give two languages")
    match = PAIR_STEM.match(f"{a}-{b}.{a}")
    if not match or match.group("src", "tgt") != (a, b):
        raise UserError(f"{where}: write regions with _, like fr_CA")


def files_of(inputs: Sequence[str]) -> list[Path]:
    """The files that inputs name. Raises UserError for one that is not there."""
    return [path for path, _ in expand(inputs, "aligned")]


def read_aligned(inputs: Sequence[str], languages: Sequence[str]) -> Lines:
    """All pairs as they stand, also those that lack a side. languages: of the two sides, where
    neither names nor tables tell them. Raises UserError: a missing file, one that is not read,
    pairs that have no language in common."""
    files_of(inputs)
    lines: Lines = {}
    for (a, b), pairs in _sources(inputs, languages):
        # A file may say nothing of both; one that says something else is not the one meant.
        if languages and {a, b} != {*languages}:
            raise UserError(f"--languages {' '.join(languages)}: {a}-{b} is named by its file")
        sides = pairs if a <= b else ((y, x) for x, y in pairs)
        lines.setdefault((min(a, b), max(a, b)), []).extend(sides)
    if not lines:
        raise UserError(f"{' '.join(inputs)}: no pairs of two languages")
    shared = Counter(code for codes in lines for code in codes)
    if len(lines) > 1 and max(shared.values()) < len(lines):
        told = ", ".join("-".join(codes) for codes in lines)
        raise UserError(f"{told}: no language is in all of them, to measure against; start each")
    return lines


def _sources(inputs: Sequence[str], languages: Sequence[str]) -> Iterator[Source]:
    paths = [Path(one) for one in inputs]
    lone = [path for path in paths if path.is_file() and not plain_name(path).endswith(TABLES)]
    if len(paths) == 2 and len(lone) == 2:
        first, second = lone
        for path in lone:
            refuse_other_formats(path)
        told = _told_by_names(first, second)
        # In the order of the files, whatever the order of the option.
        a, b = told if told and {*told} == {*languages} else languages or told or ("", "")
        if not a:
            raise UserError(
                f"{first.name}, {second.name}: the names do not tell the languages, as train.en and"
                " train.sw do; give --languages A B"
            )
        require_two((a, b))
        yield (a, b), Pair(Text(first, a), Text(second, b)).lines()
        return
    for pattern, path in zip(inputs, paths, strict=True):
        name = plain_name(path)
        if name.endswith(".tmx"):
            for file, _ in expand([pattern], "aligned"):
                yield _memory(file, languages)
        elif not path.is_file() or PAIR_STEM.match(name):
            for pair in find_pairs(pattern):
                if pair.translates:
                    yield pair.languages, pair.lines()
        elif path in lone:
            raise UserError(
                f"{path}: give its other side beside it, alone, or a table: {', '.join(TABLES)}"
            )
        else:
            yield _table(path, languages or _told_by_table(path))


def _are_codes(codes: Sequence[str]) -> bool:
    """Whether these are two languages, and no words that are spelled like their codes."""
    known = (re.fullmatch(CODE, code) and langcodes.tag_is_valid(code) for code in codes)
    return len(codes) == 2 and all(known) and "src" not in codes


def _told_by_names(first: Path, second: Path) -> Codes | None:
    """The one part in which the names of two files differ; None: it is no code."""
    names = [plain_name(path).split(".") for path in (first, second)]
    differing = [pair for pair in zip(*names, strict=False) if pair[0] != pair[1]]
    if len(names[0]) == len(names[1]) and len(differing) == 1:
        (codes,) = differing
        return codes if _are_codes(codes) else None
    return None


def _told_by_table(path: Path) -> Sequence[str]:
    """The codes in the header of a .tsv, or among the fields of the first JSON object."""
    _, line = next(read_lines(path), (1, ""))
    if plain_name(path).endswith(".tsv"):
        fields = [cell.strip() for cell in line.split("\t")]
    else:
        row = parse_object(line, f"{path}, line 1")
        # Data sets of translations on the Hugging Face hub have the codes in this field.
        translation = row.get("translation")
        fields = [*(translation if isinstance(translation, dict) else row)]
    codes = [one for one in fields if re.fullmatch(CODE, one) and langcodes.tag_is_valid(one)]
    # Beside two others it numbers the rows, and is not Indonesian.
    if len(codes) == 3 and "id" in codes:
        codes.remove("id")
    if not _are_codes(codes):
        raise UserError(
            f"{path}: neither its name nor its first line tells the two languages; give"
            " --languages A B"
        )
    require_two(codes)
    return codes


def _table(path: Path, languages: Sequence[str]) -> Source:
    """By the names of columns or fields, else the first two columns."""
    a, b = languages
    if not plain_name(path).endswith(".tsv"):
        return (a, b), Pair(Text(path, a, a), Text(path, b, b)).lines()
    _, line = next(read_lines(path), (1, ""))
    header = [known_as(cell.strip(), languages) for cell in line.split("\t")]
    if {a, b} <= {*header}:
        return (a, b), _columns(path, header.index(a), header.index(b))
    return (a, b), Pair(Text(path, a, 0), Text(path, b, 1)).lines()


def _columns(path: Path, first: int, second: int) -> Iterator[tuple[str, str]]:
    """Two columns of a .tsv with a header, below it."""
    for number, line in itertools.islice(read_lines(path), 1, None):
        cells = line.split("\t")
        if len(cells) <= max(first, second):
            raise UserError(
                f"{path}, line {number}: {len(cells)} columns, and the header names"
                f" {max(first, second) + 1}: put tabs between columns"
            )
        yield " ".join(cells[first].split()), " ".join(cells[second].split())


def _memory(path: Path, given: Sequence[str]) -> Source:
    """The units of a translation memory that have both languages: those given, or its only two."""
    units: list[dict[str, str]] = []
    try:
        with open_bytes(path) as file:
            for _, unit in ElementTree.iterparse(file):
                if _tag(unit) == "tu":
                    units.append(dict(_sides(unit)))
                    unit.clear()
    except Exception as error:
        if not is_damage(error) and not isinstance(error, SyntaxError | ValueError | LookupError):
            raise
        raise UserError(f"{path} is no translation memory that can be read: {error}") from None
    found = [*dict.fromkeys(code for unit in units for code in unit)]
    names = {code: known_as(code, given) or code for code in found}
    codes = [*(given or names.values())]
    if len({*codes}) != 2 or not {*codes} <= {*names.values()}:
        told = ", ".join(found) or "none"
        raise UserError(f"{path}: its languages are {told}; name two of them by --languages")
    a, b = codes
    require_two((a, b))
    of_codes = ({names[code]: text for code, text in unit.items()} for unit in units)
    return (a, b), ((unit[a], unit[b]) for unit in of_codes if {a, b} <= {*unit})


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _sides(unit: ElementTree.Element) -> Iterator[tuple[str, str]]:
    for side in unit:
        code = side.get(LANG) or side.get("lang") or ""
        # Without the region that a tool is set to, but where it is another script.
        if not code.lower().startswith("zh"):
            code = re.sub("[-_][A-Za-z]{2}$", "", code)
        if _tag(side) == "tuv" and code:
            segments = [child for child in side if _tag(child) == "seg"]
            text = " ".join("".join(_words(segments[0])).split()) if segments else ""
            yield code.replace("-", "_"), text


def _words(segment: ElementTree.Element) -> Iterator[str]:
    yield segment.text or ""
    for child in segment:
        if _tag(child) not in MARKUP:
            yield from _words(child)
        yield child.tail or ""
