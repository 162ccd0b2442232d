"""Benchmarks read from TensorFlow Datasets (TFDS): `tfds:DIR` stands where a folder of official
files may.

DIR is TFDS's data_dir; "tfds:" alone is its default. Sets are found by the files that TFDS leaves
there, and only reading one imports it. Nothing is downloaded or prepared here. Rows come in the
order of the set as it was prepared, which TFDS shuffles: it is not that of the official files. Ids,
offsets (characters) and labels are.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.questions import checked_question
from xlingjax.data.labelled.records import Bitext, Example, Question, Tagged, is_lost
from xlingjax.data.labelled.text import known_label
from xlingjax.data.labelled.words import bio
from xlingjax.errors import UserError

PREFIX = "tfds:"
_INFO = "dataset_info.json"
_BATCH = 1000


def is_tfds(data: str | Path) -> bool:
    return str(data).startswith(PREFIX)


def data_dir(data: str | Path) -> Path:
    """TFDS's data_dir, of "tfds:DIR" or "tfds:" alone."""
    named = (
        str(data).removeprefix(PREFIX)
        or os.environ.get("TFDS_DATA_DIR")
        or "~/tensorflow_datasets"
    )
    return Path(named).expanduser().absolute()


def located(data: str | Path) -> str:
    """Where a benchmark's files are, absolute: a folder or tfds:DIR."""
    return f"{PREFIX}{data_dir(data)}" if is_tfds(data) else str(Path(data).absolute())


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

    def paths(self, folder: Path, language: str) -> tuple[Path, ...] | None:
        """The metadata of the sets that are prepared; None: none is."""
        if self.languages is not None and language not in self.languages:
            return None
        pattern = self.name.format(language=language).replace(":", "/")
        found = sorted(folder.glob(f"{pattern}/{_INFO}"))
        split = self.split.format(language=language)
        return tuple(path for path in found if split in _splits(path)) or None

    def read(self, paths: Sequence[Path], task: Any, language: str) -> list[Any]:
        """The records of all sets. Raises UserError: TFDS cannot be imported or cannot read a set,
        a set without rows, an empty text, an unknown label, an answer that does not stand in its
        context where it is said to.
        """
        split = self.split.format(language=language)
        found = [
            record
            for path in paths
            for record in self.records(Rows(path.parent, split), task, language)
        ]
        if not found:
            raise UserError(
                f"{paths[0].parent}: its split {split} has no rows of {language!r}"
            )
        if all(map(is_lost, found)):
            raise UserError(
                f"{paths[0].parent}: every row of its split {split} lacks a text in {language!r}"
            )
        return found

    def told(self, language: str) -> str:
        return f"{self.name} ({self.split})".format(language=language)

    def command(self, folder: Path, language: str) -> str:
        """What prepares it."""
        return (
            f"tfds build {self.name.format(language=language).partition(':')[0]} --data_dir"
            f" {folder}"
        )


def _splits(path: Path) -> set[str]:
    """The splits of a set with rows. Raises UserError for metadata that is not TFDS's."""
    try:
        splits = json.loads(path.read_text(encoding="utf-8"))["splits"]
        return {
            split["name"]
            for split in splits
            if any(int(n) for n in split.get("shardLengths", ()))
        }
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{path}: not the metadata of a TFDS set with splits; prepare the set again"
        ) from None


@functools.cache
def _tfds() -> Any:
    try:
        from xlingjax.data.mixture import keep_tensorflow_off_accelerators

        keep_tensorflow_off_accelerators()
        import tensorflow_datasets
    except ImportError as error:
        raise UserError(
            f"tfds: TensorFlow Datasets cannot be imported ({error}): install tensorflow and"
            " tensorflow-datasets, or give the folder of the official files"
        ) from None
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
        import tensorflow as tf

        number = 0
        try:
            batches, names = _opened(self.folder, self.split)
            for batch in batches:
                for row in _listed(
                    {name: _listed(value, names[name]) for name, value in batch.items()}
                ):
                    number += 1
                    yield f"{self.folder}, {self.split}, row {number}", number, row
        except (tf.errors.OpError, OSError) as error:
            reason = str(error).splitlines()[0][:200]
            raise UserError(
                f"{self.folder}: TFDS cannot read it ({reason}); prepare it again"
            ) from None


