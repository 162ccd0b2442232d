"""Examples of a task beside what they translate: those to train on, and those to predict."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.beside import Pairs, paired
from xlingjax.data.labelled.records import Example, is_lost, learnable
from xlingjax.data.labelled.task import Task, find, part_of, read
from xlingjax.errors import UserError
from xlingjax.preprocessors.training_set import Training

_FORMATS = {
    "span_qa": "SQuAD's JSON with the ids of the set",
    "tagging": "a line for each sentence of the set, its words alone",
}
"""Kind of task -> what a translation of one of its sets looks like."""


@dataclass(frozen=True)
class TrainingPairs:
    """Examples of one part of what is trained on, and what each translates."""

    records: Sequence[Any]
    beside: Sequence[Any]
    lost: int
    """Examples that have a partner and are not learnt, since the machine lost a part of them."""
    unpaired: str
    """What is said of rows without a partner; "": there are none."""


def training_pairs(
    task: Task, data: str | Path, training: Training, origin: str, language: str
) -> TrainingPairs:
    """One translated part of `training`, each example beside the gold one of `Task.trained_on`.

    Left out are examples that a machine lost, those without a partner (see `paired`), and those
    whose partner is not in `Training.split`. Sentences without tags stay: their partners have some.
    Raises UserError as `paired` and `Training.records` do.
    """
    # Pairs are sought in whole files: a part of a translation in
    # another order would not be the translation of that part.
    whole = dataclasses.replace(training, split="train")
    place = whole.described(task, data, origin, language)
    # Sentences without tags are read beside tagged ones; all else needs its own answers.
    if origin == "translated" and task.kind == "tagging":
        records: Sequence[Any] = read(task, data, "translate_train", language)
    else:
        records = whole.records(task, data, origin, language)
    translated = records
    if origin == "labelled":
        # Row by row what a teacher labelled, which does not tell what it translates.
        translated = read(task, data, "translate_train", language)
    if len(records) != len(translated):
        raise UserError(
            f"{place}: {len(records)} examples, but {len(translated)} in the translation that they"
            " label: label it again"
        )
    gold = whole.records(task, data, "gold", task.trained_on)
    gold_path = find(task, data, "train", task.trained_on).paths[0]
    pairs = paired(task.full_name, translated, gold, language, f"{task.trained_on!r} ({gold_path})")
    kept = _rows_of(task, data, training.split, gold)
    learnt = []
    beside = []
    lost = 0
    for record, partner in zip(records, pairs.partners, strict=True):
        if partner is None or partner not in kept:
            continue
        # A sentence that is there without tags is one to learn from.
        if not learnable([record]):
            lost += 1
            continue
        learnt.append(record)
        beside.append(gold[partner])
    if not learnt:
        raise UserError(f"{place}: no example of it is in {training.split}")
    return TrainingPairs(learnt, beside, lost, pairs.said(place, "left out"))


def _rows_of(
    task: Task, data: str | Path, split: str, gold: Sequence[Any]
) -> Sequence[int] | set[int]:
    """The rows of the whole training set `gold` that are in a part of it."""
    _, chosen = part_of(split)
    if not task.shared_ids:
        return range(len(gold))[chosen(len(gold))]
    ids = {one.id for one in read(task, data, split, task.trained_on)}
    return {row for row, one in enumerate(gold) if one.id in ids}


# ---- what is predicted ---------------------------------------------------------------------------


def beside_of(task: Task, data: str | Path, split: str, language: str) -> tuple[str, str]:
    """(split, language) of what stands beside the examples of a language: its own set translated
    into `Task.trained_on`, else that language's set, of which it is the translation. Raises
    UserError where there is neither."""
    if language == task.trained_on:
        # It has no translation, and stands beside itself.
        return split, language
    name, _ = part_of(split)
    translated = f"translate_{name}"
    # Translations of training sets are from that language, not into it.
    is_measured = name in ("dev", "test")
    if is_measured and find(task, data, translated, language):
        return translated + split.removeprefix(name), language
    corresponds = task.parallel or task.shared_ids
    # Of other classes and ranks it shows when lines are compared.
    if corresponds or task.kind not in _FORMATS:
        return split, task.trained_on
    raise UserError(f"{task.full_name}: {_missing(task, data, name, language)}")


def _missing(task: Task, data: str | Path, name: str, language: str) -> str:
    places = task.files.get(f"translate_{name}")
    if name == "train" or not places:
        return (
            "plug-in fine-tuning reads every example beside its translation into"
            f" {task.trained_on!r}, and no translations of {name} sets are read, as of"
            f" {language!r}: name what can be measured, as in"
            f" --gin.DEV_LANGUAGES='\"{task.trained_on}\"'"
        )
    (pattern,) = places[0].patterns
    path = Path(data) / pattern.format(language=language)
    return (
        f"missing file: {path}: plug-in fine-tuning reads every example beside its translation into"
        f" {task.trained_on!r}; write there {_FORMATS[task.kind]}, translated (`xlingjax translate`"
        " translates lines), or name languages that have it with DEV_LANGUAGES, TEST_LANGUAGES"
    )


@dataclass(frozen=True)
class Standing:
    """What stands beside each example of a set."""

    records: Sequence[Any]
    unpaired: str
    """What is said of examples without a translation; "": there are none."""


def standing_beside(task: Task, data: str | Path, split: str, language: str) -> Standing:
    """What stands beside the examples of a language, in their order. An example whose translation
    is missing or lost stands beside itself. Raises UserError as `beside_of` and `paired` do."""
    records = read(task, data, split, language)
    there = beside_of(task, data, split, language)
    if there == (split, language):
        return Standing(records, "")
    path = find(task, data, *there).paths[0]
    pairs, pivot = _pairs_of(task, data, split, there, language, path)
    beside = []
    for record, partner in zip(records, pairs.partners, strict=True):
        found = record
        if partner is not None and not _is_empty(pivot[partner]):
            found = pivot[partner]
        beside.append(found)
    return Standing(beside, pairs.said(str(path), "they stand beside themselves"))


def _is_empty(record: Any) -> bool:
    # Half of a pair of texts is read as it is.
    if isinstance(record, Example):
        return not record.premise and not record.hypothesis
    return is_lost(record)


def _pairs_of(
    task: Task, data: str | Path, split: str, there: tuple[str, str], language: str, path: Path
) -> tuple[Pairs, Sequence[Any]]:
    """The pairs of a set, or of a part of it, and the translations that they are of."""
    name, rows = part_of(split)
    name_there, _ = part_of(there[0])
    pivot = read(task, data, name_there, there[1])
    pair = functools.partial(
        paired,
        task.full_name,
        pivot=pivot,
        language=language,
        there=f"{task.trained_on!r} ({path})",
    )
    # By id a part is found wherever it stands.
    if name == split or task.kind == "span_qa":
        return pair(read(task, data, split, language)), pivot
    # Whole files: in another order the labels of a part may agree by chance.
    pairs = pair(read(task, data, name, language))
    return Pairs(pairs.partners[rows(len(pairs.partners))], pairs.by), pivot
