"""Text as people have it on disk: which files a pattern means, their languages, and their lines.

Monolingual text, one sentence per line, a blank line ends a document: `.txt` (or any other ending),
`.tsv` with a header naming a `text` column, `.jsonl` with a `text` field. Pairs: line-aligned
`[name.]src-tgt.src` and `[name.]src-tgt.tgt`, `[name.]src-tgt.tsv` of two columns,
`[name.]src-tgt.jsonl` with a field per code. Pairs within one language, a source and its target (an
article and its title): `code=` before a `.tsv` of two columns without a header, or before XGLUE's
`name.src.end`, beside which stands `name.tgt.end`. Each may end in `.gz` or `.zst`.

The language of monolingual text is, in this order: a `code=` written before the pattern; a
`language` or `lang` column; the folder; a part of the file name (`news.de.txt`).
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from xlingjax.data.text_files import content_hash, find_file, plain_name, read_lines
from xlingjax.errors import UserError

# ISO 639-1, and longer codes only with a script or region: three letters alone are too often an
# ordinary word.
_ISO_639_1 = frozenset(
    re.findall(
        "..",
        "aaabaeafakamanarasavayazbabebgbhbibmbnbobrbscacechcocrcscucvcydadedvdzeeeleneoeseteufafffifjfofrfygagdglgngugv"
        "hahehihohrhthuhyhziaidieigiiikioisitiujajvkakgkikjkkklkmknkokrkskukvkwkylalblglilnloltlulvmgmhmimkmlmnmrmsmtmy"
        "nanbndnengnlnnnonrnvnyocojomorospapiplpsptqurmrnrorurwsascsdsesgsiskslsmsnsosqsrssstsusvswtatetgthtitktltntotr"
        "tstttwtyugukuruzvevivowawoxhyiyozazhzu",
    )
)
_QUALIFIED = re.compile(
    r"[a-z]{2,3}[_-]([A-Z][a-z]{3}|[A-Z]{2}|[A-Z][a-z]{3}[_-][A-Z]{2})"
)
_CODE = r"[A-Za-z]{2,3}(?:_[A-Za-z]{2,8})*"
_PAIR_STEM = re.compile(
    rf"^(?:(?P<name>.+)\.)?(?P<src>{_CODE})-(?P<tgt>{_CODE})\.(?P<end>{_CODE}|tsv|jsonl)$"
)
_LANGUAGE_COLUMNS = ("language", "lang")


@dataclass(frozen=True)
class Text:
    """The lines of one language in one file.

    `column` picks them from a TSV or jsonl row; `only_language` keeps the rows of this language;
    `documents` reads a cell of several lines as a document, otherwise each cell is one line.
    """

    path: Path
    language: str
    column: int | str | None = None
    only_language: bool = False
    documents: bool = False

    @property
    def key(self) -> str:
        """What is read, independent of where the file lies: the hash of its bytes and the
        column."""
        language = self.language if self.only_language else ""
        return f"{content_hash(self.path)}:{self.column}:{language}:{self.documents}"

    def lines(self) -> Iterator[str]:
        """Each line without surrounding space; "" ends a document. Raises UserError naming file and
        line."""
        if self.column is None:
            yield from (line.strip() for _, line in read_lines(self.path))
            return
        for cells, where in _rows(self.path):
            if self.only_language and _language_of(cells, where) != self.language:
                continue
            text = _cell(cells, self.column, where)
            if not self.documents:
                # A cell of a pair is one line, or the lines of its sides would no longer match.
                yield " ".join(text.split())
                continue
            lines = [line.strip() for line in text.split("\n")]
            yield from lines
            if len(lines) > 1:
                yield ""


@dataclass(frozen=True)
class Pair:
    """Two texts of which line i of one translates line i of the other; `first.language` sorts
    first. Of one language:
    a source and its target, or two wordings."""

    first: Text
    second: Text

    @property
    def sides(self) -> tuple[Text, ...]:
        return self.first, self.second

    @property
    def languages(self) -> tuple[str, ...]:
        return tuple(side.language for side in self.sides)

    @property
    def translates(self) -> bool:
        """Whether its sides are in two languages, and not one a rewording of the other."""
        return self.first.language != self.second.language

    def lines(self) -> Iterator[tuple[str, str]]:
        """Aligned lines. Raises UserError naming both counts if one side has more."""
        first = self.first.lines()
        second = self.second.lines()
        for count, pair in enumerate(itertools.zip_longest(first, second)):
            # The longer side is read to its end, since the error names both counts.
            if pair[0] is None:
                raise self.mismatch(count, count + 1 + _count(second))
            if pair[1] is None:
                raise self.mismatch(count + 1 + _count(first), count)
            yield pair

    def mismatch(self, first: int, second: int) -> UserError:
        """The error for sides of unequal length."""
        return UserError(
            f"parallel files differ in length: {self.first.path} has {first} lines,"
            f" {self.second.path} has {second}; line i of one must translate line i of the other"
        )


def _count(lines: Iterator[str]) -> int:
    return sum(1 for _ in lines)


@dataclass(frozen=True)
class Triple(Pair):
    """A sentence, its translation, and a sentence of the translation's language that does not
    translate it, in the columns of one table."""

    third: Text

    @property
    def sides(self) -> tuple[Text, ...]:
        return self.first, self.second, self.third

    def lines(self) -> Iterator[tuple[str, ...]]:
        return zip(*(side.lines() for side in self.sides), strict=True)


def _rows(path: Path) -> Iterator[tuple[dict | list[str], str]]:
    """Rows of a TSV (cells by header name, or a list without a header) or of a jsonl file, and
    where they stand."""
    if _format(path) == "jsonl":
        yield from _rows_of_jsonl(path)
    else:
        yield from _rows_of_tsv(path)


def _rows_of_jsonl(path: Path) -> Iterator[tuple[dict, str]]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise UserError(
                f"{path}, line {number}: not a JSON object; jsonl has one object per line"
            )
        # The data sets of translations on the Hugging Face hub have the codes in this field.
        translation = row.get("translation")
        if isinstance(translation, dict):
            row = {**row, **translation}
        yield row, f"{path}, line {number}"


def _rows_of_tsv(path: Path) -> Iterator[tuple[dict | list[str], str]]:
    header = _header(path)
    for number, line in read_lines(path):
        if header and number == 1:
            continue
        cells = line.split("\t")
        if header:
            # A short row lacks cells; `_cell` says so for the column that is read.
            cells = dict(zip(header, cells, strict=False))
        yield cells, f"{path}, line {number}"


def _header(path: Path) -> list[str] | None:
    """A TSV's header, if its first line is one: it names a `text` column, or the two codes of the
    file's name."""
    _, line = next(read_lines(path), (1, ""))
    cells = line.split("\t")
    if "text" in cells:
        return cells
    match = _PAIR_STEM.match(plain_name(path))
    if match and {match["src"], match["tgt"]} <= set(cells):
        return cells
    return None


