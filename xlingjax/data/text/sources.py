"""Text as people have it on disk: which files a pattern means, their languages, and their lines.

Monolingual text, one sentence per line, a blank line ends a document: `.txt` (or any other ending),
`.tsv` with a header naming a `text` column, `.jsonl` with a `text` field. Pairs: line-aligned
`[name.]src-tgt.src` and `[name.]src-tgt.tgt`, `[name.]src-tgt.tsv` of two columns,
`[name.]src-tgt.jsonl` with a field per code. Pairs within one language, a source and its target (an
article and its title): `code=` before a `.tsv` of two columns without a header, or before XGLUE's
`name.src.end`, beside which stands `name.tgt.end`. Each may end in `.gz`, `.zst`, `.xz` or `.bz2`.

The language of monolingual text is, in this order: a `code=` written before the pattern; a
`language` or `lang` column; the folder; a part of the file name (`news.de.txt`).
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.store.entries import cache_root
from xlingjax.data.text.files import find_file, plain_name, refuse_lost_link
from xlingjax.data.text.names import CODE, PAIR_STEM, file_format, language_from_path
from xlingjax.data.text.other_formats import refuse_other_formats
from xlingjax.data.text.texts import Pair, Text, Triple, languages_in, table_header
from xlingjax.errors import UserError
from xlingjax.runtime.files import require_unicode
from xlingjax.runtime.machine import first_line

Patterns = str | Sequence[str]


def expand(patterns: Patterns, what: str = "text") -> list[tuple[Path, str | None]]:
    """(file, language written before its pattern), sorted, without repeats. A folder, named or
    matched, stands for all files in it.

    Raises UserError for a pattern that matches nothing, or a link that leads nowhere.
    """
    # A string is a sequence of strings, too: each letter would be a pattern.
    if isinstance(patterns, str | os.PathLike):
        patterns = [patterns]
    language_of: dict[Path, str | None] = {}
    # A file that is named by two paths is one.
    found: dict[str, Path] = {}
    for pattern in patterns:
        pattern = os.path.expanduser(os.fspath(pattern))
        code = None
        # Only a code before "=", so that a path with "=" in it (Hive's year=2020) is no language.
        explicit = re.fullmatch(rf"({CODE}(?:-[A-Za-z0-9]+)*)=(.+)", pattern, re.DOTALL)
        if explicit:
            code, pattern = explicit.groups()
        paths = fetched(pattern) if is_remote(pattern) else _files(pattern)
        if not paths:
            raise UserError(
                f"missing file: no {what} file matches {pattern!r}, read from {os.getcwd()}; quote"
                " patterns on the command line, and write [[] for a bracket of a name"
            )
        for path in paths:
            require_unicode(path)
            # The last pattern that names a file decides: a code may be given for one of a folder.
            language_of[found.setdefault(os.path.abspath(path), path)] = code
    # Sorted, so that the order of patterns changes neither rows nor hashes.
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
    paths = list(map(Path, sorted(names)))
    for path in paths:
        refuse_lost_link(path)
    return [path for path in paths if path.is_file()]


def find_text(patterns: Patterns) -> list[Text]:
    """Monolingual texts for the patterns. Raises UserError: no match, unknown language, a table
    without `text`."""
    texts = []
    for path, code in expand(patterns, "monolingual"):
        if file_format(path) == "lines":
            language = code or language_from_path(path)
            refuse_other_formats(path)
            texts.append(Text(path, language))
            continue
        # Without a header nobody knows which column is text; guessing would train on ids.
        if file_format(path) == "tsv" and table_header(path) is None:
            raise UserError(
                f"{path}: the first line must name the columns; one must be `text`, one may be"
                " `language`"
            )
        # Only without a code, which stands above what the table says.
        languages = set() if code else languages_in(path)
        for language in sorted(languages):
            texts.append(Text(path, language, "text", only_language=True, documents=True))
        if not languages:
            texts.append(Text(path, code or language_from_path(path), "text", documents=True))
    return texts


def find_pairs(patterns: Patterns) -> list[Pair]:
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
        match = PAIR_STEM.match(plain_name(path))
        if not match or match["end"] not in (*match.group("src", "tgt"), "tsv", "jsonl"):
            raise UserError(
                f"{path}: name pairs like de-en.de and de-en.en, de-en.tsv or de-en.jsonl"
            )
        source, target, end = match.group("src", "tgt", "end")
        stem = plain_name(path).removesuffix(f".{end}")
        # Two files of one code would have the same name.
        if source == target and end != "tsv":
            raise UserError(
                f"{path}: two sentences of one language, a text and its rewording, come in two"
                f" columns of {stem}.tsv"
            )
        # Both sides of a pair have one key: naming both gives one pair; a table is another text.
        kind = end
        # Pairs are kept in sorted order of their languages, whichever way the file is named.
        first, second = sorted((source, target))
        if end == "jsonl":
            pair = Pair(Text(path, first, first), Text(path, second, second))
        elif end == "tsv":
            column, other = _columns(path, source, target)
            pair = Pair(Text(path, first, column), Text(path, second, other))
        else:
            kind = ""
            first_path = _side(path, f"{stem}.{first}")
            second_path = _side(path, f"{stem}.{second}")
            refuse_other_formats(path)
            pair = Pair(Text(first_path, first), Text(second_path, second))
        pairs[path.parent / stem, kind] = pair
    return list(pairs.values())


def _columns(path: Path, source: str, target: str) -> list[str] | list[int]:
    """A table's columns, sorted by language: as its header names them, else its file name."""
    if source != target and table_header(path) is not None:
        return sorted((source, target))
    # Equal codes keep the order of the columns: source, then rewording.
    return [0, 1] if source <= target else [1, 0]


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
    if file_format(path) == "tsv":
        return Pair(Text(path, code, 0), Text(path, code, 1))
    name = plain_name(path)
    if ".src." not in name and ".tgt." not in name:
        raise UserError(
            f"{path}: within one language ({code}=) a source and its target are two columns of a"
            " .tsv, or files like xglue.ntg.en.src.dev and xglue.ntg.en.tgt.dev; for translations"
            " leave the code out"
        )
    # Either side may be named, and both give the same pair.
    source = name.replace(".tgt.", ".src.")
    target = source.replace(".src.", ".tgt.")
    return Pair(Text(_side(path, source), code), Text(_side(path, target), code))


