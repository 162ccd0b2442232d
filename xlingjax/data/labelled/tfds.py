"""Benchmarks read from TensorFlow Datasets (TFDS): `tfds:DIR` stands where a folder of official
files may.

DIR is TFDS's data_dir; "tfds:" alone is its default. Sets are found by the files that TFDS leaves
there, and only reading one imports it. Nothing is downloaded or prepared here. Rows come in the
order of the set as it was prepared, which TFDS shuffles: it is not that of the official files. Ids,
offsets (characters) and labels are.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.questions import checked_question
from xlingjax.data.labelled.records import (
    Bitext,
    Example,
    Question,
    Tagged,
    is_lost,
    known_label,
)
from xlingjax.data.labelled.words import bio
from xlingjax.errors import UserError
from xlingjax.runtime.files import parsed_json

PREFIX = "tfds:"
_INFO = "dataset_info.json"
_BATCH = 1000


def is_tfds(data: str | Path) -> bool:
    return str(data).startswith(PREFIX)


def data_dir(data: str | Path) -> Path:
    """TFDS's data_dir, of "tfds:DIR" or "tfds:" alone."""
    named = str(data).removeprefix(PREFIX)
    if not named:
        # As TFDS itself chooses.
        named = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return Path(named).expanduser().absolute()


def located(data: str | Path) -> str:
    """Where a benchmark's files are, absolute: a folder or tfds:DIR."""
    if is_tfds(data):
        return f"{PREFIX}{data_dir(data)}"
    return str(Path(data).absolute())


@dataclass(frozen=True)
class Prepared:
    """A split of a prepared set; in `Task.prepared` what `Files` is in `Task.files`."""

    name: str
    """NAME:VERSION or NAME/CONFIG:VERSION as TFDS writes it, with {language}; a config may end in
    `*`: all that are prepared and have the split are read, in the order of their names."""
    split: str
    """TFDS's, with {language}."""
    records: Callable[..., list[Any]]
    """(`Rows`, the task, the language) -> records."""
    languages: tuple[str, ...] | None = None
    """The languages that it holds; None: all of the task."""

    @property
    def place(self) -> str:
        """What tells it from the other places of a split."""
        return f"{PREFIX}{self.name} {self.split}"

    def holds(self, language: str) -> bool:
        return self.languages is None or language in self.languages

    def paths(self, folder: Path, language: str) -> tuple[Path, ...] | None:
        """The metadata of the sets that are prepared; None: none is."""
        if not self.holds(language):
            return None
        # TFDS writes name:version, and lays it out as name/version.
        pattern = self.name.format(language=language).replace(":", "/")
        split = self.split.format(language=language)
        # A set may be prepared and lack the split, or have it without rows.
        paths = [
            path for path in sorted(folder.glob(f"{pattern}/{_INFO}")) if split in _splits(path)
        ]
        return tuple(paths) or None

    def read(self, paths: Sequence[Path], task: Any, language: str) -> list[Any]:
        """The records of all sets. Raises UserError: TFDS cannot be imported or cannot read a set,
        a set without rows, an empty text, an unknown label, an answer that does not stand in its
        context where it is said to.
        """
        split = self.split.format(language=language)
        records = []
        for path in paths:
            records += self.records(Rows(path.parent, split), task, language)
        if all(map(is_lost, records)):
            raise UserError(f"{paths[0].parent}: its split {split} has no rows of {language!r}")
        return records


def _splits(path: Path) -> set[str]:
    """The splits of a set with rows. Raises UserError for metadata that is not TFDS's."""
    try:
        splits = parsed_json(path.read_text(encoding="utf-8"))["splits"]
        # The numbers of rows are strings there.
        return {one["name"] for one in splits if sum(map(int, one.get("shardLengths", ())))}
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: not the metadata of a TFDS set; prepare it again") from None


@functools.cache
def _tfds() -> Any:
    try:
        from xlingjax.data.seqio import keep_tensorflow_off_accelerators

        # Before TFDS makes its first tensor, with which
        # TensorFlow would take the memory of every GPU.
        keep_tensorflow_off_accelerators()
        import tensorflow_datasets
    except ImportError as error:
        raise UserError(f"tfds: TensorFlow Datasets cannot be imported ({error})") from None
    return tensorflow_datasets


@dataclass(frozen=True)
class Rows:
    """The rows of a split, as prepared."""

    folder: Path
    """With the version's name."""
    split: str

    def __iter__(self) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """(where it stands, its number from 1, {feature: values as Python's; a class as its
        name})."""
        _tfds()
        # After `_tfds`, which says what to install where it is missing.
        import tensorflow as tf

        number = 0
        try:
            batches, names = _opened(self.folder, self.split)
            for batch in batches:
                columns = {}
                for name, value in batch.items():
                    columns[name] = _column(value, names[name])
                for row in _transposed(columns):
                    number += 1
                    yield (f"{self.folder}, {self.split}, row {number}", number, row)
        except (tf.errors.OpError, OSError) as error:
            # TensorFlow puts a stack of nodes behind the first line.
            reason = str(error).splitlines()[0][:200]
            raise UserError(
                f"{self.folder}: TFDS cannot read it ({reason}); prepare it again"
            ) from None


