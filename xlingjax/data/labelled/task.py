"""What a task is: its kind, languages and labels, where its files lie and what reads them.

Those of benchmarks stand in the tables of `tasks/` (xtreme.toml, xglue.toml, xnli.toml,
applications.toml) and have official files. Such a task is called "SUITE/NAME": "xtreme/udpos";
`xlingjax.tasks.task_named` finds it. The files of a user are one too: see `labelled.own_task`. A
split may be cut as TFDS writes it: "dev[:50%]", "dev[50%:]", "train[-400:]". The sets whose rows
are parallel over the languages (XNLI, PAWS-X, XQuAD, SIB-200) are cut alike in each, and so is
MLQA, whose questions stand in some languages each: by their ids. "xtreme/udpos[:16]" is the task of
the first 16 rows of each set, or part of a set.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.records import GOLD, learnable
from xlingjax.data.text.files import content_hash
from xlingjax.errors import UserError

KINDS = {
    "classification": "Example",
    "ranking": "Example",
    "tagging": "Tagged",
    "span_qa": "Question",
    "retrieval": "Bitext",
    "mining": "Bitext",
    "generation": "SourceTarget",
}
"""Kind -> the record of `records.py`. "ranking": (query, page), scored among a query's pages."""

TRAINED = ("classification", "ranking", "tagging", "span_qa", "generation")
"""Kinds that are fine-tuned; the others read the states of a model as it is."""


SPLITS = ("train", "dev", "test", "translate_train", "translate_dev", "translate_test")

# The files of Tatoeba, as LASER and XTREME have them, are named by three letters.
_LANGUAGE3 = """
af afr ar ara bg bul bn ben de deu el ell es spa et est eu eus fa pes fi fin fr fra he heb hi
hin hu hun id ind it ita ja jpn jv jav ka kat kk kaz ko kor ml mal mr mar nl nld pt por ru rus
sw swh ta tam te tel th tha tl tgl tr tur ur urd vi vie zh cmn"""
_FLORES = """
ar arb_Arab bg bul_Cyrl de deu_Latn el ell_Grek en eng_Latn es spa_Latn fr fra_Latn hi hin_Deva
ru rus_Cyrl sw swh_Latn th tha_Thai tr tur_Latn ur urd_Arab vi vie_Latn zh zho_Hans"""


def _codes(table: str) -> dict[str, str]:
    cells = table.split()
    return dict(zip(cells[::2], cells[1::2], strict=True))


CODES: dict[str, dict[str, str]] = {
    "language3": _codes(_LANGUAGE3),
    "flores": _codes(_FLORES),
    "conll": {"en": "eng", "de": "deu", "es": "esp", "nl": "ned"},
}
"""Codes that file names use instead of ours: {placeholder: {language: code}}."""


@dataclass(frozen=True)
class Files:
    """Where the files of a split may lie, below the benchmark's folder, and what reads them."""

    patterns: tuple[str, ...]
    """Paths with {language} (or a code of `CODES`: {language3}, {flores}, {conll}); several where
    an example's parts lie in several files ("qg.{language}.src.dev", ".tgt."). A single one may
    hold `*`: all files that fit are read, in the order of their names."""
    read: Callable[..., Sequence[Any]]
    """(paths in the order of `patterns`, the task, the language) -> records."""
    languages: tuple[str, ...] | None = None  # the languages that lie there; None: all

    @property
    def place(self) -> str:
        """What tells it from the other places of a split."""
        return " ".join(self.patterns)

    def holds(self, language: str) -> bool:
        return self.languages is None or language in self.languages

    def paths(self, folder: Path, language: str) -> tuple[Path, ...] | None:
        """A language's paths, whether or not they exist; None: it has none, or none fits a `*`."""
        if not self.holds(language):
            return None
        codes = {"language": language}
        for pattern in self.patterns:
            for _, name, _, _ in string.Formatter().parse(pattern):
                if name and name != "language":
                    codes[name] = CODES[name].get(language)
        # The language has no code of that kind, so no file of it can be there.
        if None in codes.values():
            return None
        relative = [pattern.format(**codes) for pattern in self.patterns]
        if "*" in relative[0]:
            # Sorted, since the order of records must not depend on the file system.
            return tuple(sorted(folder.glob(relative[0]))) or None
        return tuple(folder / name for name in relative)


