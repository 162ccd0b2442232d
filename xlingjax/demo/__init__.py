"""The embedded corpus as data: text, sentence pairs and labelled sets of a small invented world in
eight languages. README.md says what it is, how it was made, and how much there is.

`corpus/LANGUAGE.tar.bz2` has the files in that language under the names that `write` gives them.
"""

import bz2
import io
import json
import re
import tarfile
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from xlingjax.errors import UserError, meant

LANGUAGES = ("de", "en", "es", "fr", "hi", "ru", "tr", "zh")
TASKS = ("nli", "paraphrase", "pos", "ner", "qa", "titles")
SIZES = (
    *("mono", "pairs", "other_pairs", "rewordings", "documents"),
    *("heldout_mono", "heldout_pairs", "novel_pairs"),
    *(f"{task}_{part}" for task in TASKS for part in ("train", "dev", "test")),
)
"""What can be cut: sentences of text, pairs, documents, examples, each of one file."""
_CORPUS = Path(__file__).parent / "corpus"
_FOLDERS = {
    "mono": "mono",
    "documents": "documents",
    "heldout/mono": "heldout_mono",
    "heldout/parallel": "heldout_pairs",
    "heldout/novel": "novel_pairs",
    "alignments": "heldout_pairs",
}
_FULL_STOPS = {"hi": "।", "zh": "。"}


def write(
    to: str | Path, languages: Collection[str] = LANGUAGES, sizes: Mapping[str, int] | None = None
) -> dict:
    """Write the corpus, or its files in some languages, into a folder; return its manifest.

    sizes: at most so many rows (names of `SIZES`) of each file, its first: line n stays beside line
    n. An old corpus is replaced. Raises UserError: unknown language, size.
    """
    sizes = dict(sizes or {})
    for names, known, what in ((languages, LANGUAGES, "language"), (sizes, SIZES, "size")):
        unknown = [name for name in names if name not in known]
        if unknown:
            raise UserError(f"no {what} {unknown[0]!r}{meant(unknown[0], known)}")
    root = Path(to)
    languages = sorted(set(languages))

    def write_language(code: str) -> dict[str, int]:
        rows = {}
        for path, text in _files(code, languages):
            rows |= _write_file(root, path, text, sizes.get(size_of(path)))
        return rows

    # Decompression leaves Python's lock, so that each core takes a language.
    with ThreadPoolExecutor() as pool:
        parts = list(pool.map(write_language, languages))
    files = {path: rows for part in parts for path, rows in part.items()}
    manifest = root / "manifest.json"
    if manifest.is_file():
        for path in json.loads(manifest.read_text("utf-8"))["files"].keys() - files.keys():
            (root / path).unlink(missing_ok=True)
    record = {"languages": languages, "sizes": sizes, "files": dict(sorted(files.items()))}
    # Last: where it is, everything is.
    manifest.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return record


def size_of(path: str) -> str | None:
    """The name in `SIZES` of what a file of the corpus has; None: it is never cut."""
    folder, _, name = path.rpartition("/")
    if folder == "questions":
        folder = "qa"
    if folder in TASKS:
        return f"{folder}_{name.partition('-')[0]}"
    if folder != "parallel":
        return _FOLDERS.get(folder)
    first, second = _codes(name)[:2]
    if first == second:
        return "rewordings"
    return "pairs" if "en" in (first, second) else "other_pairs"


def _codes(name: str) -> list[str]:
    """The languages that a file's name tells: train-de.tsv, de-en.de."""
    return re.findall(r"\b[a-z]{2}\b", name)


def _files(code: str, languages: Collection[str]) -> Iterator[tuple[str, str]]:
    """(path, text) of the files in a language whose other languages are chosen, too."""
    # As a whole, which keeps the other threads running longer than reading it piece by piece.
    content = bz2.decompress((_CORPUS / f"{code}.tar.bz2").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            folder, _, name = member.name.rpartition("/")
            if not {*_codes(name)} <= {*languages}:
                continue
            text = archive.extractfile(member).read().decode()
            if name != "en":
                yield member.name, text
                continue
            # The English side is the same beside every language, and is stored once.
            for other in languages:
                if other != "en":
                    yield f"{folder}/{other}-en.en", text


def _write_file(root: Path, path: str, text: str, count: int | None) -> dict[str, int]:
    """{path: rows} of what is written, at most `count` rows of a file (None: all)."""
    if path.endswith(".json"):
        articles = json.loads(text)["data"][:count]
        text = json.dumps({"version": "1.1", "data": articles}, ensure_ascii=False) + "\n"
        written = {path: len(articles)}
        # The same questions as text to text. The text alone would not tell which of many is meant.
        as_text = path.replace("qa/", "questions/").replace(".json", ".tsv")
        rows = [_question(article, _codes(path)[-1]) for article in articles]
        written |= _write_file(root, as_text, "".join(rows), None)
    else:
        separator = "\n\n" if path.startswith(("pos/", "ner/", "documents/")) else "\n"
        rows = text.removesuffix("\n").split(separator)
        kept = rows[:count]
        if size_of(path) in ("mono", "heldout_mono"):
            kept = _sentences(rows, count)
        text = separator.join(kept) + "\n" if kept else ""
        written = {path: sum(map(bool, kept))}
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, "utf-8")
    return written


def _sentences(lines: list[str], count: int | None) -> list[str]:
    """The first lines, with `count` sentences among them: blank ones part the documents."""
    kept = []
    for line in lines:
        if count is not None and count <= 0:
            break
        kept.append(line)
        if line and count is not None:
            count -= 1
    return kept


def _question(article: dict, language: str) -> str:
    """A line: the answer, a full stop and the text, TAB, the question."""
    (paragraph,) = article["paragraphs"]
    (asked,) = paragraph["qas"]
    stop = _FULL_STOPS.get(language, ".")
    space = "" if language == "zh" else " "
    answer = asked["answers"][0]["text"]
    return f"{answer}{stop}{space}{paragraph['context']}\t{asked['question']}\n"
