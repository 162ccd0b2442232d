"""Which sets of a benchmark train, choose and test in a cell, where files, answers or languages are
missing; how many examples are trained on; and what is refused before any training."""

import dataclasses
import functools
from collections.abc import Collection
from pathlib import Path

import numpy as np

from xlingjax.data.labelled.records import hashes_asked
from xlingjax.data.labelled.task import (
    Task,
    find,
    has_gold,
    hashes,
    languages_present,
    part_of,
    read,
    share_rows,
)
from xlingjax.data.overlap import overlap_of_examples
from xlingjax.data.text.sources import split_list
from xlingjax.data.vocabulary.sentencepiece import Vocabulary
from xlingjax.errors import UserError
from xlingjax.evaluation.task.scores import chosen_languages
from xlingjax.preprocessors.parts import Part, stored
from xlingjax.preprocessors.task_rows import Reading
from xlingjax.preprocessors.training_set import ALL, Training
from xlingjax.tasks import task_named
from xlingjax.training.run_record import model_of, read_run_record, run_and_checkpoint
from xlingjax.workflows.tasks.request import (
    MEASURED,
    TRAINED_ON,
    Bound,
    Request,
    files_read,
    measured,
    reading_of,
    training_of,
)
from xlingjax.workflows.tasks.strategies import PAIRED, TRANSLATABLE, Unsuited

NO_DEV = ("train[:90%]", "train[90%:]")  # training and dev where there is no dev set
NO_ANSWERS = ("dev[:50%]", "dev[50%:]")
"""What takes the place of the dev and test sets where the test set is not there or has no answers.
"""
LOST = {"span_qa": "translated questions, whose answer does not stand where the file says"}
"""Kind of task -> what of a translated training set is not learnt."""


# ---- where sets are missing ----------------------------------------------------------------------


def splits_of(request: Request, given: Collection[str], bound: Bound) -> dict[str, str]:
    """The macros that say what is trained on, chosen by and tested on, where files or answers are
    missing (`NO_DEV`, `NO_ANSWERS`) and the command line names no split. Raises UserError where no
    set can take the place of a missing one."""
    # Who names one has chosen: nothing takes its place.
    if "DEV_SPLIT" in given or "TEST_SPLIT" in given:
        return {}
    for task in request.tasks:
        if not languages_present(task, request.data, "dev"):
            return _part_of_train(request, task, bound)
    # A strategy may test on another set, as translate_test does.
    if bound["TEST_SPLIT"] != "test":
        return {}
    for task in request.tasks:
        present = languages_present(task, request.data, "test")
        if not any(has_gold(read(task, request.data, "test", one)[0]) for one in present):
            return {"DEV_SPLIT": NO_ANSWERS[0], "TEST_SPLIT": NO_ANSWERS[1]}
    return {}


def _part_of_train(request: Request, task: Task, bound: Bound) -> dict[str, str]:
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


def known_languages(request: Request, bound: Bound) -> dict[str, str]:
    """The macros of the languages that are measured, without those that a model which embeds
    languages does not know. Raises UserError for these unless missing ones are allowed and all
    languages are requested."""
    # One language has nothing to look up, and an embedding that is left behind refuses nobody.
    if model_of(request.source).num_languages < 2 or bound["LANGUAGE_EMBEDDING"] is False:
        return {}
    languages = read_run_record(request.source)["languages"]
    macros = {}
    for split, name in MEASURED:
        for task in request.tasks:
            present = chosen_languages(task, request.data, bound[split], split_list(bound[name]))
            known = [language for language in present if language in languages]
            unknown = [language for language in present if language not in known]
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


# ---- values that no training can be of -----------------------------------------------------------


