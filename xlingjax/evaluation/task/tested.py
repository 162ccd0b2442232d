"""Which languages of a task are tested, and whether their files tell the answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.task import Task, languages_present, part_of
from xlingjax.errors import UserError

ALL = "all"
_GOLD = {
    "classification": "label",
    "ranking": "label",
    "tagging": "tags",
    "span_qa": "answers",
    "generation": "target",
    "retrieval": "gold",
    "mining": "gold",
}
"""What holds the answer, in a record of each kind of task."""


def has_gold(task: Task, records: Sequence[Any]) -> bool:
    """Whether the file of these records tells the answers; an official test set need not."""
    # The first record tells for the file: benchmarks hide all of its answers or none.
    gold = getattr(records[0], _GOLD[task.kind])
    # Tags and answers are lists, and an empty one tells nothing.
    return bool(gold) if task.kind in ("tagging", "span_qa") else gold is not None


def chosen_languages(
    task: Task, data: str | Path, split: str, requested: Sequence[str]
) -> list[str]:
    """Those asked for, or of "all" those that have the split. Raises UserError where there are
    none."""
    present = languages_present(task, data, split)
    # "all" are those that are there; who names one has a reason, and a missing file is a mistake.
    if ALL in requested:
        if not present:
            raise UserError(f"{task.full_name}: no language has a {split} set below {data}")
        return [*present]
    if missing := [language for language in requested if language not in present]:
        raise UserError(f"{task.full_name}: {', '.join(missing)} have no {split} set below {data}")
    return [*requested]


def require_tested(
    task: Task, data: str | Path, split: str, requested: Sequence[str], allow_missing: bool
) -> None:
    """Raise UserError where a language that is to be tested has no files: of those asked for, or
    without `allow_missing` of "all" the task's. Where dev is what is tested a test set will do:
    XTREME has no dev sets of some languages."""
    chosen_languages(task, data, split, requested)
    if allow_missing or ALL not in requested:
        return
    part = part_of(split)[0]
    splits = [split]
    if part == "dev":
        splits.append("test")
    # The language that is trained on need not be tested.
    there = {task.trained_on}
    for each in splits:
        there |= {*languages_present(task, data, each)}
    missing = [language for language in task.languages if language not in there]
    if missing:
        raise UserError(
            f"{task.full_name}: no {part} set of {', '.join(missing)} below {data}:"
            " get them, name others with --gin.TEST_LANGUAGES, or --allow-missing"
        )