@dataclass(frozen=True)
class Listed:
    """The files of a user: {language: paths}, and what reads them."""

    by_language: Mapping[str, tuple[Path, ...]]
    read: Callable[..., Sequence[Any]]
    place: str = ""

    def holds(self, language: str) -> bool:
        return language in self.by_language

    def paths(self, folder: Path, language: str) -> tuple[Path, ...] | None:
        return self.by_language.get(language)


@dataclass(frozen=True)
class Task:
    suite: str
    name: str
    kind: str
    languages: tuple[str, ...]  # of the official test sets
    files: Mapping[str, tuple[Files | Listed, ...]] = field(hash=False)
    """Split -> the places where its files may lie, the first that is there is read. Splits
    (`SPLITS`): "train", "dev", "test", "translate_train" (the English training set, translated into
    {language}), "translate_dev" and "translate_test" (the dev or test set of {language}, translated
    into English)."""
    metrics: tuple[str, ...]
    """Names of `evaluation/metrics/registry.py`; the first is the task's score."""
    submission: str
    """Path of the official prediction file below the folder of predictions, with {language}."""
    labels: tuple[str, ...] = ()  # classes or tags in the official order of ids
    trained_on: str = "en"  # the language of the official training set
    averaged: tuple[str, ...] | None = field(default=None)
    """Languages of the official average; None: all."""
    parallel: bool = False  # rows correspond over the languages
    shared_ids: bool = False
    """Ids, and not rows, correspond over the languages: parts in percent are cut by id."""
    marks: str = "kept"
    """Of tags: what becomes of SentencePiece's mark in the task's script: `pieces_of_words`."""
    overlap: str = ""  # what the sets are known to share, said below their scores
    first: int | None = None  # so many rows of each set, or part of one, are read; None: all

    def __post_init__(self):
        if self.kind not in KINDS:
            raise UserError(
                f"task {self.full_name}: kind {self.kind!r} is not one of {', '.join(KINDS)}"
            )

    @property
    def full_name(self) -> str:
        return f"{self.suite}/{self.name}" + (f"[:{self.first}]" if self.first else "")

    @property
    def whole(self) -> Task:
        """All rows of each set."""
        return replace(self, first=None)


@dataclass(frozen=True)
class Found:
    """The files of one language."""

    files: Files | Listed
    paths: tuple[Path, ...]


def part_of(split: str) -> tuple[str, Callable[[int], slice]]:
    """("dev", rows -> slice) of "dev[50%:]"; percentages are rounded to the next row, as TFDS does.
    Raises UserError for another notation."""
    bound = r"(-?\d+|-?(?:100|\d{1,2})%)?"
    match = re.fullmatch(rf"(\w+)(?:\[{bound}:{bound}\])?", split)
    if not match:
        raise UserError(
            f"split {split!r} is not a name, or a part as in 'dev[:50%]', 'dev[50%:]' or"
            " 'train[-400:]'"
        )
    name, begin, end = match.groups()

    def rows(count: int) -> slice:
        return slice(_row(begin, count), _row(end, count))

    return name, rows


def _row(bound: str | None, count: int) -> int | None:
    if not bound:
        return None
    if bound.endswith("%"):
        # TFDS's rule "closest", so that a part holds the same rows here and there.
        return round(int(bound[:-1]) * count / 100)
    return int(bound)


def share_rows(first: str, second: str, count: int) -> bool:
    """Whether two parts of one split of `count` rows have one in common."""
    _, rows_of_first = part_of(first)
    _, rows_of_second = part_of(second)
    every = range(count)
    return not set(every[rows_of_first(count)]).isdisjoint(every[rows_of_second(count)])


def find(task: Task, folder: str | Path, split: str, language: str) -> Found | None:
    """The first of the places of a split whose files all exist; None: there is none. Raises
    UserError: no such folder, or a split that is written wrongly."""
    name, _ = part_of(split)
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"no folder {folder}; give the one that holds the files of {task.suite}")
    for files in task.files.get(name, ()):
        paths = files.paths(folder, language)
        if paths and all(map(Path.is_file, paths)):
            return Found(files, paths)
    return None