NEGATIVE = "negative"


def find_negatives(patterns: Patterns) -> list[Triple]:
    """Tables `[name.]src-tgt.tsv` of `mine --negatives`: columns src, tgt, "negative" (in tgt).

    Raises UserError: no match, another kind of file, a column that is missing.
    """
    triples = []
    for path, _ in expand(patterns, "negatives"):
        match = PAIR_STEM.match(plain_name(path))
        # Not sorted, unlike pairs: the negative is in the language of the target.
        source, target = match.group("src", "tgt") if match else ("", "")
        columns = {source, target, NEGATIVE}
        if len(columns) < 3 or not columns <= set(table_header(path) or ()):
            raise UserError(
                f"{path}: no table of negatives, which has a name like en-de.tsv and the columns"
                " en, de and negative; write one with `xlingjax mine --negatives`"
            )
        triples.append(
            Triple(
                Text(path, source, source), Text(path, target, target), Text(path, target, NEGATIVE)
            )
        )
    return triples


def pair_table(stem: str, languages: tuple[str, str]) -> Path:
    """`STEM.SRC-TGT.tsv`, which `find_pairs` reads. Raises UserError for codes it would not."""
    source, target = languages
    name = f"{source}-{target}.tsv"
    # Checked by the rule that reads it, so that nothing is written that cannot be read again.
    if source == target or not PAIR_STEM.match(name):
        raise UserError(
            f"--languages {source} {target}: name two languages by codes like de or zh_TW, as files"
            " of pairs are named"
        )
    if stem.endswith(os.sep):
        raise UserError(
            f"--to {stem}: give the folder and a name, {stem}mined for {stem}mined.{name}"
        )
    return Path(f"{stem}.{name}")


def _side(path: Path, name: str) -> Path:
    other = path.with_name(name)
    file = find_file(other)
    if file is None:
        raise UserError(f"missing file: {path} has no other side {other}")
    return file


def split_patterns(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """Patterns of files given as one string, apart by spaces or commas, or as a list. A string that
    names or matches a file, spaces and commas in it, stays whole."""
    if isinstance(value, str) and not is_remote(value):
        pattern = os.path.expanduser(re.sub(rf"^{CODE}=", "", value))
        if _files(pattern):
            return (value,)
    return split_list(value)


def split_list(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """A list given as one string, its entries apart by spaces or commas, or as a list."""
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(value.replace(",", " ").split())
    return tuple(value)


# `gs://`, `s3://` and others that fsspec opens. A file is fetched once, and again where the store
# says that it changed. Its copy beside the token cache keeps its folders and its name, which tell
# its language; so both sides of a pair lie beside each other.


STORES = "gs gcs s3 s3a az abfs abfss adl oci oss hdfs webhdfs hf http https ftp sftp ssh memory"
"""Others of fsspec read archives, chain stores and fill in templates, which run code."""


def is_remote(pattern: str) -> bool:
    return "://" in pattern


def fetched(pattern: str) -> list[Path]:
    """The local copies of the files that a pattern or a folder of a store means, sorted.

    Raises UserError: no such store, a package of its own is missing, it refuses.
    """
    if "::" in pattern or pattern.split("://")[0] not in STORES.split():
        raise UserError(f"{pattern}: no store that is read, which are {STORES.replace(' ', ', ')}")
    # Here: most runs read no store.
    import fsspec

    try:
        store, path = fsspec.core.url_to_fs(pattern)
        names = {name for found in store.glob(path) for name in store.find(found)}
        return [_copy(store, pattern.split("://")[0], name) for name in sorted(names)]
    # Each store has errors of its own, of packages, rights, names and networks.
    except Exception as error:
        raise UserError(
            f"{pattern} cannot be read: {type(error).__name__}: {first_line(error)}"
        ) from None


def _copy(store: Any, protocol: str, name: str) -> Path:
    local = cache_root() / "remote" / protocol / name.strip("/")
    if ".." in local.parts:
        raise UserError(f"{name!r} leads out of the folder")
    stamp = local.with_name(f".{local.name}.version")
    # What the store tells of a file: its size and time, or a hash where it has one.
    version = str(store.ukey(name))
    if local.is_file() and stamp.is_file() and stamp.read_text() == version:
        return local
    local.parent.mkdir(parents=True, exist_ok=True)
    partial = local.with_name(f".{local.name}.{os.getpid()}")
    store.get_file(name, str(partial))
    # First the old stamp: a crash between the two leaves a file that is fetched again.
    stamp.unlink(missing_ok=True)
    os.replace(partial, local)
    stamp.write_text(version)
    return local