def _cell(cells: dict | list[str], column: int | str, where: str) -> str:
    try:
        text = cells[column]
    except IndexError:
        raise UserError(
            f"{where}: no column {column + 1} of {len(cells)}: put tabs between columns"
        ) from None
    except KeyError:
        raise UserError(f"{where}: no column {column!r}") from None
    if not isinstance(text, str):
        raise UserError(f"{where}: column {column!r} is not text")
    return text


def _language_of(cells: dict | list[str], where: str) -> str:
    for name in _LANGUAGE_COLUMNS:
        if isinstance(cells, dict) and cells.get(name):
            return str(cells[name])
    raise UserError(f"{where}: no language; fill its `language` column")


def pair_side(path: Path) -> str:
    """Which side of which pairs the lines of a file are, "de-en.de", as its name tells; "" of other
    text."""
    match = _PAIR_STEM.match(plain_name(path))
    if match and match["end"] in (match["src"], match["tgt"]):
        codes = sorted((match["src"], match["tgt"]))
        return f"{'-'.join(codes)}.{match['end']}"
    for side in ("src", "tgt"):
        if f".{side}." in path.name:
            return side
    return ""


def _format(path: Path) -> str:
    ending = plain_name(path).rpartition(".")[2]
    if ending in ("tsv", "jsonl"):
        return ending
    return "lines"


def is_language_code(text: str) -> bool:
    """Whether `text` is an ISO 639-1 code or a longer code with its script or region (`zh-TW`,
    `swh_Latn`)."""
    return text in _ISO_639_1 or bool(_QUALIFIED.fullmatch(text))


