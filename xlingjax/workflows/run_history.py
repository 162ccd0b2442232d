"""What a run was trained on and chosen by, as far as its recipe tells."""

from collections.abc import Collection, Mapping
from typing import Any

from xlingjax.data.labelled.task import Task, part_of, read, share_rows
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError
from xlingjax.preprocessors.training_set import ALL, Training
from xlingjax.tasks import task_named


def languages_learnt(macros: Mapping[str, Any]) -> set[str] | None:
    """Those that a run had training examples of, gold, translated or labelled; None: its recipe
    does not tell, or its files, which "all" is looked up in, are gone."""
    # A run of another recipe, or an imported model.
    if "TRAIN_LANGUAGES" not in macros:
        return None
    gold = split_list(macros["TRAIN_LANGUAGES"])
    translated = split_list(macros.get("TRANSLATED"))
    labelled = macros.get("LABELLED")
    # Named languages need no files, which may be on another machine.
    if ALL not in gold and ALL not in translated and not labelled:
        return {*gold, *translated}
    languages = set()
    try:
        training = Training(gold, translated, labelled=labelled)
        for task in [task_named(name) for name in split_list(macros.get("TASK"))]:
            # "all" is what the files were, so they are looked at again.
            for _, language in training.parts(task, macros["DATA"]):
                languages.add(language)
    except UserError:
        return None
    return languages or None


def chosen_on(
    macros: Mapping[str, Any], task: Task, data: str, split: str, languages: Collection[str]
) -> str:
    """A line, where a run chose its checkpoint by examples of a split that it is measured on; "":
    it did not."""
    metric = macros.get("BEST_METRIC")
    dev = macros.get("DEV_SPLIT")
    # By the name alone, without its suite: XNLI is a task of several suites.
    trained = {name.partition("/")[2].lower() for name in split_list(macros.get("TASK"))}
    if task.name.lower() not in trained or not metric or not dev:
        return ""
    name = part_of(split)[0]
    if part_of(dev)[0] != name:
        return ""
    for language in languages:
        if share_rows(dev, split, len(read(task, data, name, language))):
            return (
                f"whose checkpoint was chosen by {metric} on {dev}, examples of this split: its"
                " figures flatter"
            )
    return ""