@functools.lru_cache(
    maxsize=64
)  # the languages of XNLI lie in one set, and building what reads it takes long
def _opened(folder: Path, split: str) -> tuple[Any, dict[str, Sequence[str] | None]]:
    """What iterates over batches of rows (row by row it takes twice as long), and {feature: names
    of its
    classes}."""
    tfds = _tfds()
    builder = tfds.builder_from_directory(str(folder))
    in_order = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    names = {
        name: _class_names(feature) for name, feature in builder.info.features.items()
    }
    rows = builder.as_dataset(split=split, shuffle_files=False, read_config=in_order)
    return rows.ragged_batch(_BATCH), names


def _class_names(feature: Any) -> Sequence[str] | None:
    """Of a class, or a sequence of classes."""
    return getattr(getattr(feature, "feature", feature), "names", None)


def _listed(column: Any, names: Sequence[str] | None = None) -> list[Any]:
    """The rows of a feature of a batch, or of several: {name: column}."""
    if isinstance(column, dict):
        columns = {
            name: value if isinstance(value, list) else _listed(value)
            for name, value in column.items()
        }
        return [
            dict(zip(columns, row, strict=True))
            for row in zip(*columns.values(), strict=True)
        ]
    column = (
        column.to_list() if hasattr(column, "to_list") else column.numpy().tolist()
    )  # of a ragged tensor
    return _plain(column, names)


def _plain(value: Any, names: Sequence[str] | None) -> Any:
    if isinstance(value, list):
        return [_plain(inner, names) for inner in value]
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return value if names is None else names[value] if value >= 0 else None


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
    return [
        _example(
            where,
            number,
            row[texts[0]],
            row[texts[1]],
            renamed.get(row["label"], row["label"]),
            task,
            translated,
        )
        for where, number, row in rows
    ]


def parallel_pairs(
    rows: Rows, task, language: str, *, translated: bool = False
) -> list[Example]:
    """XNLI: an example holds all languages. translated: as of `Table`."""
    found = []
    for where, number, row in rows:
        second = dict(
            zip(
                row["hypothesis"]["language"],
                row["hypothesis"]["translation"],
                strict=True,
            )
        )
        first, other, label = (
            row["premise"][language],
            second.get(language, ""),
            row["label"],
        )
        found.append(_example(where, number, first, other, label, task, translated))
    return found


def _example(
    where: str, number: int, first: str, second: str, label: str | None, task, translated: bool
) -> Example:  # fmt: skip
    first, second = first.strip(), second.strip()
    if not translated and not (first and second):
        raise UserError(
            f"{where}: a text is empty; read the official files, where the line can be removed"
        )
    return Example(
        first, second, label and known_label(label, task.labels or None, where), number
    )


def tagged(
    rows: Rows, task, language: str, *, tags: str, first_class: bool = False
) -> list[Tagged]:
    """tags: the feature; first_class: they are made BIO (see `Columns`). Of CoNLL-U (sets that tell
    heads) words are read, neither tokens of several words nor empty nodes, which have no head."""
    found = []
    for where, number, row in rows:
        heads = row.get("head") or [""] * len(row["tokens"])
        words = [
            (word.strip(), known_label(tag, task.labels or None, where))
            for word, tag, head in zip(row["tokens"], row[tags], heads, strict=True)
            if head != "None"
        ]
        if words:
            marks = [tag for _, tag in words]
            found.append(
                Tagged(
                    tuple(word for word, _ in words),
                    tuple(bio(marks) if first_class else marks),
                    number,
                )
            )
    return found


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
    found = []
    for _, _, row in rows:
        if named and row["id"].partition("-")[0] != named[language]:
            continue
        answers = zip(
            row["answers"]["text"], row["answers"]["answer_start"], strict=True
        )
        asked = {
            "id": row["id"],
            "question": row["question"],
            "answers": [
                {"text": text, "answer_start": start} for text, start in answers
            ],
        }
        where = f"{rows.folder}, {rows.split}"
        found.append(
            checked_question(asked, row["context"], where, translated=translated)
        )
    return found


def bitext(rows: Rows, task, language: str) -> list[Bitext]:
    """Tatoeba: each row holds both sides; an id is the row, from 0."""
    texts = [
        (row["source_sentence"].strip(), row["target_sentence"].strip())
        for _, _, row in rows
    ]
    sides = (
        tuple((str(n), text[side]) for n, text in enumerate(texts)) for side in (0, 1)
    )
    return (
        [Bitext(*sides, frozenset((str(n), str(n)) for n in range(len(texts))))]
        if texts
        else []
    )
