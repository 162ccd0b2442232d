"""Examples of a task beside what they translate: those to train on, and those to predict."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.beside import Pairs, paired
from xlingjax.data.labelled.records import Example, is_lost, learnable
from xlingjax.data.labelled.task import Task, find, part_of, read
from xlingjax.errors import UserError
from xlingjax.preprocessors.training_set import Training


def training_pairs(
    task: Task, data: str | Path, training: Training, origin: str, language: str
) -> tuple[list[Any], list[Any], int, str]:
    """(examples of one translated part of `training`, the gold one of `Task.trained_on` beside
    each, how many a machine lost of those that have a partner, what is said of those without).

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
        records: Sequence[Any] = read(task.whole, data, "translate_train", language)
    else:
        records = whole.records(task.whole, data, origin, language)
    translated = records
    if origin == "labelled":
        # Row by row what a teacher labelled, which does not tell what it translates.
        translated = read(task.whole, data, "translate_train", language)
    # Its first rows alone, where these are asked for.
    records = records[: task.first]
    if len(records) != len(translated[: task.first]):
        raise UserError(
            f"{place}: {len(records)} examples, but {len(translated)} in the translation that they"
            " label: label it again"
        )
    gold = whole.records(task.whole, data, "gold", task.trained_on)
    gold_path = find(task, data, "train", task.trained_on).paths[0]
    pairs = paired(task.full_name, translated, gold, language, f"{task.trained_on!r} ({gold_path})")
    # The rows of the gold that are in the part that is trained on.
    _, chosen = part_of(training.split)
    kept = range(len(gold))[chosen(len(gold))]
    if task.shared_ids:
        ids = {one.id for one in read(task.whole, data, training.split, task.trained_on)}
        kept = [row for row, one in enumerate(gold) if one.id in ids]
    kept = {*kept}
    partners = zip(records, pairs.partners[: task.first], strict=True)
    there = [(record, gold[partner]) for record, partner in partners if partner in kept]
    # A sentence that is there without tags is one to learn from.
    learnt = [pair for pair in there if learnable([pair[0]])]
    if not learnt:
        raise UserError(f"{place}: no example of it is in {training.split}")
    own, beside = zip(*learnt, strict=True)
    return [*own], [*beside], len(there) - len(learnt), pairs.said("left out")


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
    if name in ("dev", "test") and find(task, data, translated, language):
        return translated + split.removeprefix(name), language
    # Of other classes and ranks it shows when lines are compared.
    if task.parallel or task.shared_ids or task.kind not in ("span_qa", "tagging"):
        return split, task.trained_on
    places = task.files.get(translated)
    path = Path(data) / (places[0].patterns[0].format(language=language) if places else translated)
    raise UserError(
        f"{task.full_name}: missing file: {path}: plug-in fine-tuning reads every example of"
        f" {language!r} beside its translation into {task.trained_on!r}: write it there, or name"
        " languages that have it with DEV_LANGUAGES, TEST_LANGUAGES"
    )


def standing_beside(
    task: Task, data: str | Path, split: str, language: str
) -> tuple[Sequence[Any], str]:
    """(what stands beside the examples of a language, in their order; what is said of examples
    without a translation). An example whose translation is missing or lost stands beside itself.
    Raises UserError as `beside_of` and `paired` do."""
    records = read(task, data, split, language)
    there = beside_of(task, data, split, language)
    if there == (split, language):
        return records, ""
    path = find(task, data, *there).paths[0]
    name, rows = part_of(split)
    pivot = read(task.whole, data, part_of(there[0])[0], there[1])
    # By id a part is found wherever it stands. Else whole files are paired: in another order the
    # labels of a part may agree by chance.
    by_id = task.kind == "span_qa"
    own = records if by_id else read(task.whole, data, name, language)
    pairs = paired(task.full_name, own, pivot, language, f"{task.trained_on!r} ({path})")
    if not by_id:
        pairs = Pairs(pairs.partners[rows(len(pairs.partners))][: task.first], pairs.by)
    beside = [
        record if partner is None or _is_empty(pivot[partner]) else pivot[partner]
        for record, partner in zip(records, pairs.partners, strict=True)
    ]
    said = pairs.said("they stand beside themselves")
    return beside, said and f"{path}: {said}"


def _is_empty(record: Any) -> bool:
    # Half of a pair of texts is read as it is.
    if isinstance(record, Example):
        return not record.premise and not record.hypothesis
    return is_lost(record)
