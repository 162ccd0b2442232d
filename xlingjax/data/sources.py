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

import functools
import glob
import gzip
import hashlib
import io
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

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
_QUALIFIED = re.compile(r"[a-z]{2,3}[_-]([A-Z][a-z]{3}|[A-Z]{2}|[A-Z][a-z]{3}[_-][A-Z]{2})")
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
            pieces = (
                [line.strip() for line in text.split("\n")]
                if self.documents
                else [" ".join(text.split())]
            )
            yield from pieces
            if len(pieces) > 1:
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
        first, second = self.first.lines(), self.second.lines()
        for count, pair in enumerate(itertools.zip_longest(first, second)):
            if pair[0] is None:
                raise self.mismatch(count, count + 1 + sum(1 for _ in second))
            if pair[1] is None:
                raise self.mismatch(count + 1 + sum(1 for _ in first), count)
            yield pair

    def mismatch(self, first: int, second: int) -> UserError:
        """The error for sides of unequal length."""
        return UserError(
            f"parallel files differ in length: {self.first.path} has {first} lines,"
            f" {self.second.path} has {second}; line i of one must translate line i of the other"
        )


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


def content_hash(path: str | os.PathLike) -> str:
    """sha256 (hex) of a file's bytes, remembered until its size or time of change differ."""
    status = os.stat(path)
    return _content_hash(os.fspath(path), status.st_size, status.st_mtime_ns)


@functools.cache
def _content_hash(path: str, size: int, changed: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_bytes(path: str | os.PathLike) -> io.BufferedIOBase:
    """Opens a file for reading bytes, `.gz` and `.zst` uncompressed. Raises UserError if it cannot
    be opened."""
    path = Path(path)
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rb")
        if path.suffix == ".zst":
            try:
                import zstandard
            except ImportError:
                raise UserError(
                    f"{path}: reading .zst needs the package zstandard; `pip install zstandard`"
                ) from None
            return io.BufferedReader(
                zstandard.ZstdDecompressor().stream_reader(open(path, "rb"), closefd=True)
            )
        return open(path, "rb")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


def read_raw_lines(path: str | os.PathLike) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, bytes of the line without its end); only LF and CRLF end a line, a BOM
    is dropped.

    Raises UserError: the file cannot be opened, or is a damaged archive.
    """
    number = 0
    try:
        with open_bytes(path) as file:
            for number, raw in enumerate(file, 1):
                if number == 1 and raw.startswith(b"\xef\xbb\xbf"):
                    raw = raw[3:]
                yield number, raw.rstrip(b"\r\n")
    except UserError:
        raise
    except Exception as error:
        # zstandard has an exception of its own, which is only known where it is installed.
        if (
            not isinstance(error, OSError | EOFError | zlib.error)
            and type(error).__name__ != "ZstdError"
        ):
            raise
        raise UserError(
            f"{path}: damaged after line {number} ({error}); fetch or write the file again"
        ) from None


def read_lines(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
    """`read_raw_lines` as text. Raises UserError naming the file and line of the first byte that is
    not UTF-8, too."""
    for number, raw in read_raw_lines(path):
        try:
            yield number, raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}, line {number}: invalid UTF-8 (byte 0x{raw[error.start]:02x}, column"
                f" {error.start + 1}); convert the file, for example `iconv -f WINDOWS-1252 -t"
                " UTF-8`"
            ) from None


def _rows(path: Path) -> Iterator[tuple[dict | list[str], str]]:
    """Rows of a TSV (cells by header name, or a list without a header) or of a jsonl file, and
    where they stand."""
    if _format(path) == "jsonl":
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
            yield (
                {**row, **(row["translation"] if isinstance(row.get("translation"), dict) else {})},
                f"{path}, line {number}",
            )
        return
    header = _header(path)
    for number, line in read_lines(path):
        cells = line.split("\t")
        if header and number == 1:
            continue
        yield (
            (dict(zip(header, cells, strict=False)) if header else cells),
            f"{path}, line {number}",
        )


def _header(path: Path) -> list[str] | None:
    """A TSV's header, if its first line is one: it names a `text` column, or the two codes of the
    file's name."""
    first = next(read_lines(path), (1, ""))[1].split("\t")
    match = _PAIR_STEM.match(plain_name(path))
    codes = {match["src"], match["tgt"]} if match else set()
    return first if "text" in first or (codes and codes <= set(first)) else None


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


def plain_name(path: Path) -> str:
    """The file name without a compression ending."""
    return path.name.removesuffix(".gz").removesuffix(".zst")


def pair_side(path: Path) -> str:
    """Which side of which pairs the lines of a file are, "de-en.de", as its name tells; "" of other
    text."""
    match = _PAIR_STEM.match(plain_name(path))
    if match and match["end"] in (match["src"], match["tgt"]):
        return f"{'-'.join(sorted((match['src'], match['tgt'])))}.{match['end']}"
    return next((side for side in ("src", "tgt") if f".{side}." in path.name), "")


def _format(path: Path) -> str:
    ending = plain_name(path).rpartition(".")[2]
    return ending if ending in ("tsv", "jsonl") else "lines"


def is_language_code(text: str) -> bool:
    """Whether `text` is an ISO 639-1 code or a longer code with its script or region (`zh-TW`,
    `swh_Latn`)."""
    return text in _ISO_639_1 or bool(_QUALIFIED.fullmatch(text))


