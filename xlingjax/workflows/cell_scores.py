"""scores.json of a cell: the checkpoint that dev chose, on the test sets of its task."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.task import Task, languages_present, read
from xlingjax.data.sources import split_list
from xlingjax.errors import UserError
from xlingjax.evaluation.submissions import write_predictions
from xlingjax.evaluation.task.predictions import translations
from xlingjax.evaluation.task.scores import means, scored
from xlingjax.evaluation.task.tested import chosen_languages, has_gold
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.model.partition import mesh_of_all
from xlingjax.runtime.records import read_lines
from xlingjax.training.checkpoint_paths import find_checkpoint
from xlingjax.training.run_record import read_run_record
from xlingjax.training.tracker import EVALUATION
from xlingjax.workflows.cell import Cell, Request, chosen_by, dev_of, reading_of, training_of
from xlingjax.workflows.cell_examples import counted
from xlingjax.workflows.predictions import predicted
from xlingjax.workflows.scorecard.cells import TESTS


def scores_of(
    request: Request, cell: Cell, task: Task, folder: Path, bound: Mapping[str, Any], start: str
) -> dict[str, Any]:
    """scores.json of a task of a cell that was trained; its predictions are written below `folder`.
    start: the hash of the weights it began from. Raises UserError where the checkpoint was not
    measured on dev."""
    run = cell.folder / "run"
    checkpoint = str(run)
    # RUN@METRIC is the checkpoint that dev chose; without one it is the last.
    if bound["KEEP_BEST"]:
        checkpoint = f"{run}@{chosen_by(request, task, bound['SELECT'])}"
    trained = open_run(checkpoint, mesh=mesh_of_all())
    step = int(find_checkpoint(checkpoint).name)
    test = _test_scores(request, task, folder, bound, trained)
    # Labels of XTREME's test sets are not public: half of dev
    # tests, and the real set is predicted for a submission.
    if bound["TEST_SPLIT"] not in TESTS:
        _predict_test_sets(request, task, folder, bound, trained)

    # What was measured in training, and not measured again: it is what the choice was made by.
    dev = _dev_scores(run, step, dev_of(request, task))
    if dev is None:
        raise UserError(
            f"{run}: checkpoint {step} was not measured on dev; delete {cell.folder}, start again"
        )
    select = {
        "split": bound["DEV_SPLIT"],
        "by": bound["SELECT"],
        "step": step,
        "steps": bound["TRAIN_STEPS"],
    }
    # A choice by fewer examples is another policy, which the card does not compare.
    if bound["DEV_LIMIT"]:
        select["limit"] = bound["DEV_LIMIT"]
    if len(request.learnt) > 1:
        # One checkpoint is chosen for all tasks: "value" is their common figure.
        if bound["SELECT"] in dev:
            select["value"] = dev[bound["SELECT"]]
        dev = dev["by_task"][task.name]
    variant = dict(cell.variant)
    # A training that others share gives what one of its own gives.
    if request.shares:
        del variant["TASKS"]
    sessions = read_run_record(run)["sessions"]
    return {
        "task": task.full_name,
        "strategy": cell.strategy,
        "variant": variant,
        "settings": dict(cell.settings),
        "seed": cell.seed,
        "start": {"run": request.source, "sha256": start},
        "select": select,
        "trained": {
            "split": bound["TRAIN_SPLIT"],
            "examples": counted(request, task, bound).examples,
        },
        "dev": {
            "means": {name: value for name, value in dev.items() if isinstance(value, float)},
            "by_language": dev["by_language"],
        },
        "test": test,
        "machine": sessions[-1]["machine"],
    }


def _test_scores(
    request: Request, task: Task, to: Path, bound: Mapping[str, Any], trained: TrainedRun
) -> dict[str, Any]:
    """ "test" of scores.json. Writes the predictions for the sets that test."""
    data = request.data
    split = bound["TEST_SPLIT"]
    translated = split == "translate_test"
    languages = chosen_languages(task, data, split, split_list(bound["TEST_LANGUAGES"]))
    if translated and task.trained_on in languages_present(task, data, "test"):
        # The language of the training set needs no translation: its own test set stands beside
        # those that were translated into it.
        languages = sorted([*languages, task.trained_on])
    folder = to / "predictions"
    if split not in TESTS:
        # Apart from `predictions`, which is what gets submitted.
        folder = to / "predictions_of_dev"

    by_language = {}
    examples = {}
    for language in languages:
        own_split = split
        # translate_test: the file is named by the language
        # that it was translated from, and its text is English.
        text_language = language
        name = split.partition("[")[0]
        if translated:
            text_language = task.trained_on
            name = "test"
        if translated and language == task.trained_on:
            own_split = "test"
        records = read(task, data, own_split, language)
        pivot = translations(trained.model, task, data, own_split, language)
        outputs = predicted(trained, task, records, text_language, reading_of(bound), pivot)
        write_predictions(task, folder, language, outputs, name)
        examples[language] = len(records)
        if has_gold(task, records):
            by_language[language] = scored(task, records, outputs, language)

    overall = {}
    if by_language:
        # "mean_other" is of the languages that had no training examples.
        trained_on = {language for _, language in training_of(bound).parts(task, data)}
        overall = means(by_language, task, trained_on)
    return {"split": split, "means": overall, "by_language": by_language, "examples": examples}


def _predict_test_sets(
    request: Request, task: Task, to: Path, bound: Mapping[str, Any], trained: TrainedRun
) -> None:
    """Writes what is submitted where test sets have no answers and a part of dev tests."""
    for language in languages_present(task, request.data, "test"):
        # A model that embeds languages has no embedding for one that it does not know.
        if trained.model.config.has_languages and language not in trained.languages:
            continue
        records = read(task, request.data, "test", language)
        pivot = translations(trained.model, task, request.data, "test", language)
        outputs = predicted(trained, task, records, language, reading_of(bound), pivot)
        write_predictions(task, to / "predictions", language, outputs)


def _dev_scores(run: Path, step: int, name: str) -> dict[str, Any] | None:
    """What the run measured by an evaluator at a step."""
    # They are the scores of a cell, so none is passed over.
    entries = read_lines(run / "evaluations.jsonl", EVALUATION)
    # A run that was stopped and went on may have measured a step twice: the newest counts.
    for entry in reversed(entries):
        if entry["name"] == name and entry["step"] == step:
            return entry["values"]
    return None