def require_sound(request: Request, bound: Bound) -> None:
    """Raise UserError for values that no training can be of, and those that the pretrained run has
    no room or part for."""
    for task in request.tasks:
        of_translations = part_of(bound["TEST_SPLIT"])[0] == "translate_test"
        if of_translations and not languages_present(task, request.data, "translate_test"):
            raise Unsuited(f"{task.full_name}: no translate_test set below {request.data}")
        if of_translations and task.kind not in TRANSLATABLE:
            raise Unsuited(
                f"TEST_SPLIT={bound['TEST_SPLIT']}: {task.kind} of a translation is none of what"
                f" was translated, so {task.full_name} cannot be tested on it"
            )
    for task in request.learnt:
        try:
            training_of(bound).parts(task, request.data)
        except UserError as lacking:
            raise Unsuited(str(lacking)) from None
    model = model_of(request.source)
    room = model.max_positions - model.position_offset
    if bound["LENGTH"] > room:
        raise UserError(
            f"LENGTH={bound['LENGTH']}: such rows do not fit the {room} positions of"
            f" {request.source}"
        )
    # Several tasks that are trained together have heads of another kind.
    if bound["CLASSIFIER"] != "plug_in" or len(request.learnt) > 1:
        return
    if request.task.kind not in PAIRED:
        raise Unsuited(
            f"CLASSIFIER=plug_in is for {', '.join(PAIRED)}; {request.called} is of"
            f" {request.task.kind}"
        )
    if not model.cross_attention:
        raise UserError(
            f"CLASSIFIER=plug_in goes through cross-attention, which {request.source} has none"
            " of: give a VECO run, or what `xlingjax plug in RUN --source VECO_RUN` writes"
        )


# ---- examples on both sides ----------------------------------------------------------------------


def require_apart(request: Request, bound: Bound) -> None:
    """Raise UserError where an example is in two of what is trained on, what chooses and what
    tests."""
    train, dev, test = (bound[f"{name}_SPLIT"] for name in ("TRAIN", "DEV", "TEST"))
    # Where the last checkpoint is taken and nothing is chosen, dev is only looked at; a setting of
    # a grid is chosen on it all the same.
    chooses = bound["SELECT"] != "last" or any(len(one) > 1 for one in request.grid.values())
    if chooses and _share(request, dev, test):
        raise UserError(
            f"DEV_SPLIT={dev} and TEST_SPLIT={test} share examples:"
            " what chooses the checkpoint cannot test it; give --gin.DEV_SPLIT='\"dev[:50%]\"'"
            " and --gin.TEST_SPLIT='\"dev[50%:]\"', or --gin.SELECT=last without a --grid"
        )
    # Parts of one set: half of a short language does not translate half of a long one.
    if chooses and part_of(dev)[0] == part_of(test)[0]:
        for task in request.tasks:
            if task.parallel:
                _require_equal(task, request.data, bound)
    for name in ("TEST_SPLIT", "DEV_SPLIT") if chooses else ("TEST_SPLIT",):
        if _share(request, train, bound[name]):
            raise UserError(
                f"TRAIN_SPLIT={train} and {name}={bound[name]} share examples: what"
                " is trained on can neither choose nor test; give both, as in"
                f" --gin.TRAIN_SPLIT='\"{NO_DEV[0]}\"' and --gin.{name}='\"{NO_DEV[1]}\"'"
            )
    if chooses and part_of(dev)[0] == "train":
        _require_as_many(request, bound)