def language_from_path(path: Path) -> str:
    """The language a path names: its folder, else the last part of the file name that is a code.
    Raises UserError, also where folder and file name end in different codes: "to/news.de.txt" is
    hardly Tongan."""
    folder = path.parent.name
    parts = plain_name(path).split(".")
    codes = [part for part in (folder, *reversed(parts)) if is_language_code(part)]
    ending = parts[-1]
    if not is_language_code(ending):
        # "news.de.txt": the code is before the ending.
        ending = "".join(parts[-2:-1])
    if codes and folder == codes[0] != ending and is_language_code(ending):
        raise UserError(
            f"language of {path}: the folder says {folder}, the file name {ending}: "
            f"write the right one before the pattern, like {ending}=path"
        )
    if codes:
        return codes[0]
    raise UserError(
        f"cannot tell the language of {path}: put it in a folder named by its code, name it like"
        " news.de.txt, or write the code before the pattern, like lin=path"
    )


def expand(
    patterns: str | Sequence[str], what: str = "text"
) -> list[tuple[Path, str | None]]:
    """(file, language written before its pattern), sorted, without repeats. A folder, named or
    matched, stands for all files in it.

    Raises UserError for a pattern that matches nothing.
    """
    if isinstance(patterns, str | os.PathLike):
        patterns = [patterns]
    language_of: dict[Path, str | None] = {}
    for pattern in patterns:
        pattern = os.path.expanduser(os.fspath(pattern))
        code = None
        explicit = re.fullmatch(rf"({_CODE}(?:-[A-Za-z]+)*)=(.+)", pattern)
        if explicit:
            code, pattern = explicit.groups()
        paths = _files(pattern)
        if not paths:
            what = f"file of language {code!r}" if code else f"{what} file"
            raise UserError(
                f"missing file: no {what} matches {pattern!r}, read from {os.getcwd()}; quote"
                " patterns on the command line"
            )
        for path in paths:
            language_of[path] = code
    return sorted(language_of.items())


def _files(pattern: str) -> list[Path]:
    """The files that a pattern means, those in folders among them."""
    if os.path.isdir(pattern):
        # As it stands: a folder's name may have brackets, which `glob` would read as a pattern.
        names = {pattern}
    else:
        names = set(glob.glob(pattern, recursive=True))
    for folder in [name for name in names if os.path.isdir(name)]:
        names.update(glob.glob(f"{glob.escape(folder)}/**/*", recursive=True))
    return [Path(name) for name in sorted(names) if os.path.isfile(name)]


def find_text(patterns: str | Sequence[str]) -> list[Text]:
    """Monolingual texts for the patterns. Raises UserError: no match, unknown language, a table
    without `text`."""
    texts = []
    for path, code in expand(patterns, "monolingual"):
        if _format(path) == "lines":
            texts.append(Text(path, code or language_from_path(path)))
            continue
        if _format(path) == "tsv" and _header(path) is None:
            raise UserError(
                f"{path}: the first line must name the columns; one must be `text`, one may be"
                " `language`"
            )
        languages = set()
        if code is None:
            languages = _languages_in(path)
        for language in sorted(languages):
            texts.append(
                Text(path, language, "text", only_language=True, documents=True)
            )
        if not languages:
            texts.append(
                Text(path, code or language_from_path(path), "text", documents=True)
            )
    return texts


def _languages_in(path: Path) -> set[str]:
    """What the language columns of a table hold; nothing where it has none."""
    languages = set()
    for cells, _ in _rows(path):
        for name in _LANGUAGE_COLUMNS:
            if cells.get(name):
                languages.add(str(cells[name]))
    return languages


def find_pairs(patterns: str | Sequence[str]) -> list[Pair]:
    """Aligned pairs for the patterns; naming one side of a pair of files is enough. With a `code=`
    before the pattern they lie within that language, the source first.

    Raises UserError: no match, a name that does not tell the languages, a side that is missing.
    """
    pairs: dict[tuple[Path, str], Pair] = {}
    for path, code in expand(patterns, "parallel"):
        if code is not None:
            pair = _within(path, code)
            pairs[pair.first.path, "within"] = pair
            continue
        match = _PAIR_STEM.match(plain_name(path))
        if not match or match["end"] not in (
            match["src"],
            match["tgt"],
            "tsv",
            "jsonl",
        ):
            raise UserError(
                f"{path}: name pairs like de-en.de and de-en.en, de-en.tsv or de-en.jsonl"
            )
        codes = sorted((match["src"], match["tgt"]))
        stem = plain_name(path).removesuffix(f".{match['end']}")
        if codes[0] == codes[1] and match["end"] != "tsv":
            raise UserError(
                f"{path}: two sentences of one language, a text and its rewording, come in two"
                f" columns of {stem}.tsv"
            )
        # The two sides of a pair of files have one key, so that naming both gives one pair; a table
        # of the same stem is another text.
        kind = match["end"]
        if kind == "jsonl":
            sides = [Text(path, code, code) for code in codes]
        elif kind == "tsv":
            columns = _columns(path, match["src"], match["tgt"])
            sides = [
                Text(path, code, column)
                for code, column in zip(codes, columns, strict=True)
            ]
        else:
            kind = ""
            sides = [Text(_side(path, f"{stem}.{code}"), code) for code in codes]
        pairs[path.parent / stem, kind] = Pair(*sides)
    return list(pairs.values())