def languages_present(task: Task, folder: str | Path, split: str) -> list[str]:
    """The languages of a task that have files of this split, in the task's order."""
    # A dict keeps the task's order; the training language may be among its languages.
    codes = dict.fromkeys((*task.languages, task.trained_on))
    if split.startswith("translate_"):
        # What a file of the training language holds is no translation.
        codes.pop(task.trained_on)
    return [language for language in codes if find(task, folder, split, language)]


def read(task: Task, folder: str | Path, split: str, language: str) -> list[Any]:
    """The records of one language (see `KINDS`); retrieval and mining: a list of one `Bitext`.

    Raises UserError: a split that the task does not have, missing files (the message names those
    looked for), a train or dev set without labels, a part of a bitext or a part without rows, and
    every fault of a file, with its line. Translated training sets may lack labels, for a teacher to
    label: see `require_gold`.
    """
    name, rows = part_of(split)
    if name not in task.files:
        raise UserError(f"{task.full_name} has no split {name!r}; it has {', '.join(task.files)}")
    found = find(task, folder, split, language)
    if found is None:
        raise UserError(_missing(task, folder, name, language))
    records = list(found.files.read(found.paths, task, language))
    # A teacher labels translations, and official test sets keep their labels back.
    may_lack_gold = name == "test" or name.startswith("translate_")
    if not may_lack_gold and not any(map(has_gold, records)):
        raise UserError(f"{found.paths[0]}: no labels; the {name} set needs them")
    if KINDS[task.kind] == "Bitext":
        if name != split:
            raise UserError(f"{task.full_name}, {split}: a bitext has no parts; read {name!r}")
        return [bitext.of_first(task.first) for bitext in records] if task.first else records
    if task.shared_ids and "%" in split:
        # By id, since the languages hold different questions of the same set.
        shares = range(_SHARES)[rows(_SHARES)]
        kept = [record for record in records if _share(record.id) in shares]
    else:
        kept = records[rows(len(records))]
    if not kept:
        raise UserError(f"{task.full_name}, {language}: {split} of {len(records)} rows holds none")
    return kept[: task.first]


# Finer than a percent, so that any part in percent is a whole number of shares.
_SHARES = 10_000


def _share(id_: str) -> int:
    """0 to `_SHARES` - 1: the same for the same id in every language."""
    return int(hashlib.sha256(id_.encode()).hexdigest()[:12], 16) % _SHARES


def require_gold(task: Task, folder: str | Path, language: str, records: Sequence[Any]) -> None:
    """Raise UserError where a translated training set, or a part of it, has nothing to learn."""
    if any(map(has_gold, learnable(records))):
        return
    path = find(task, folder, "translate_train", language).paths[0]
    raise UserError(
        f"{path}: no labels to train {task.full_name} on in {language!r}; leave it out, or label it"
        " by `--strategy teacher`"
    )


def has_gold(record: Any) -> bool:
    """Whether a record tells the answer. Test sets hide all or none: the first tells of a file."""
    field_name = GOLD.get(type(record))
    # A record of no known kind is taken to be complete.
    return field_name is None or bool(getattr(record, field_name))


def hashes(task: Task, folder: str | Path, parts: Iterable[tuple[str, str]]) -> dict[str, str]:
    """{path below `folder`: sha256 (hex)} of the files of (split, language) pairs there are."""
    paths = set()
    for split, language in parts:
        found = find(task, folder, split, language)
        if found:
            paths.update(found.paths)
    # Relative, so that a benchmark that was moved is still the same.
    return {str(path.relative_to(folder)): content_hash(path) for path in sorted(paths)}


def edited(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The first file that differs, by `hashes`; "": none does."""
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            return f"{name} was edited" if name in now else f"{name} is not read now"
    return ""


def _missing(task: Task, folder: str | Path, split: str, language: str) -> str:
    places = [files.place for files in task.files.get(split, ()) if files.holds(language)]
    return (
        f"{task.full_name}: no {split} files of {language!r} in {folder}: looked for"
        f" {' or '.join(places) or 'none, it has no such split'}; fetch them, or pass over"
        " languages without files by --allow-missing"
    )