def _require_equal(task: Task, data: str, bound: Bound) -> None:
    rows = {}
    for part, languages in measured(task, data, bound):
        for language in languages:
            rows[language] = _rows(task, data, part_of(part)[0], language)
    if len({*rows.values()}) > 1:
        raise UserError(
            f"{task.full_name}: the rows of its languages translate each other, and their numbers"
            f" differ: {rows}; what chooses could be what tests, so get the whole files"
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


def _require_as_many(request: Request, bound: Bound) -> None:
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
        for origin, language in training_of(bound).parts(task, request.data):
            if origin == "gold":
                continue
            rows = _rows(task, request.data, "train", task.trained_on)
            count = _rows(task, request.data, "translate_train", language)
            if count != rows:
                raise UserError(
                    f"{task.full_name}: {count} examples translated into {language!r}, of"
                    f" {rows} in {task.trained_on!r}: which of them translate the rows of"
                    f" DEV_SPLIT={bound['DEV_SPLIT']} cannot be told, and these would choose; give"
                    f" --gin.SELECT=last and --gin.DEV_SPLIT='\"{bound['DEV_SPLIT']}\"' without a"
                    " --grid, which then trains on all rows"
                )


def _rows(task: Task, data: str, split: str, language: str) -> int:
    """Raises UserError as `read` does."""
    found = find(task, data, split, language)
    stamps = [(str(path), path.stat().st_mtime_ns) for path in found.paths] if found else []
    return _count_rows(task, data, split, language, tuple(stamps))


# Cells of a grid read the same sets: the 45 of VECO's would read each as often.
@functools.lru_cache(maxsize=256)
def _count_rows(task: Task, data: str, split: str, language: str, stamps: tuple) -> int:
    """stamps: files and when they last changed, so that a file that was repaired is read."""
    return len(read(task.whole, data, split, language))


def trained_on_tests(request: Request, bound: Bound) -> list[tuple[str, str]]:
    """[(file, what is wrong with it)] of the test sets, which a training does not see; of texts to
    write of the dev sets, too. See `overlap_of_examples`."""
    data = request.data
    held = []
    for task in request.tasks:
        for split, languages in [*measured(task, data, bound)][task.kind != "generation" :]:
            for language in languages:
                path = find(task, data, split, language).paths[0]
                held.append((str(path), read(task, data, split, language)))
    trained = [part for task in request.learnt for part in counted(request, task, bound).asked]
    return overlap_of_examples(held, trained)


# ---- how much is trained on ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Count:
    """What a task is trained on in an epoch."""

    examples: int
    rows: int  # of the model: a long example is several
    asked: tuple[np.ndarray, ...]  # the `hashes_asked` of each part
    notes: tuple[str, ...] = ()  # a line for each file whose rows are left out


def counted(request: Request, task: Task, bound: Bound) -> Count:
    """What a task is trained on in an epoch."""
    # Those of dev and test do not change what is counted.
    files = files_read(task, request.data, bound)
    training_files = [part for part in files if part[0] in TRAINED_ON]
    # By the run and not its checkpoint: all of them have one vocabulary.
    return _counted(
        task.full_name,
        str(Path(request.data).absolute()),
        training_of(bound),
        reading_of(bound),
        run=str(run_and_checkpoint(request.source)[0]),
        paired=bound["CLASSIFIER"] == "plug_in",
        files=tuple(hashes(task, request.data, training_files).items()),
    )


# The cells of a sweep train on the same examples.
@functools.cache
def _counted(
    name: str, data: str, training: Training, reading: Reading, run: str, paired: bool, files: tuple
) -> Count:
    """files: what tells an edited set from itself."""
    task = task_named(name)
    origins = training.parts(task, data)
    if task.kind == "generation":
        # Texts to write are batched by the pipeline of text, an example a row.
        asked = tuple(hashes_asked(training.records(task, data, *part)) for part in origins)
        examples = sum(map(len, asked))
        return Count(examples, examples, asked)
    parts = []
    for origin, language in origins:
        # A model that is plugged in reads the gold example beside each translation of it.
        if origin != "gold" or not paired:
            parts.append(Part(task, data, training, reading, origin, language, paired))
    examples, rows = 0, 0
    asked = []
    notes = []
    unpaired = []
    # The training reads the same parts, which are made only once.
    for part, found in zip(parts, stored(parts, Vocabulary.load(run)), strict=True):
        records, learnt = found.facts["records"], found.facts["learnt"]
        place = training.described(task, data, part.origin, part.language)
        if learnt < records:
            what = LOST.get(task.kind, "translated rows, in which a text is missing")
            left = f"{records - learnt:,} of {records:,} {what}"
            notes.append(f"{place}: passed over {left}")
        if found.facts["unpaired"]:
            unpaired.append(f"{place}: {found.facts['unpaired']}")
        examples += learnt
        asked.append(found.asked)
        # Steps are planned by rows, since a question over a long context is several of them.
        rows += len(found.rows)
    return Count(examples, rows, tuple(asked), (*notes, *unpaired))
