"""`score(run, task)`: what a run predicts for the sets of a task, and the task's metrics; and
scores.json, which a training, a baseline and a run as it is leave alike."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from xlingjax.data.labelled.task import Task, has_gold, languages_present, read
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError
from xlingjax.evaluation.metrics.registry import scored
from xlingjax.evaluation.submissions import write_predictions
from xlingjax.evaluation.task.predictions import predict, translations
from xlingjax.evaluation.task.scores import chosen_languages, means
from xlingjax.inference.run import TrainedRun, open_run
from xlingjax.model.partition import mesh_of_all
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.runtime.files import write_json
from xlingjax.training.checkpoint_paths import find_checkpoint
from xlingjax.training.run_record import read_run_record
from xlingjax.training.tracker import evaluations_at
from xlingjax.workflows.scorecard.cells import SCORES, TESTS
from xlingjax.workflows.tasks.request import (
    Bound,
    Cell,
    Request,
    chosen_by,
    dev_of,
    reading_of,
    training_of,
)
from xlingjax.workflows.tasks.sets import counted

Predictor = Callable[[Sequence[Any], str, str], Any]
"""(records, split, language) -> what the task's metrics take."""


def predictor(run: TrainedRun, task: Task, data: str, reading: Reading) -> Predictor:
    """What a run predicts for a task of a kind that is trained."""

    def predict_records(records: Sequence, split: str, language: str) -> Any:
        text_language = language
        # The file is named by the language that it was translated from, and its text is English.
        if split == "translate_test":
            text_language = task.trained_on
        pivot = translations(run.model, task, data, split, language)
        return predict(run, task, records, text_language, reading, pivot)

    return predict_records


def score(
    run: Predictor,
    task: Task,
    data: str,
    split: str,
    languages: Collection[str],
    folder: Path,
    learnt: Collection[str] | None = (),
) -> dict:
    """ "test" of scores.json: the metrics of a task on a split in these languages, and their means.
    Writes the predictions into `folder`, as they are submitted. learnt: the languages that the run
    had training examples of, which "mean_other" leaves out; None: not known."""
    splits = dict.fromkeys(languages, split)
    name = split.partition("[")[0]
    if split == "translate_test":
        name = "test"
        if task.trained_on in languages_present(task, data, "test"):
            # The language of the training set needs no translation: its own test set stands beside
            # those that were translated into it.
            splits[task.trained_on] = "test"
    by_language = {}
    examples = {}
    for language in sorted(splits) if split == "translate_test" else splits:
        records = read(task, data, splits[language], language)
        predicted = run(records, splits[language], language)
        # Also without answers, since official test sets are to be submitted.
        write_predictions(task, folder, language, predicted, name)
        examples[language] = len(records)
        if task.kind in ("retrieval", "mining"):
            # One record is a whole bitext.
            examples[language] = len(records[0].target)
        if has_gold(records[0]):
            by_language[language] = scored(task, records, predicted, language)
    overall = {}
    if by_language:
        overall = means(by_language, task, learnt or ())
        if learnt is None:
            overall.pop("mean_other", None)
    return {"split": split, "means": overall, "by_language": by_language, "examples": examples}


def predict_test(
    run: Predictor, task: Task, data: str, folder: Path, languages: Collection[str] | None = None
) -> None:
    """Writes what is submitted where test sets have no answers and a part of dev tests. languages:
    None: all."""
    for language in languages_present(task, data, "test"):
        if languages is None or language in languages:
            records = read(task, data, "test", language)
            write_predictions(task, folder, language, run(records, "test", language))


def write_scores(folder: Path, task: Task, strategy: str, test: Any, **more: Any) -> dict:
    """Writes scores.json, last and in one write: a cell that has it is finished. more: what differs
    from a cell in which nothing was trained or chosen."""
    scores = {
        "task": task.full_name,
        "strategy": strategy,
        "variant": {},
        "settings": {},
        "seed": 0,
        "start": {"run": "", "sha256": ""},
        "select": {"split": "", "by": "none", "step": 0, "steps": 0},
        "dev": {"means": {}, "by_language": {}},
        "test": test,
        "machine": "",
    }
    scores |= more
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SCORES, scores)
    return scores


# ---- of a training -------------------------------------------------------------------------------


def score_cell(
    request: Request, cell: Cell, task: Task, folder: Path, bound: Bound, start: str
) -> dict:
    """scores.json of a task of a cell that was trained: the checkpoint that dev chose, on the test
    sets. start: the hash of the weights it began from. Raises UserError where the checkpoint was
    not measured on dev."""
    run = cell.folder / "run"
    checkpoint = str(run)
    # RUN@METRIC is the checkpoint that dev chose; without one it is the last.
    if bound["KEEP_BEST"]:
        checkpoint = f"{run}@{chosen_by(request, task, bound['SELECT'])}"
    trained = open_run(checkpoint, mesh=mesh_of_all())
    step = int(find_checkpoint(checkpoint).name)
    predict_records = predictor(trained, task, request.data, reading_of(bound))
    split = bound["TEST_SPLIT"]
    requested = split_list(bound["TEST_LANGUAGES"])
    languages = chosen_languages(task, request.data, split, requested)
    learnt = {language for _, language in training_of(bound).parts(task, request.data)}
    predictions = folder / "predictions"
    # Labels of XTREME's test sets are not public: half of dev tests, and the real set is predicted
    # for a submission.
    if split not in TESTS:
        # A model that embeds languages has no embedding for one that it does not know.
        known = trained.languages if trained.model.config.has_languages else None
        predict_test(predict_records, task, request.data, predictions, known)
        # Apart from `predictions`, which is what gets submitted.
        predictions = folder / "predictions_of_dev"
    test = score(predict_records, task, request.data, split, languages, predictions, learnt)

    # What was measured in training, and not measured again: it is what the choice was made by.
    # They are the scores of a cell, so no line is passed over.
    dev = evaluations_at(run, step).get(dev_of(request, task))
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
    return write_scores(
        folder,
        task,
        cell.strategy,
        test,
        variant=variant,
        settings=dict(cell.settings),
        seed=cell.seed,
        start={"run": request.source, "sha256": start},
        select=select,
        trained={"split": bound["TRAIN_SPLIT"], "examples": counted(request, task, bound).examples},
        dev={
            "means": {name: value for name, value in dev.items() if isinstance(value, float)},
            "by_language": dev["by_language"],
        },
        machine=read_run_record(run)["sessions"][-1]["machine"],
    )