def language_from_path(path: Path) -> str:
    """The language a path names: its folder, else the last part of the file name that is a code.
    Raises UserError,
    also where folder and file name end in different codes: "to/news.de.txt" is hardly Tongan."""
    folder, parts = path.parent.name, plain_name(path).split(".")
    codes = [part for part in (folder, *reversed(parts)) if is_language_code(part)]
    ending = parts[-1] if is_language_code(parts[-1]) else "".join(parts[-2:-1])
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


def expand(patterns: str | Sequence[str], what: str = "text") -> list[tuple[Path, str | None]]:
    """(file, language written before its pattern), sorted, without repeats. A folder, named or
    matched, stands for all files in it.

    Raises UserError for a pattern that matches nothing.
    """
    found: dict[Path, str | None] = {}
    for pattern in [patterns] if isinstance(patterns, str | os.PathLike) else patterns:
        pattern = os.path.expanduser(os.fspath(pattern))
        explicit = re.fullmatch(rf"({_CODE}(?:-[A-Za-z]+)*)=(.+)", pattern)
        code, pattern = explicit.groups() if explicit else (None, pattern)
        matches = [pattern] if os.path.isdir(pattern) else glob.glob(pattern, recursive=True)
        folders = [glob.escape(match) for match in matches if os.path.isdir(match)]
        within = (glob.glob(f"{folder}/**/*", recursive=True) for folder in folders)
        paths = [Path(name) for name in sorted({*matches}.union(*within)) if os.path.isfile(name)]
        if not paths:
            what = f"file of language {code!r}" if code else f"{what} file"
            raise UserError(
                f"missing file: no {what} matches {pattern!r}, read from {os.getcwd()}; quote"
                " patterns on the command line"
            )
        found |= {path: code for path in paths}
    return sorted(found.items())


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
            languages = {
                str(cells[n]) for cells, _ in _rows(path) for n in _LANGUAGE_COLUMNS if cells.get(n)
            }
        texts += [Text(path, language, "text", True, True) for language in sorted(languages)] or [
            Text(path, code or language_from_path(path), "text", documents=True)
        ]
    return texts


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
        if not match or match["end"] not in (match["src"], match["tgt"], "tsv", "jsonl"):
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
        if match["end"] == "jsonl":
            sides = [Text(path, code, code) for code in codes]
        elif match["end"] == "tsv":
            # Without a header the columns are as the name says; the sides are sorted by language.
            order = [0, 1] if codes == [match["src"], match["tgt"]] else [1, 0]
            columns = codes if codes[0] != codes[1] and _header(path) is not None else order
            sides = [Text(path, code, column) for code, column in zip(codes, columns, strict=True)]
        else:
            sides = [Text(_partner(path, stem, code), code) for code in codes]
        pairs[path.parent / stem, match["end"] if match["end"] in ("tsv", "jsonl") else ""] = Pair(
            *sides
        )
    return list(pairs.values())


def stem_pairs(stem: str, languages: Sequence[str]) -> list[Pair]:
    """Every two of `languages` of one text in several, `test_2016.de`, `test_2016.en`,
    `test_2016.fr`; none where `stem` is not the beginning of such names."""
    files = ((code, find_file(Path(f"{stem}.{code}"))) for code in sorted(languages))
    return [
        Pair(*two)
        for two in itertools.combinations([Text(path, code) for code, path in files if path], 2)
    ]


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
    return Pair(
        *(Text(_side(path, other), code) for other in (source, source.replace(".src.", ".tgt.")))
    )


NEGATIVE = "negative"


def find_negatives(patterns: str | Sequence[str]) -> list[Triple]:
    """Tables `[name.]src-tgt.tsv` of `xlingjax mine --negatives`: columns src, tgt, and "negative",
    in language tgt.

    Raises UserError: no match, another kind of file, a column that is missing.
    """
    triples = []
    for path, _ in expand(patterns, "negatives"):
        match = _PAIR_STEM.match(plain_name(path))
        columns = [match["src"], match["tgt"], NEGATIVE] if match else []
        if not match or match["end"] != "tsv" or not {*columns} <= {*(_header(path) or ())}:
            wanted = (
                f"a line of column names with {', '.join(columns)}"
                if match
                else "a name like en-de.tsv"
            )
            raise UserError(
                f"{path}: no table of negatives, it lacks {wanted}; write one with `xlingjax mine"
                " --negatives`"
            )
        codes = match["src"], match["tgt"], match["tgt"]
        if codes[0] == codes[1]:
            raise UserError(
                f"{path}: a table of negatives has two languages, its name says {codes[0]} twice"
            )
        triples.append(
            Triple(*(Text(path, code, column) for code, column in zip(codes, columns, strict=True)))
        )
    return triples


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


def _partner(path: Path, stem: str, code: str) -> Path:
    return _side(path, f"{stem}.{code}")


def _side(path: Path, name: str) -> Path:
    other = path.with_name(name)
    if (found := find_file(other)) is None:
        raise UserError(f"missing file: {path} has no other side {other}")
    return found


def find_file(path: Path) -> Path | None:
    """The file `path`, or the one that is `path` compressed; None if neither is there."""
    candidates = (path.with_name(f"{path.name}{ending}") for ending in ("", ".gz", ".zst"))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def split_list(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """A list given as one string, its words apart by spaces or commas, or as a list."""
    if value is None:
        return ()
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else tuple(value)