def _columns(path: Path, source: str, target: str) -> list[str] | list[int]:
    """The columns of a table of pairs, in sorted order of their languages: as its header names
    them, or without one as its file name does."""
    if source != target and _header(path) is not None:
        return sorted((source, target))
    if source <= target:
        return [0, 1]
    return [1, 0]


def stem_pairs(stem: str, languages: Sequence[str]) -> list[Pair]:
    """Every two of `languages` of one text in several, `test_2016.de`, `test_2016.en`,
    `test_2016.fr`; none where `stem` is not the beginning of such names."""
    texts = []
    for code in sorted(languages):
        path = find_file(Path(f"{stem}.{code}"))
        if path is not None:
            texts.append(Text(path, code))
    return [Pair(first, second) for first, second in itertools.combinations(texts, 2)]


def _within(path: Path, code: str) -> Pair:
    """The source and the target of one language that a file holds, or it and the file beside it."""
    if _format(path) == "tsv":
        return Pair(Text(path, code, 0), Text(path, code, 1))
    name = plain_name(path)
    if ".src." not in name and ".tgt." not in name:
        raise UserError(
            f"{path}: within one language ({code}=) a source and its target are two columns of a"
            " .tsv, or files like xglue.ntg.en.src.dev and xglue.ntg.en.tgt.dev; for translations"
            " leave the code out"
        )
    source = name.replace(".tgt.", ".src.")
    target = source.replace(".src.", ".tgt.")
    return Pair(Text(_side(path, source), code), Text(_side(path, target), code))


NEGATIVE = "negative"


def find_negatives(patterns: str | Sequence[str]) -> list[Triple]:
    """Tables `[name.]src-tgt.tsv` of `xlingjax mine --negatives`: columns src, tgt, and "negative",
    in language tgt.

    Raises UserError: no match, another kind of file, a column that is missing.
    """
    triples = []
    for path, _ in expand(patterns, "negatives"):
        match = _PAIR_STEM.match(plain_name(path))
        if not match:
            raise _no_table(path, "a name like en-de.tsv")
        columns = [match["src"], match["tgt"], NEGATIVE]
        if match["end"] != "tsv" or not set(columns) <= set(_header(path) or ()):
            raise _no_table(path, f"a line of column names with {', '.join(columns)}")
        codes = match["src"], match["tgt"], match["tgt"]
        if codes[0] == codes[1]:
            raise UserError(
                f"{path}: a table of negatives has two languages, its name says {codes[0]} twice"
            )
        sides = [
            Text(path, code, column)
            for code, column in zip(codes, columns, strict=True)
        ]
        triples.append(Triple(*sides))
    return triples


def _no_table(path: Path, lacking: str) -> UserError:
    return UserError(
        f"{path}: no table of negatives, it lacks {lacking}; write one with `xlingjax mine"
        " --negatives`"
    )


def pair_table(stem: str, languages: tuple[str, str]) -> Path:
    """`STEM.SRC-TGT.tsv`, which `find_pairs` reads. Raises UserError for two codes that it would
    not read."""
    source, target = languages
    name = f"{source}-{target}.tsv"
    if source == target or not _PAIR_STEM.match(name):
        raise UserError(
            f"--languages {source} {target}: name two languages by codes like de or zh_TW, as files"
            " of pairs are named"
        )
    if stem.endswith(os.sep):
        raise UserError(
            f"--output {stem}: give the folder and a name, {stem}mined for {stem}mined.{name}"
        )
    return Path(f"{stem}.{name}")


def _side(path: Path, name: str) -> Path:
    """The file of this name beside `path`."""
    other = path.with_name(name)
    file = find_file(other)
    if file is None:
        raise UserError(f"missing file: {path} has no other side {other}")
    return file


def split_list(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """A list given as one string, its entries apart by spaces or commas, or as a list."""
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(value.replace(",", " ").split())
    return tuple(value)