# The languages of XNLI lie in one set, and building what reads it takes long.
@functools.lru_cache(maxsize=64)
def _opened(folder: Path, split: str) -> tuple[Any, dict[str, Sequence[str] | None]]:
    """What iterates over batches of rows (row by row it takes twice as long), and {feature: names
    of its classes}."""
    tfds = _tfds()
    builder = tfds.builder_from_directory(str(folder))
    # One shard after the other: TFDS reads several at once otherwise, and rows would lose their
    # order. Its cache would keep small sets in memory, and each is read once.
    in_order = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    names = {}
    for name, feature in builder.info.features.items():
        names[name] = _class_names(feature)
    rows = builder.as_dataset(split=split, shuffle_files=False, read_config=in_order)
    # Ragged, since texts and lists of words have no common length.
    return rows.ragged_batch(_BATCH), names


def _class_names(feature: Any) -> Sequence[str] | None:
    """Of a class, or a sequence of classes."""
    # A sequence has its class in `feature`, a class has its names itself.
    return getattr(getattr(feature, "feature", feature), "names", None)


def _column(value: Any, names: Sequence[str] | None) -> list[Any]:
    """The rows of a feature of a batch; of a feature of several, {name: value} for each row."""
    if isinstance(value, dict):
        return _transposed({name: _column(inner, None) for name, inner in value.items()})
    # Only a ragged tensor has the method.
    if hasattr(value, "to_list"):
        return _plain(value.to_list(), names)
    return _plain(value.numpy().tolist(), names)


def _transposed(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _plain(value: Any, names: Sequence[str] | None) -> Any:
    if isinstance(value, list):
        return [_plain(inner, names) for inner in value]
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if names is None:
        return value
    # TFDS writes -1 for a class that is not known.
    if value < 0:
        return None
    return names[value]


# --- Records --------------------------------------------------------------------------------------


def pairs(
    rows: Rows,
    task,
    language: str,
    *,
    texts: tuple[str, str] = ("premise", "hypothesis"),
    renamed: Mapping[str, str] | None = None,
    translated: bool = False,
) -> list[Example]:
    """renamed: TFDS's names of classes that are not the task's labels. translated: as of
    `Table`."""
    renamed = renamed or {}
    first, second = texts
    examples = []
    for where, number, row in rows:
        label = renamed.get(row["label"], row["label"])
        examples.append(_example(where, number, row[first], row[second], label, task, translated))
    return examples


def parallel_pairs(rows: Rows, task, language: str, *, translated: bool = False) -> list[Example]:
    """XNLI: an example holds all languages. translated: as of `Table`."""
    examples = []
    for where, number, row in rows:
        premise = row["premise"][language]
        codes = row["hypothesis"]["language"]
        translations = row["hypothesis"]["translation"]
        # Two lists in a row, of the languages that it has.
        by_language = dict(zip(codes, translations, strict=True))
        hypothesis = by_language.get(language, "")
        examples.append(
            _example(where, number, premise, hypothesis, row["label"], task, translated)
        )
    return examples


def _example(
    where: str, number: int, first: str, second: str, label: str | None, task, translated: bool
) -> Example:
    first = first.strip()
    second = second.strip()
    if not translated and not (first and second):
        raise UserError(f"{where}: a text is empty; read the official files without it")
    if label:
        label = known_label(label, task.labels, where)
    return Example(first, second, label, number)


def tagged(
    rows: Rows, task, language: str, *, tags: str, first_class: bool = False
) -> list[Tagged]:
    """tags: the feature; first_class: they are made BIO (see `Columns`). Of CoNLL-U (sets that tell
    heads) words are read, neither tokens of several words nor empty nodes, which have no head."""
    sentences = []
    for where, number, row in rows:
        # Only sets of CoNLL-U have heads; WikiANN's words are all read.
        heads = row.get("head") or [""] * len(row["tokens"])
        words = []
        marks = []
        for word, tag, head in zip(row["tokens"], row[tags], heads, strict=True):
            if head == "None":
                continue
            words.append(word.strip())
            marks.append(known_label(tag, task.labels, where))
        if first_class:
            marks = bio(marks)
        if words:
            sentences.append(Tagged(tuple(words), tuple(marks), number))
    return sentences


def questions(
    rows: Rows,
    task,
    language: str,
    *,
    named: Mapping[str, str] | None = None,
    translated: bool = False,
) -> list[Question]:
    """named: {language: its name}: only questions whose id begins with the name are read (TyDiQA).
    translated: see `read_squad`."""
    where = f"{rows.folder}, {rows.split}"
    checked = []
    for _, _, row in rows:
        if named and row["id"].partition("-")[0] != named[language]:
            continue
        # As SQuAD's files have it: TFDS keeps a list for each field, not a field for each answer.
        qa = {"id": row["id"], "question": row["question"], "answers": _transposed(row["answers"])}
        checked.append(checked_question(qa, row["context"], where, translated=translated))
    return checked


def bitext(rows: Rows, task, language: str) -> list[Bitext]:
    """Tatoeba: each row holds both sides; an id is the row, from 0."""
    sources = []
    targets = []
    gold = []
    for id_, (_, _, row) in enumerate(rows):
        sources.append((str(id_), row["source_sentence"].strip()))
        targets.append((str(id_), row["target_sentence"].strip()))
        gold.append((str(id_), str(id_)))
    if not gold:
        return []
    return [Bitext(tuple(sources), tuple(targets), frozenset(gold))]
