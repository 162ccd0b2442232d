"""What a cell is refused for before any training: values that no training can be of, and examples
that stand on both sides."""

import functools
from collections.abc import Mapping
from typing import Any

from xlingjax.data.labelled.task import Task, find, languages_present, part_of, read, share_rows
from xlingjax.data.text.sources import split_list
from xlingjax.errors import UserError
from xlingjax.evaluation.task.tested import chosen_languages
from xlingjax.training.run_record import read_run_record, run_and_checkpoint
from xlingjax.workflows.cell import Request, training_of
from xlingjax.workflows.cell_splits import NO_DEV
from xlingjax.workflows.strategies import PAIRED, TRANSLATABLE


def require_sound(request: Request, bound: Mapping[str, Any]) -> None:
    """Raise UserError for values that no training can be of, and those that the pretrained run has
    no room or part for."""
    for task in request.tasks:
        of_translations = part_of(bound["TEST_SPLIT"])[0] == "translate_test"
        if of_translations and task.kind not in TRANSLATABLE:
            raise UserError(
                f"TEST_SPLIT={bound['TEST_SPLIT']}: {task.kind} of a translation is none of what"
                f" was translated, so {task.full_name} cannot be tested on it"
            )
    model = read_run_record(run_and_checkpoint(request.source)[0])["model"]
    room = model["max_positions"] - model.get("position_offset", 0)
    if bound["LENGTH"] > room:
        raise UserError(
            f"LENGTH={bound['LENGTH']}: such rows do not fit the {room} positions of"
            f" {request.source}"
        )
    # Several tasks that are trained together have heads of another kind.
    if bound["CLASSIFIER"] == "plug_in" and len(request.learnt) == 1:
        _require_plug_in(request, model)


def _require_plug_in(request: Request, model: Mapping[str, Any]) -> None:
    if request.task.kind not in PAIRED:
        raise UserError(
            f"CLASSIFIER=plug_in is for {', '.join(PAIRED)}; {request.called} is of"
            f" {request.task.kind}"
        )
    if not model.get("cross_attention"):
        raise UserError(
            f"CLASSIFIER=plug_in goes through cross-attention, which {request.source} has none"
            " of: give a VECO run, or what `xlingjax plug in RUN --source VECO_RUN` writes"
        )


# ---- examples on both sides ----------------------------------------------------------------------


def require_apart(request: Request, bound: Mapping[str, Any], chooses: bool) -> None:
    """Raise UserError where an example is in two of what is trained on, what chooses and what
    tests. chooses: dev chooses the checkpoint, or settings of a grid."""
    train = bound["TRAIN_SPLIT"]
    dev = bound["DEV_SPLIT"]
    test = bound["TEST_SPLIT"]
    # Where the last checkpoint is taken and nothing is chosen, dev is only looked at.
    apart_from_training = ["TEST_SPLIT"]
    if chooses:
        apart_from_training.append("DEV_SPLIT")
        if _share(request, dev, test):
            raise UserError(
                f"DEV_SPLIT={dev} and TEST_SPLIT={test} share examples:"
                " what chooses the checkpoint cannot test it; give --gin.DEV_SPLIT='\"dev[:50%]\"'"
                " and --gin.TEST_SPLIT='\"dev[50%:]\"', or --gin.SELECT=last without a --grid"
            )
        # Halves of one set, of which the rows of one language translate those of another.
        if part_of(dev)[0] == part_of(test)[0]:
            for task in request.tasks:
                if task.parallel:
                    _require_equal(task, request.data, bound)
    for name in apart_from_training:
        if _share(request, train, bound[name]):
            raise UserError(
                f"TRAIN_SPLIT={train} and {name}={bound[name]} share examples: what"
                " is trained on can neither choose nor test; give both, as in"
                f" --gin.TRAIN_SPLIT='\"{NO_DEV[0]}\"' and --gin.{name}='\"{NO_DEV[1]}\"'"
            )


def _require_equal(task: Task, data: str, bound: Mapping[str, Any]) -> None:
    """Raise UserError where the sets of a task whose rows correspond, one part of which is to
    choose and another to test, have not as many in each language."""
    split = part_of(bound["DEV_SPLIT"])[0]
    rows = {}
    for name in ("DEV_LANGUAGES", "TEST_LANGUAGES"):
        for language in chosen_languages(task, data, split, split_list(bound[name])):
            if language not in rows:
                rows[language] = _rows(task, data, split, language)
    first = next(iter(rows))
    for language, count in rows.items():
        if count != rows[first]:
            # Half of a short set is not the translation of half of a long one.
            raise UserError(
                f"{task.full_name}: the {split} set has {count:,} rows in {language!r} and"
                f" {rows[first]:,} in {first!r}: rows correspond over the languages, so a part of"
                " one would choose for what stands in the other part of another; get the whole"
                " files"
            )


def _share(request: Request, first: str, second: str) -> bool:
    """Whether an example of a task is in both splits."""
    split = part_of(first)[0]
    # Different sets of a benchmark are taken to be apart, as it publishes them.
    if split != part_of(second)[0]:
        return False
    cuts = {"%" in part for part in (first, second) if "[" in part}
    for task in request.tasks:
        # Where languages share examples a percentage cuts by ids and a number by rows: whether two
        # such parts share one is not told by their bounds.
        incomparable = task.shared_ids and len(cuts) > 1
        for language in languages_present(task, request.data, first):
            if incomparable:
                return True
            if share_rows(first, second, _rows(task, request.data, split, language)):
                return True
    return False


def _rows(task: Task, data: str, split: str, language: str) -> int:
    """Raises UserError as `read` does."""
    files = []
    found = find(task, data, split, language)
    if found is not None:
        for path in found.paths:
            files.append((str(path), path.stat().st_mtime_ns))
    return _counted(task, data, split, language, tuple(files))


# Cells of a grid read the same sets: the 45 of VECO's would read each as often.
@functools.lru_cache(maxsize=256)
def _counted(
    task: Task, data: str, split: str, language: str, files: tuple[tuple[str, int], ...]
) -> int:
    """files: with the times of their last change, so that a file that was repaired is read."""
    return len(read(task, data, split, language))


def require_as_many(request: Request, bound: Mapping[str, Any]) -> None:
    """Rows that are held out of the training set are held out of its translations too, by their
    numbers (of MLQA, in percent, by their ids). Raises UserError where a translation has more or
    fewer rows."""
    for task in request.tasks:
        # Pairs tell which of them translate the rows that are held out.
        if bound["CLASSIFIER"] == "plug_in":
            continue
        # A percentage cuts by ids there, which translations have in common whatever their number.
        if task.shared_ids and "%" in bound["TRAIN_SPLIT"]:
            continue
        translated = []
        for origin, language in training_of(bound).parts(task, request.data):
            if origin != "gold":
                translated.append(language)
        if not translated:
            continue
        rows = _rows(task, request.data, "train", task.trained_on)
        for language in translated:
            count = _rows(task, request.data, "translate_train", language)
            if count != rows:
                raise UserError(
                    f"{task.full_name}: {count} examples translated into {language!r}, of"
                    f" {rows} in {task.trained_on!r}: which of them translate the rows of"
                    f" DEV_SPLIT={bound['DEV_SPLIT']} cannot be told, and these would choose; give"
                    f" --gin.SELECT=last and --gin.DEV_SPLIT='\"{bound['DEV_SPLIT']}\"' without a"
                    " --grid, which then trains on all rows"
                )
