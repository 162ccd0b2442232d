"""Which sets choose and test in a cell, where files, answers or languages are missing."""

from collections.abc import Collection, Mapping
from typing import Any

from xlingjax.data.labelled.task import Task, languages_present, read
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError
from xlingjax.evaluation.task.tested import chosen_languages, has_gold
from xlingjax.preprocessors.training_set import ALL
from xlingjax.training.run_record import read_run_record, run_and_checkpoint
from xlingjax.workflows.cell import MEASURED, Request

NO_DEV = ("train[:90%]", "train[90%:]")
"""Training and dev where there is no dev set."""
NO_ANSWERS = ("dev[:50%]", "dev[50%:]")
"""What takes the place of the dev and test sets where the test set is not there or has no answers.
"""


def splits_of(request: Request, given: Collection[str], bound: Mapping[str, Any]) -> dict[str, str]:
    """The macros that say what is trained on, chosen by and tested on, where files or answers are
    missing (`NO_DEV`, `NO_ANSWERS`) and the command line names no split. Raises UserError where no
    set can take the place of a missing one."""
    # Who names one has chosen: nothing takes its place.
    if "DEV_SPLIT" in given or "TEST_SPLIT" in given:
        return {}
    # Of multi-task training one task without dev is enough: the checkpoint is chosen for all.
    for task in request.tasks:
        if not languages_present(task, request.data, "dev"):
            return _part_of_train(request, task, bound)
    # A strategy may test on another set, as translate_test does.
    if bound["TEST_SPLIT"] != "test":
        return {}
    for task in request.tasks:
        if not _has_answers(task, request.data, "test"):
            return {"DEV_SPLIT": NO_ANSWERS[0], "TEST_SPLIT": NO_ANSWERS[1]}
    return {}


def _part_of_train(request: Request, task: Task, bound: Mapping[str, Any]) -> dict[str, str]:
    """The macros that take dev out of the training set of a task that has no dev set."""
    # The training sets of the others would be cut as well, since TRAIN_SPLIT is one macro for all.
    if request.beside:
        raise UserError(
            f"{task.full_name}: no dev set below {request.data}, which {request.strategy} needs of"
            " each"
        )
    if bound["TRAIN_SPLIT"] != "train":
        raise UserError(
            f"TRAIN_SPLIT={bound['TRAIN_SPLIT']}: {request.called} has no dev set below"
            f" {request.data}; say by --gin.DEV_SPLIT which other part of train is dev"
        )
    languages = bound["DEV_LANGUAGES"]
    # The training set, of which dev is a part then, is of one language.
    if languages == ALL:
        languages = task.trained_on
    return {"TRAIN_SPLIT": NO_DEV[0], "DEV_SPLIT": NO_DEV[1], "DEV_LANGUAGES": languages}


def _has_answers(task: Task, data: str, split: str) -> bool:
    for language in languages_present(task, data, split):
        if has_gold(task, read(task, data, split, language)):
            return True
    return False


def known_languages(request: Request, bound: Mapping[str, Any]) -> dict[str, str]:
    """The macros of the languages that are measured, without those that a model which embeds
    languages does not know. Raises UserError for these unless missing ones are allowed and all
    languages are requested."""
    record = read_run_record(run_and_checkpoint(request.source)[0])
    # One language has nothing to look up, and an embedding that is left behind refuses nobody.
    if record["model"]["num_languages"] < 2 or bound["LANGUAGE_EMBEDDING"] is False:
        return {}
    macros = {}
    for split, name in MEASURED:
        for task in request.tasks:
            present = chosen_languages(task, request.data, bound[split], split_list(bound[name]))
            known = []
            unknown = []
            for language in present:
                if language in record["languages"]:
                    known.append(language)
                else:
                    unknown.append(language)
            if not unknown:
                continue
            # Tasks that are trained together share the macro, so one cannot narrow it alone.
            narrows = request.allow_missing and bound[name] == ALL and not request.beside
            if not known or not narrows:
                raise UserError(
                    f"{task.full_name}: {request.source} embeds languages and does not know"
                    f" {', '.join(unknown)}: name others by --gin.{name}, or --allow-missing passes"
                    " over them"
                )
            macros[name] = " ".join(known)
    return macros
